#ifndef BOOT_DISKIMAGE_DISKIMAGE_EXT_H
#define BOOT_DISKIMAGE_DISKIMAGE_EXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/*
 * Files of an ext2, ext3 or ext4 file system inside an image, read through libext2fs. Paths are
 * absolute; symbolic links are followed inside the file system. Everything read is bounded.
 */
struct ext_fs;

/* Open the file system that starts `offset` bytes into the image; NULL when there is none. */
struct ext_fs *ext_fs_open(const char *image, uint64_t offset);
void ext_fs_close(struct ext_fs *fs);

/* Its UUID as text, as in root=UUID=. */
void ext_fs_uuid(const struct ext_fs *fs, char uuid[37]);

bool ext_fs_exists(const struct ext_fs *fs, const char *path);

/* Append a regular file to *out; -1 when there is none, or it is longer than limit bytes. */
int ext_fs_read(const struct ext_fs *fs, const char *path, size_t limit, struct bytes *out);

/* Call fn with each name of a directory, in its order on the disk; none when it is no directory. */
void ext_fs_list(const struct ext_fs *fs, const char *path,
                 void (*fn)(void *context, const char *name), void *context);

#endif
