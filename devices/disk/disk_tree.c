#include "devices/disk/disk_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/open_beneath.h"
#include "base/text.h"

#define TABLE_MAX  (8ull << 30)
#define OPEN_FILES 64u /* kept open, so that one that is read in pieces is opened once */
#define SAID_MAX   3u  /* files that cannot be read, and are named */

struct tree_disk {
    struct disk disk;
    int image, root; /* root: the directory */
    uint8_t *table;
    const struct disk_tree_file *file;
    uint64_t count;
    const char *texts;
    struct {
        uint64_t file; /* its index, plus 1; 0: nothing is open here */
        int fd;
    } open[OPEN_FILES];
    unsigned said;
    uint64_t said_last; /* the index of the file that was named last, plus 1 */
};

static int open_file(struct tree_disk *t, uint64_t index)
{
    const char *path = t->texts + t->file[index].path;
    struct stat st;
    const int fd = open_beneath(t->root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    if (t->said_last != index + 1 && t->said++ < SAID_MAX)
        text_print(stderr, "dittovm: %s/%s, which the guest reads: %s\n", t->texts, path,
                   fd < 0 ? strerror(errno) : "no regular file any more");
    t->said_last = index + 1;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int file_of(struct tree_disk *t, uint64_t index)
{
    const unsigned slot = (unsigned)(index % OPEN_FILES);

    if (t->open[slot].file == index + 1)
        return t->open[slot].fd;
    if (t->open[slot].file)
        close(t->open[slot].fd);
    t->open[slot].fd = open_file(t, index);
    t->open[slot].file = t->open[slot].fd < 0 ? 0 : index + 1;
    return t->open[slot].fd;
}

/* Of a file, from this byte of it on; zeroes behind its end, also where that is not where it was.
 */
static int read_file(struct tree_disk *t, uint64_t index, uint64_t from, uint8_t *data, size_t len)
{
    const uint64_t size = t->file[index].size, left = from < size ? size - from : 0;
    const size_t wanted = left < len ? (size_t)left : len;
    const int fd = file_of(t, index);
    size_t done = 0;

    if (fd < 0)
        return -1;
    while (done < wanted) {
        const ssize_t n = pread(fd, data + done, wanted - done, (off_t)(from + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    memset(data + done, 0, len - done);
    return 0;
}

/* How many files begin at or before this place: the last of them is the one that may have it. */
static uint64_t files_until(const struct tree_disk *t, uint64_t offset)
{
    uint64_t low = 0, high = t->count;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (t->file[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t end_of(const struct disk_tree_file *file)
{
    return file->offset + (file->size + DISK_TREE_BLOCK - 1) / DISK_TREE_BLOCK * DISK_TREE_BLOCK;
}

static int tree_read(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    struct tree_disk *t = (struct tree_disk *)disk;
    uint8_t *to = data;

    while (len) {
        const uint64_t behind = files_until(t, offset);
        const struct disk_tree_file *file = behind ? &t->file[behind - 1] : NULL;
        const bool in_file = file && offset < end_of(file);
        const uint64_t end = in_file             ? end_of(file)
                             : behind < t->count ? t->file[behind].offset
                                                 : disk->size;
        const size_t n = end - offset < len ? (size_t)(end - offset) : len;
        if ((in_file ? read_file(t, behind - 1, offset - file->offset, to, n)
                     : disk_file_read(t->image, offset, to, n)) < 0)
            return -1;
        offset += n;
        to += n;
        len -= n;
    }
    return 0;
}

/* It is never written: an overlay lies over it. */
static int refuse_write(struct disk *disk, uint64_t offset, const void *data, size_t len)
{
    (void)disk, (void)offset, (void)data, (void)len;
    return -1;
}

static int refuse_range(struct disk *disk, uint64_t offset, uint64_t len)
{
    (void)disk, (void)offset, (void)len;
    return -1;
}

static int tree_flush(struct disk *disk)
{
    (void)disk;
    return 0;
}

static void tree_close(struct disk *disk)
{
    struct tree_disk *t = (struct tree_disk *)disk;

    for (unsigned i = 0; i < OPEN_FILES; i++)
        if (t->open[i].file)
            close(t->open[i].fd);
    if (t->image >= 0)
        close(t->image);
    if (t->root >= 0)
        close(t->root);
    free(t->table);
    free(t);
}

static const struct disk_ops tree_ops = {
    .read = tree_read,
    .write = refuse_write,
    .flush = tree_flush,
    .zero = refuse_range,
    .discard = refuse_range,
    .close = tree_close,
};

/* What is in the table, which begins and ends as it should. */
static int take_table(struct tree_disk *t, size_t len)
{
    struct disk_tree_head head;

    if (len < sizeof head)
        return -1;
    memcpy(&head, t->table, sizeof head);
    const uint64_t left = len - sizeof head;
    if (head.count > left / sizeof *t->file || !head.texts_len ||
        left - head.count * sizeof *t->file != head.texts_len || t->table[len - 1])
        return -1;
    t->count = head.count;
    t->file = (const struct disk_tree_file *)(t->table + sizeof head);
    t->texts = (const char *)(t->file + head.count);
    for (uint64_t i = 0; i < t->count; i++)
        if (t->file[i].path >= head.texts_len || (i && t->file[i].offset < end_of(&t->file[i - 1])))
            return -1;
    return 0;
}

static int open_all(struct tree_disk *t, const char *directory, struct err *e)
{
    char path[4096];
    struct stat st;
    size_t len;

    snprintf(path, sizeof path, "%s/" DISK_TREE_TABLE, directory);
    if (file_read(path, TABLE_MAX, &t->table, &len, e) < 0)
        return -1;
    snprintf(path, sizeof path, "%s/" DISK_TREE_IMAGE, directory);
    t->image = open(path, O_RDONLY | O_CLOEXEC);
    if (t->image < 0 || fstat(t->image, &st) < 0)
        return err_set(e, STATUS_ERROR, "cannot use %s: %s", path, strerror(errno));
    if (take_table(t, len) < 0)
        return err_set(e, STATUS_ERROR, "%s/" DISK_TREE_TABLE " makes no sense", directory);
    t->disk.size = (uint64_t)st.st_size / DISK_SECTOR * DISK_SECTOR;
    t->root = open(t->texts, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return t->root < 0 ? err_set(e, STATUS_ERROR, "cannot open %s: %s", t->texts, strerror(errno))
                       : 0;
}

struct disk *disk_tree_open(const char *directory, struct err *e)
{
    struct tree_disk *t = calloc(1, sizeof *t);

    if (!t) {
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    *t = (struct tree_disk){.disk = {.ops = &tree_ops, .read_only = true}, .image = -1, .root = -1};
    if (open_all(t, directory, e) == 0)
        return &t->disk;
    tree_close(&t->disk);
    return NULL;
}
