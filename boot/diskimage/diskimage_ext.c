#include "boot/diskimage/diskimage_ext.h"

#include <ext2fs/ext2fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 65536u /* looked at in one directory, with those that were deleted */

struct ext_fs {
    ext2_filsys fs;
    struct struct_io_manager io;
    uint32_t *reads_left;
};

static bool may_read(const ext2_filsys fs)
{
    struct ext_fs *ours = fs->priv_data;

    return *ours->reads_left && (*ours->reads_left)--;
}

static errcode_t read_blocks(io_channel channel, unsigned long long block, int count, void *data)
{
    return may_read(channel->app_data) ? unix_io_manager->read_blk64(channel, block, count, data)
                                       : EXT2_ET_SHORT_READ;
}

static errcode_t read_some_blocks(io_channel channel, unsigned long block, int count, void *data)
{
    return read_blocks(channel, block, count, data);
}

/*
 * An inode that libext2fs is about to follow. The library believes the size of a symbolic link, and
 * copies all data that is within an inode, whatever the size says and the file system has.
 */
static errcode_t read_inode(ext2_filsys fs, ext2_ino_t number, struct ext2_inode *inode)
{
    if (!may_read(fs)) /* it may be in the library's cache */
        return EXT2_ET_SHORT_READ;
    fs->read_inode = NULL;
    const errcode_t rc = ext2fs_read_inode(fs, number, inode);
    fs->read_inode = read_inode;
    if (rc == 0 && (inode->i_flags & EXT4_INLINE_DATA_FL ||
                    (LINUX_S_ISLNK(inode->i_mode) && EXT2_I_SIZE(inode) >= fs->blocksize)))
        return EXT2_ET_INODE_CORRUPTED;
    return rc;
}

/* From now on, what is read counts, and is looked at. */
static void take_over(struct ext_fs *fs)
{
    fs->io = *fs->fs->io->manager;
    fs->io.read_blk = read_some_blocks;
    fs->io.read_blk64 = read_blocks;
    fs->fs->priv_data = fs;
    fs->fs->io->app_data = fs->fs;
    fs->fs->io->manager = &fs->io;
    fs->fs->read_inode = read_inode;
}

struct ext_fs *ext_fs_open(const char *image, uint64_t offset, uint32_t *reads_left)
{
    struct ext_fs *fs = calloc(1, sizeof(*fs));
    char options[40];

    if (!fs)
        return NULL;
    /* Always given, or libext2fs looks for options behind a '?' in the name. */
    snprintf(options, sizeof(options), "offset=%llu", (unsigned long long)offset);
    if (ext2fs_open2(image, options, EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &fs->fs) != 0) {
        free(fs);
        return NULL;
    }
    fs->reads_left = reads_left;
    take_over(fs);
    return fs;
}

void ext_fs_close(struct ext_fs *fs)
{
    if (!fs)
        return;
    ext2fs_free(fs->fs);
    free(fs);
}

void ext_fs_uuid(const struct ext_fs *fs, char uuid[37])
{
    const uint8_t *u = fs->fs->super->s_uuid;
    size_t at = 0;

    for (unsigned i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            uuid[at++] = '-';
        at += (size_t)snprintf(uuid + at, 37 - at, "%02x", u[i]);
    }
}

static bool find(const struct ext_fs *fs, const char *path, ext2_ino_t *inode)
{
    return ext2fs_namei_follow(fs->fs, EXT2_ROOT_INO, EXT2_ROOT_INO, path, inode) == 0;
}

bool ext_fs_exists(const struct ext_fs *fs, const char *path)
{
    ext2_ino_t inode;

    return find(fs, path, &inode);
}

static bool is_regular(const struct ext_fs *fs, ext2_ino_t number)
{
    struct ext2_inode inode;

    return ext2fs_read_inode(fs->fs, number, &inode) == 0 && LINUX_S_ISREG(inode.i_mode);
}

int ext_fs_read(const struct ext_fs *fs, const char *path, size_t limit, struct bytes *out)
{
    ext2_ino_t inode;
    ext2_file_t file;
    __u64 size;
    size_t done = 0;

    if (!find(fs, path, &inode) || !is_regular(fs, inode) ||
        ext2fs_file_open(fs->fs, inode, 0, &file) != 0)
        return -1;
    if (ext2fs_file_get_lsize(file, &size) != 0 || size > limit) {
        ext2fs_file_close(file);
        return -1;
    }
    bytes_reserve(out, size);
    while (done < size) {
        unsigned want = size - done < (1u << 30) ? (unsigned)(size - done) : 1u << 30;
        unsigned got = 0;

        if (ext2fs_file_read(file, out->data + out->len + done, want, &got) != 0 || got == 0)
            break;
        done += got;
    }
    ext2fs_file_close(file);
    if (done < size)
        return -1;
    out->len += done;
    return 0;
}

struct listing {
    void (*fn)(void *context, const char *name);
    void *context;
    unsigned names;
};

static int list_one(struct ext2_dir_entry *entry, int offset, int block_size, char *block,
                    void *private)
{
    struct listing *listing = private;
    char name[EXT2_NAME_LEN + 1];
    int len = ext2fs_dirent_name_len(entry);

    (void)offset;
    (void)block_size;
    (void)block;
    if (++listing->names > NAMES_MAX)
        return DIRENT_ABORT;
    if (!entry->inode)
        return 0;
    memcpy(name, entry->name, (size_t)len);
    name[len] = 0;
    /* Neither is possible in a sound file system; both would lead a path astray. */
    if (strlen(name) == (size_t)len && !strchr(name, '/'))
        listing->fn(listing->context, name);
    return 0;
}

void ext_fs_list(const struct ext_fs *fs, const char *path,
                 void (*fn)(void *context, const char *name), void *context)
{
    struct listing listing = {.fn = fn, .context = context};
    ext2_ino_t inode;

    if (find(fs, path, &inode))
        ext2fs_dir_iterate(fs->fs, inode, DIRENT_FLAG_INCLUDE_EMPTY, NULL, list_one, &listing);
}
