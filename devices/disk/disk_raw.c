#include "devices/disk/disk.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "devices/disk/disk_format.h"

struct raw {
    struct disk disk;
    int fd;
    bool stays_raw;
};

static int raw_read(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    return disk_file_read(((struct raw *)disk)->fd, offset, data, len);
}

/* From the host's page cache, where its file system can say what is in there. */
static bool raw_read_now(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    const struct iovec into = {data, len};

    return preadv2(((struct raw *)disk)->fd, &into, 1, (off_t)offset, RWF_NOWAIT) == (ssize_t)len;
}

/* Whether what is written would make it begin like another format. */
static bool becomes_another(struct disk *disk, uint64_t offset, const void *data, size_t len)
{
    char head[DISK_FORMAT_BYTES];

    if (!((struct raw *)disk)->stays_raw || offset >= sizeof head)
        return false;
    if (raw_read(disk, 0, head, sizeof head) < 0)
        return true;
    memcpy(head + offset, data, len < sizeof head - offset ? len : (size_t)(sizeof head - offset));
    return strcmp(disk_format_of(head, sizeof head), "raw") != 0;
}

static int raw_write(struct disk *disk, uint64_t offset, const void *data, size_t len)
{
    if (becomes_another(disk, offset, data, len))
        return -1;
    return disk_file_write(((struct raw *)disk)->fd, offset, data, len);
}

static int raw_flush(struct disk *disk)
{
    return fdatasync(((struct raw *)disk)->fd);
}

static int raw_zero(struct disk *disk, uint64_t offset, uint64_t len)
{
    static const uint8_t zeroes[65536];
    int fd = ((struct raw *)disk)->fd;

    if (fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)len) == 0)
        return 0;
    /* The file system cannot do it by itself. */
    while (len) {
        size_t n = len < sizeof zeroes ? (size_t)len : sizeof zeroes;

        if (raw_write(disk, offset, zeroes, n) < 0)
            return -1;
        offset += n;
        len -= n;
    }
    return 0;
}

static int raw_discard(struct disk *disk, uint64_t offset, uint64_t len)
{
    int fd = ((struct raw *)disk)->fd;

    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)len) == 0)
        return 0;
    return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -1;
}

static void raw_close(struct disk *disk)
{
    close(((struct raw *)disk)->fd);
    free(disk);
}

static const struct disk_ops raw_ops = {
    .read = raw_read,
    .write = raw_write,
    .flush = raw_flush,
    .zero = raw_zero,
    .discard = raw_discard,
    .close = raw_close,
    .read_now = raw_read_now,
};

/* The size in bytes of what fd is open on, or -1 with *e filled. */
static int64_t image_size(int fd, const char *path, struct err *e)
{
    struct stat st;
    off_t end;

    if (fstat(fd, &st) < 0)
        return err_set(e, STATUS_ERROR, "cannot use disk image %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        return err_set(e, STATUS_ERROR,
                       "cannot use disk image %s: it is neither a file nor a block device", path);
    end = lseek(fd, 0, SEEK_END); /* of a block device, too */
    if (end < 0)
        return err_set(e, STATUS_ERROR, "cannot use disk image %s: %s", path, strerror(errno));
    if (end < (off_t)DISK_SECTOR)
        return err_set(e, STATUS_ERROR, "cannot use disk image %s: it is empty", path);
    return end;
}

struct disk *disk_raw_open(const char *path, bool writable, struct err *e)
{
    /* Without O_NONBLOCK a FIFO given by mistake would block for ever. */
    int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
    struct raw *raw;
    int64_t size;

    if (fd < 0) {
        err_set(e, STATUS_ERROR, "cannot open disk image %s%s: %s", path,
                writable ? " for writing" : "", strerror(errno));
        return NULL;
    }
    size = image_size(fd, path, e);
    if (size < 0) {
        close(fd);
        return NULL;
    }
    /* Two guests that write one image destroy it; file systems without locks go unprotected. */
    if (flock(fd, (writable ? LOCK_EX : LOCK_SH) | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        err_set(e, STATUS_ERROR, "disk image %s is in use by another dittovm: stop that one first",
                path);
        close(fd);
        return NULL;
    }
    raw = calloc(1, sizeof *raw);
    if (!raw) {
        err_set(e, STATUS_ERROR, "out of memory");
        close(fd);
        return NULL;
    }
    raw->fd = fd;
    raw->disk = (struct disk){
        .ops = &raw_ops,
        .size = (uint64_t)size / DISK_SECTOR * DISK_SECTOR,
        .read_only = !writable,
        .hidden = (unsigned)((uint64_t)size % DISK_SECTOR),
    };
    return &raw->disk;
}

void disk_raw_stays(struct disk *disk)
{
    assert(disk->ops == &raw_ops);
    ((struct raw *)disk)->stays_raw = true;
}
