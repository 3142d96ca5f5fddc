#ifndef DEVICES_DISK_DISK_TREE_H
#define DEVICES_DISK_DISK_TREE_H

#include "devices/disk/disk.h"

/*
 * A disk with a file system in which the files are those of a directory of the host's. An image
 * holds all but their contents; a table says where on the disk these are to be found, and they are
 * read from the files when the guest reads them there. Who makes the two: boot/root/tree_image.h.
 *
 * A file that has become shorter reads as zeroes behind its end. One that is gone or may not be
 * read is an error of the disk's, and said once on stderr.
 */

/* Both are in one directory, with these names. */
#define DISK_TREE_IMAGE "image"
#define DISK_TREE_TABLE "table"
/* The name of this format: not one that a user can ask for. */
#define DISK_TREE_FORMAT "tree"

/* The table: a head, the files by their places, then texts, each with a NUL. Only the program that
 * has written it reads it. */
#define DISK_TREE_BLOCK 4096u
struct disk_tree_head {
    uint64_t count;     /* of files */
    uint64_t texts_len; /* the first is the directory's path, which files are relative to */
};
struct disk_tree_file {
    uint64_t offset; /* on the disk, a multiple of DISK_TREE_BLOCK */
    uint64_t size;   /* bytes; the rest of the last block is zero */
    uint64_t path;   /* offset of its text */
};

/* NULL with *e. `directory` has the two; all that it needs is open afterwards. */
struct disk *disk_tree_open(const char *directory, struct err *e);

#endif
