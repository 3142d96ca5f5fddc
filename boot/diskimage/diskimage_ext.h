#ifndef BOOT_DISKIMAGE_DISKIMAGE_EXT_H
#define BOOT_DISKIMAGE_DISKIMAGE_EXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "devices/disk/disk.h"

/*
 * Files of an ext2, ext3 or ext4 file system inside an image, read through libext2fs. Paths are
 * absolute; symbolic links are followed inside the file system. Everything read is bounded. Files
 * within an inode (inline_data) are not read: libext2fs trusts their sizes.
 */
struct ext_fs;

/* Blocks and inodes that are read of an image, for all that is looked for: kernel and initrds have
 * far fewer. A few blocks can make a file or a directory of billions, so sizes and numbers of names
 * do not bound what reading takes. */
#define EXT_READS_MAX 2000000u

/* Open the file system that starts `offset` bytes into the disk, which must outlive it; NULL when
 * there is none. Each read is taken from *reads_left, which must outlive it, too, and may be shared
 * with others. */
struct ext_fs *ext_fs_open(struct disk *disk, uint64_t offset, uint32_t *reads_left);
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
