#ifndef BOOT_ROOT_TREE_ATTRIBUTES_H
#define BOOT_ROOT_TREE_ATTRIBUTES_H

#include <ext2fs/ext2fs.h>

#include "boot/root/tree.h"

/* Give the inodes of a file system, which have their numbers and are written, the extended
 * attributes of the tree. Its block bitmap says what is free. An attribute that ext4 cannot hold is
 * left out. */
errcode_t tree_attributes_put(const struct tree *tree, ext2_filsys fs);

#endif
