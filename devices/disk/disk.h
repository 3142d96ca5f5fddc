#ifndef DEVICES_DISK_DISK_H
#define DEVICES_DISK_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * What is behind a disk of the guest: an array of `size` bytes, a multiple of 512. This is the
 * only place where devices call the host; the bytes read reach the guest through DMA, where the
 * recorder sees them.
 */
#define DISK_SECTOR 512u

struct disk;

/* Ranges are checked before these are called. All return 0, or -1 when the host failed. */
struct disk_ops {
    int (*read)(struct disk *disk, uint64_t offset, void *data, size_t len);
    int (*write)(struct disk *disk, uint64_t offset, const void *data, size_t len);
    /* What was written so far survives the host's crash. */
    int (*flush)(struct disk *disk);
    /* Fill with zeroes; the storage stays taken. */
    int (*zero)(struct disk *disk, uint64_t offset, uint64_t len);
    /* Give the storage back where that is possible; what is read there then is anything. */
    int (*discard)(struct disk *disk, uint64_t offset, uint64_t len);
    void (*close)(struct disk *disk);
    /* Optional: read, if that takes no waiting for the host's storage. False: it would, or fails;
     * some of `data` may have been written. */
    bool (*read_now)(struct disk *disk, uint64_t offset, void *data, size_t len);
    /* Optional: whether a write there takes no waiting; with a len of 0, a flush. */
    bool (*writes_now)(struct disk *disk, uint64_t offset, uint64_t len);
};

struct disk {
    const struct disk_ops *ops;
    uint64_t size; /* bytes */
    bool read_only;
    unsigned
        hidden; /* bytes of the image behind its last whole sector: the guest cannot see them */
};

/*
 * These fail with -1 when the range is not wholly on the disk, when a read-only disk is to be
 * changed, and when the host cannot do it. Offsets and lengths are in bytes.
 */
int disk_read(struct disk *disk, uint64_t offset, void *data, size_t len);
int disk_write(struct disk *disk, uint64_t offset, const void *data, size_t len);
int disk_flush(struct disk *disk);
int disk_zero(struct disk *disk, uint64_t offset, uint64_t len);
int disk_discard(struct disk *disk, uint64_t offset, uint64_t len);
/* For who must not wait: read_now() and writes_now() of struct disk_ops. False, too, where the
 * range is not wholly on the disk. */
bool disk_read_now(struct disk *disk, uint64_t offset, void *data, size_t len);
bool disk_writes_now(struct disk *disk, uint64_t offset, uint64_t len);
/* Frees the disk; NULL is allowed. */
void disk_close(struct disk *disk);

/*
 * An image file or block device as it is. With `writable` the guest's writes change it, and no
 * other dittovm may have it open meanwhile; otherwise it is opened for reading only. NULL with *e
 * filled when that fails. Free with disk_close().
 */
struct disk *disk_raw_open(const char *path, bool writable, struct err *e);
/* Of such a disk, whose format was not said but found: a write by which it would begin like another
 * format fails from here on. The guest would choose which files of this host are opened the next
 * time, as its backing files. */
void disk_raw_stays(struct disk *disk);

/*
 * A writable disk over `base`, which is never written: changed 4 KiB clusters are kept in memory
 * of this process and are gone with it. Costs two bits for each cluster besides. Takes `base` over,
 * also when it fails (NULL).
 */
struct disk *disk_overlay_new(struct disk *base, struct err *e);
#define DISK_CLUSTER 4096u
/* The next changed cluster of an overlay at or after *offset (a multiple of DISK_CLUSTER). False
 * when there is none, or the disk is no overlay. */
bool disk_overlay_changed(const struct disk *disk, uint64_t *offset);
/* The same for those that were written since this returned them; they no longer count then. */
bool disk_overlay_fresh(struct disk *disk, uint64_t *offset);
bool disk_is_overlay(const struct disk *disk);

/* For backends: pread and pwrite of everything, or -1. */
int disk_file_read(int fd, uint64_t offset, void *data, size_t len);
int disk_file_write(int fd, uint64_t offset, const void *data, size_t len);

#endif
