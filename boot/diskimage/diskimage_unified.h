#ifndef BOOT_DISKIMAGE_DISKIMAGE_UNIFIED_H
#define BOOT_DISKIMAGE_DISKIMAGE_UNIFIED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "boot/diskimage/diskimage_boot.h"

/*
 * A unified kernel image (https://uapi-group.org/specifications/specs/unified_kernel_image/): a
 * program for UEFI that has a kernel, an initrd and a command line as sections. The file is hostile
 * input. Copies of the three go to *out, the rest of which stays as it is; false, and all of it
 * does, when there is no kernel or the command line is too long.
 */
bool unified_parse(const uint8_t *file, size_t len, struct disk_boot *out);

#endif
