#ifndef DEVICES_DISK_DISK_SET_H
#define DEVICES_DISK_DISK_SET_H

#include "base/limits.h"
#include "devices/disk/disk.h"

/* The disks of a machine. */
#define DISK_SIZE_MAX     (1ull << 44) /* 16 TiB: of one that is made larger than its image */
#define DISK_SERIAL_BYTES 20u

/* One of them, as it is asked for, or was recorded. */
struct disk_wish {
    char path[4096];
    bool read_only;
    char format[8]; /* "": by how it begins */
    /* Bytes, if that is more than the image has: zeroes follow. Not written through. */
    uint64_t size;
    char serial[DISK_SERIAL_BYTES + 1]; /* "": by its number */
};

struct disk_set {
    struct disk *whole; /* all of them, one behind the other (disk_join.h); NULL: there is none */
    struct disk *disk[MAX_DISKS];
    char serial[MAX_DISKS][DISK_SERIAL_BYTES + 1];
    unsigned count;
};

/*
 * Open `count` images, at most MAX_DISKS. What is written goes to a copy-on-write overlay over all
 * of them, or, with write_through, to those that are not read-only. Free with disk_set_close(),
 * which is fine with a set of zeroes.
 */
int disk_set_open(struct disk_set *set, const struct disk_wish *wishes, unsigned count,
                  bool write_through, struct err *e);
void disk_set_close(struct disk_set *set);

#endif
