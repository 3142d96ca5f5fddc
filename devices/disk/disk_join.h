#ifndef DEVICES_DISK_DISK_JOIN_H
#define DEVICES_DISK_DISK_JOIN_H

#include "base/limits.h"
#include "devices/disk/disk.h"

/*
 * Several disks as one, one behind the other, and pieces of it as disks again: so one overlay holds
 * what a machine has written to any of its disks, and a recording need not know how many there are.
 * Each begins at a multiple of DISK_CLUSTER; what lies between them reads as zeroes.
 */

/* `count` disks, 1 to MAX_DISKS, which it takes over, also when it fails (NULL, out of memory),
 * each taken to be of this size, which is its own or larger: then zeroes follow. What is written to
 * those is lost, unless an overlay takes it. Alone, a disk of its own size is the same as before.
 * Writable unless all are read-only. */
struct disk *disk_join(struct disk *const *disks, const uint64_t *sizes, unsigned count);
/* Where disk number `index` of those begins, whose sizes these are. */
uint64_t disk_join_offset(const uint64_t *sizes, unsigned index);

/* `size` bytes of a disk, from `offset` on; `whole` stays the caller's and must outlive it. A flush
 * is one of the whole. NULL: out of memory. */
struct disk *disk_slice(struct disk *whole, uint64_t offset, uint64_t size, bool read_only);

#endif
