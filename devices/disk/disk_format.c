#include "devices/disk/disk_format.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How files begin: QEMU's docs/interop/qcow2, VMware's "Virtual Disk Format", VirtualBox's VDI
 * core, [MS-VHDX] 2.2.1; a VHD of changing size has a copy of its footer in front. */
static const struct {
    const char *format;
    unsigned at, len;
    const char *bytes;
} signatures[] = {
    {"qcow2", 0, 4, "QFI\xfb"},
    {"vmdk", 0, 4, "KDMV"},
    {"vmdk", 0, 21, "# Disk DescriptorFile"},
    {"vdi", 64, 4, "\x7f\x10\xda\xbe"},
    {"vhdx", 0, 8, "vhdxfile"},
    {"vpc", 0, 8, "conectix"},
};
#define HEAD_BYTES 128

/* Of the first bytes of an image. */
static const char *format_of(const char *head, ssize_t got)
{
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
        if (got >= (ssize_t)(signatures[i].at + signatures[i].len) &&
            !memcmp(head + signatures[i].at, signatures[i].bytes, signatures[i].len))
            return signatures[i].format;
    return "raw";
}

bool disk_format_known(const char *format)
{
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
        if (!strcmp(signatures[i].format, format))
            return true;
    return !strcmp(format, "raw");
}

const char *disk_image_format(const char *path)
{
    char head[HEAD_BYTES] = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t got = fd < 0 ? -1 : pread(fd, head, sizeof head, 0);

    if (fd >= 0)
        close(fd);
    return format_of(head, got);
}

/* ---- a raw image that stays one ---- */

struct guarded {
    struct disk disk;
    struct disk *raw;
};

static struct disk *raw_of(struct disk *disk)
{
    return ((struct guarded *)disk)->raw;
}

static int guarded_read(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    return disk_read(raw_of(disk), offset, data, len);
}

/* A guest that wrote another format's beginning would choose which files of this host are opened
 * the next time, as its backing files. */
static int guarded_write(struct disk *disk, uint64_t offset, const void *data, size_t len)
{
    char head[HEAD_BYTES];

    if (offset < sizeof head) {
        const size_t n = len < sizeof head - offset ? len : (size_t)(sizeof head - offset);
        if (disk_read(raw_of(disk), 0, head, sizeof head) < 0)
            return -1;
        memcpy(head + offset, data, n);
        if (strcmp(format_of(head, sizeof head), "raw") != 0)
            return -1;
    }
    return disk_write(raw_of(disk), offset, data, len);
}

static int guarded_flush(struct disk *disk)
{
    return disk_flush(raw_of(disk));
}

static int guarded_zero(struct disk *disk, uint64_t offset, uint64_t len)
{
    return disk_zero(raw_of(disk), offset, len);
}

static int guarded_discard(struct disk *disk, uint64_t offset, uint64_t len)
{
    return disk_discard(raw_of(disk), offset, len);
}

static void guarded_close(struct disk *disk)
{
    disk_close(raw_of(disk));
    free(disk);
}

static const struct disk_ops guarded_ops = {
    .read = guarded_read,
    .write = guarded_write,
    .flush = guarded_flush,
    .zero = guarded_zero,
    .discard = guarded_discard,
    .close = guarded_close,
};

static struct disk *guard(struct disk *raw, struct err *e)
{
    struct guarded *g = raw ? calloc(1, sizeof *g) : NULL;

    if (raw && !g) {
        disk_close(raw);
        err_set(e, STATUS_ERROR, "out of memory");
    }
    if (!g)
        return NULL;
    g->disk = *raw;
    g->disk.ops = &guarded_ops;
    g->raw = raw;
    return &g->disk;
}

struct disk *disk_image_open(const char *path, const char *format, bool writable, struct err *e)
{
    const char *found = format[0] ? format : disk_image_format(path);

    if (strcmp(found, "raw") != 0)
        return disk_nbd_open(path, found, writable, e);
    struct disk *raw = disk_raw_open(path, writable, e);
    return writable && !format[0] ? guard(raw, e) : raw;
}
