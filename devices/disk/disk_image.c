#include "devices/disk/disk_image.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/program.h"
#include "base/whole_file.h"
#include "devices/disk/disk_format.h"
#include "devices/disk/qemu_img.h"

/* What is read at once; and what is left out where it is zero, a cluster of a qcow2 image. */
#define BUFFER_BYTES (1u << 20)
#define PIECE_BYTES  65536u

int disk_image_check(const char *path, const struct disk_image_making *how, struct err *e)
{
    char program[4096];

    if (whole_file_check(path, how->overwrite, e) < 0)
        return -1;
    if (!strcmp(how->format, "raw"))
        return 0;
    return program_find("qemu-img", program, sizeof program) &&
                   program_find("qemu-nbd", program, sizeof program)
               ? 0
               : err_set(e, STATUS_ERROR,
                         "a %s image needs qemu-img and qemu-nbd; run 'apt-get install "
                         "qemu-utils', or give --format raw",
                         how->format);
}

static bool is_zero(const uint8_t *data, size_t len)
{
    return !data[0] && !memcmp(data, data + 1, len - 1);
}

/* The pieces of what lies at `offset` that are not all zero, those beside each other at once. */
static int write_pieces(struct disk *to, uint64_t offset, const uint8_t *data, size_t len,
                        uint64_t *bytes)
{
    size_t from = 0, at = 0;

    while (at < len) {
        const size_t piece = len - at < PIECE_BYTES ? len - at : PIECE_BYTES;
        const bool skip = is_zero(data + at, piece);
        if (skip && at > from && disk_write(to, offset + from, data + from, at - from) < 0)
            return -1;
        *bytes += skip ? 0 : piece;
        at += piece;
        if (skip)
            from = at;
    }
    return at > from ? disk_write(to, offset + from, data + from, at - from) : 0;
}

static int copy(struct disk *disk, struct disk *to, const char *path,
                const struct disk_image_making *how, uint64_t *bytes, struct err *e)
{
    uint8_t *data = malloc(BUFFER_BYTES);
    int rc = data ? 0 : err_set(e, STATUS_ERROR, "out of memory");

    *bytes = 0;
    for (uint64_t at = 0; rc == 0 && at < disk->size; at += BUFFER_BYTES) {
        const uint64_t left = disk->size - at;
        const size_t len = left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
        errno = 0;
        if (how->stop && *how->stop)
            rc = err_set(e, STATUS_ERROR, "interrupted before %s was written", path);
        else if (disk_read(disk, at, data, len) < 0)
            rc = err_set(e, STATUS_ERROR, "cannot read the disk at byte %llu",
                         (unsigned long long)at);
        else if (write_pieces(to, at, data, len, bytes) < 0)
            rc = err_set(e, STATUS_ERROR, "cannot write to %s: %s", path,
                         errno ? strerror(errno) : "its disk may be full");
        else if (how->progress)
            how->progress(how->opaque, at + len);
    }
    free(data);
    if (rc == 0 && disk_flush(to) < 0)
        rc = err_set(e, STATUS_ERROR, "cannot write to %s", path);
    return rc;
}

/* An image of this format and size, all zeroes, instead of the empty file. */
static int make_empty(const char *path, const char *format, uint64_t size, struct err *e)
{
    char file[QEMU_FILE_BYTES], text[32], what[256];
    char *const args[] = {"qemu-img", "create", "-q", "-f", (char *)(uintptr_t)format,
                          "--",       file,     text, NULL};

    if (!strcmp(format, "raw"))
        return truncate(path, (off_t)size) == 0
                   ? 0
                   : err_set(e, STATUS_ERROR, "cannot make %s: %s", path, strerror(errno));
    qemu_file_name(path, file);
    snprintf(text, sizeof text, "%llu", (unsigned long long)size);
    snprintf(what, sizeof what, "make a %s image", format);
    return qemu_img_run(args, -1, what, e);
}

static int fill(struct disk *disk, const char *path, const char *named,
                const struct disk_image_making *how, uint64_t *bytes, struct err *e)
{
    if (make_empty(path, how->format, disk->size, e) < 0)
        return -1;
    struct disk *to = disk_image_open(path, how->format, true, e);
    if (!to)
        return -1;
    const int rc = to->size == disk->size ? copy(disk, to, named, how, bytes, e)
                                          : err_set(e, STATUS_ERROR, "%s has another size", path);
    disk_close(to); /* and its process has ended */
    return rc;
}

/* A raw image is taken for what it begins like, and so the guest would choose which files of this
 * host are opened with it, as its backing files. */
static int check_head(struct disk *disk, const char *path, const char *format, struct err *e)
{
    char head[DISK_FORMAT_BYTES];

    if (strcmp(format, "raw") != 0)
        return 0;
    if (disk_read(disk, 0, head, sizeof head) < 0)
        return err_set(e, STATUS_ERROR, "cannot read the disk at byte 0");
    const char *found = disk_format_of(head, sizeof head);
    return !strcmp(found, "raw")
               ? 0
               : err_set(e, STATUS_ERROR,
                         "%s would be taken for a %s image, as the guest has written it so; give "
                         "--format qcow2",
                         path, found);
}

int disk_image_make(struct disk *disk, const char *path, const struct disk_image_making *how,
                    uint64_t *bytes, struct err *e)
{
    struct whole_file file;

    if (check_head(disk, path, how->format, e) < 0 || whole_file_begin(&file, path, e) < 0)
        return -1;
    const int rc = fill(disk, file.part, path, how, bytes, e);
    return whole_file_end(&file, rc == 0, e);
}
