#ifndef DEVICES_DISK_DISK_FORMAT_H
#define DEVICES_DISK_DISK_FORMAT_H

#include "devices/disk/disk.h"

/* A disk image of this format, or with "" of whatever format it is in, as disk_raw_open() has it.
 * Of a raw one that was not said to be raw, a guest cannot make one that begins like another
 * format. */
struct disk *disk_image_open(const char *path, const char *format, bool writable, struct err *e);
bool disk_format_known(const char *format);

/* The name that qemu-nbd has for a file's format, by how the file begins: "raw" where it is none
 * that is known, or cannot be read. */
const char *disk_image_format(const char *path);

/* The same of an image's first bytes, of which so many tell all. */
#define DISK_FORMAT_BYTES 128u
const char *disk_format_of(const char *head, size_t len);

/* One of those but raw. */
struct disk *disk_nbd_open(const char *path, const char *format, bool writable, struct err *e);

#endif
