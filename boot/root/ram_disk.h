#ifndef BOOT_ROOT_RAM_DISK_H
#define BOOT_ROOT_RAM_DISK_H

#include <stdint.h>

#include "base/bytes.h"

/* An initial ram disk: a cpio archive as the kernel unpacks it
 * (Documentation/driver-api/early-userspace/ buffer-format.rst, "newc"). All is root's, of 1970. */

/* Append a directory or a regular file; its parents come before it. mode: with the file's type. */
void ram_disk_put(struct bytes *out, const char *path, unsigned mode, const void *data, size_t len);
/* It is whole. */
void ram_disk_end(struct bytes *out);

/* The init that runs a command (guest-tools/command/init.c), which is in this program. */
extern const uint8_t command_init[], command_init_end[];

#endif
