#include "boot/root/tree_attributes.h"

#include <string.h>

static void put_all(const struct bytes *attributes, struct ext2_xattr_handle *handle)
{
    struct cursor c = cursor_of(attributes->data, attributes->len);

    while (cursor_left(&c)) {
        const char *name = (const char *)c.p;
        (void)cursor_take(&c, strlen(name) + 1);
        const uint32_t len = cursor_u32(&c);
        const void *value = cursor_take(&c, len);
        if (value) /* of a kind that ext4 does not have: an error, and nothing is set */
            (void)ext2fs_xattr_set(handle, name, value, len);
    }
}

errcode_t tree_attributes_put(const struct tree *tree, ext2_filsys fs)
{
    for (uint32_t i = 0; i < tree->count; i++) {
        const struct tree_node *node = &tree->node[i];
        struct ext2_xattr_handle *handle;
        if (!node->attributes.len)
            continue;
        errcode_t error = ext2fs_xattrs_open(fs, node->ino, &handle);
        if (error)
            return error;
        put_all(&node->attributes, handle);
        error = ext2fs_xattrs_write(handle);
        ext2fs_xattrs_close(&handle);
        if (error && error != EXT2_ET_EA_NO_SPACE)
            return error;
    }
    return 0;
}
