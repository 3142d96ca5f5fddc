#ifndef BOOT_DISKIMAGE_CAGE_H
#define BOOT_DISKIMAGE_CAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "boot/diskimage/cage_filter.h"
#include "devices/disk/disk.h"

/*
 * A program of somebody else's that reads a disk, which is hostile input for it, in a cage. It has
 * the disk as the file CAGE_DISK_NAME, whatever format the image is of, and standard output.
 *
 * The kernel lets it make only the system calls that reading takes (seccomp). What it opens and
 * what it reads of the disk is asked of a process of ours, its keeper. From its first read of the
 * disk on it can open nothing any more, nor execute anything: what an image might make of it learns
 * of the host which files there are, and changes nothing. It is nobody where dittovm is root's, is
 * bounded in memory and time, and ends with us.
 *
 * Needs Linux 5.9, for SECCOMP_IOCTL_NOTIF_ADDFD.
 */

/*
 * Run argv (argv[0]: a path) and append what it writes to *out. Returns its exit status, 0 to 99.
 * -1 with *e: it cannot be run so here. CAGE_STOPPED: it ended by a signal, wrote more than `limit`
 * bytes, or ran until `deadline` (host_now_ns()).
 */
#define CAGE_STOPPED 100
int cage_run(struct disk *disk, char *const argv[], uint64_t deadline, size_t limit,
             struct bytes *out, struct err *e);

#endif
