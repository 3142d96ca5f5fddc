#ifndef BOOT_ROOT_TREE_IMAGE_H
#define BOOT_ROOT_TREE_IMAGE_H

#include "base/bytes.h"
#include "boot/root/tree.h"

/*
 * Make an ext4 image of a tree (without a journal), in a new file that is as large as the disk but
 * holds next to nothing: the places of files' contents are left out. *table becomes what
 * disk_tree.h says; `directory` is the tree's path, absolute. *left_empty: how many files are too
 * large to be in it, and so have no contents in the guest. The caller frees *table.
 */
int tree_image_make(struct tree *tree, const char *directory, const char *image,
                    struct bytes *table, uint32_t *left_empty, struct err *e);

#endif
