#include "boot/diskimage/diskimage_ext.h"

#include <ext2fs/ext2fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/disk/disk.h"

#define NAMES_MAX 65536u /* looked at in one directory, with those that were deleted */

struct ext_fs {
    ext2_filsys fs;
    struct disk *disk;
    uint64_t offset; /* of the file system, in bytes */
    uint32_t *reads_left;
};

static bool may_read(const struct ext_fs *fs)
{
    return *fs->reads_left && (*fs->reads_left)--;
}

/* ---- libext2fs's way to the disk: for reading only ---- */

static errcode_t read_blocks(io_channel channel, unsigned long long block, int count, void *data)
{
    const struct ext_fs *fs = channel->private_data;
    /* A negative count is one of bytes. */
    const uint64_t len =
        count < 0 ? (uint64_t) - (int64_t)count : (uint64_t)count * (uint64_t)channel->block_size;
    const uint64_t blocks = (fs->disk->size - fs->offset) / (uint64_t)channel->block_size;

    return may_read(fs) && block <= blocks &&
                   disk_read(fs->disk, fs->offset + block * (uint64_t)channel->block_size, data,
                             len) == 0
               ? 0
               : EXT2_ET_SHORT_READ;
}

static errcode_t read_some_blocks(io_channel channel, unsigned long block, int count, void *data)
{
    return read_blocks(channel, block, count, data);
}

static errcode_t set_block_size(io_channel channel, int size)
{
    channel->block_size = size;
    return 0;
}

static errcode_t close_channel(io_channel channel)
{
    if (--channel->refcount > 0)
        return 0;
    ext2fs_free_mem(&channel->name);
    ext2fs_free_mem(&channel);
    return 0;
}

static errcode_t write_blocks(io_channel channel, unsigned long block, int count, const void *data)
{
    (void)channel;
    (void)block;
    (void)count;
    (void)data;
    return EXT2_ET_RO_FILSYS;
}

static errcode_t flush(io_channel channel)
{
    (void)channel;
    return 0;
}

static errcode_t open_channel(const char *name, int flags, io_channel *channel);

static struct struct_io_manager manager = {
    .magic = EXT2_ET_MAGIC_IO_MANAGER,
    .name = "a disk",
    .open = open_channel,
    .close = close_channel,
    .set_blksize = set_block_size,
    .read_blk = read_some_blocks,
    .read_blk64 = read_blocks,
    .write_blk = write_blocks,
    .flush = flush,
};

/* The library passes on a name, and nothing else: it is where our struct is. */
static errcode_t open_channel(const char *name, int flags, io_channel *channel)
{
    void *fs = NULL;
    io_channel c = NULL;

    (void)flags;
    if (sscanf(name, "%p", &fs) != 1 || ext2fs_get_memzero(sizeof *c, &c) != 0)
        return EXT2_ET_NO_MEMORY;
    c->magic = EXT2_ET_MAGIC_IO_CHANNEL;
    c->manager = &manager;
    c->block_size = 1024;
    c->refcount = 1;
    c->private_data = fs;
    if (ext2fs_get_mem(strlen(name) + 1, &c->name) != 0) {
        ext2fs_free_mem(&c);
        return EXT2_ET_NO_MEMORY;
    }
    strcpy(c->name, name);
    *channel = c;
    return 0;
}

/*
 * An inode that libext2fs is about to follow. The library believes the size of a symbolic link, and
 * copies all data that is within an inode, whatever the size says and the file system has.
 */
static errcode_t read_inode(ext2_filsys fs, ext2_ino_t number, struct ext2_inode *inode)
{
    if (!may_read(fs->priv_data)) /* it may be in the library's cache */
        return EXT2_ET_SHORT_READ;
    fs->read_inode = NULL;
    const errcode_t rc = ext2fs_read_inode(fs, number, inode);
    fs->read_inode = read_inode;
    if (rc == 0 && (inode->i_flags & EXT4_INLINE_DATA_FL ||
                    (LINUX_S_ISLNK(inode->i_mode) && EXT2_I_SIZE(inode) >= fs->blocksize)))
        return EXT2_ET_INODE_CORRUPTED;
    return rc;
}

static bool find(const struct ext_fs *fs, const char *path, ext2_ino_t *inode)
{
    return ext2fs_namei_follow(fs->fs, EXT2_ROOT_INO, EXT2_ROOT_INO, path, inode) == 0;
}

static bool ext_exists(void *fs, const char *path)
{
    ext2_ino_t inode;

    return find(fs, path, &inode);
}

static bool is_regular(const struct ext_fs *fs, ext2_ino_t number)
{
    struct ext2_inode inode;

    return ext2fs_read_inode(fs->fs, number, &inode) == 0 && LINUX_S_ISREG(inode.i_mode);
}

static int ext_read(void *opaque, const char *path, size_t limit, struct bytes *out)
{
    const struct ext_fs *const fs = opaque;
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

static void ext_list(void *opaque, const char *path, void (*fn)(void *context, const char *name),
                     void *context)
{
    const struct ext_fs *const fs = opaque;
    struct listing listing = {.fn = fn, .context = context};
    ext2_ino_t inode;

    if (find(fs, path, &inode))
        ext2fs_dir_iterate(fs->fs, inode, DIRENT_FLAG_INCLUDE_EMPTY, NULL, list_one, &listing);
}

static void ext_close(void *opaque)
{
    struct ext_fs *const fs = opaque;

    ext2fs_free(fs->fs);
    free(fs);
}

static const struct volume_ops ext_ops = {
    .exists = ext_exists,
    .read = ext_read,
    .list = ext_list,
    .close = ext_close,
};

static void put_uuid(const uint8_t u[16], char uuid[37])
{
    size_t at = 0;

    for (unsigned i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            uuid[at++] = '-';
        at += (size_t)snprintf(uuid + at, 37 - at, "%02x", u[i]);
    }
}

bool ext_volume_open(struct disk *disk, const struct disk_partition *part, uint32_t *reads_left,
                     struct volume *out)
{
    struct ext_fs *const fs = part->offset <= disk->size ? calloc(1, sizeof(*fs)) : NULL;
    char name[32];

    if (!fs)
        return false;
    *fs = (struct ext_fs){.disk = disk, .offset = part->offset, .reads_left = reads_left};
    snprintf(name, sizeof(name), "%p", (void *)fs);
    if (ext2fs_open2(name, NULL, EXT2_FLAG_64BITS, 0, 0, &manager, &fs->fs) != 0) {
        free(fs);
        return false;
    }
    fs->fs->priv_data = fs;
    fs->fs->read_inode = read_inode;
    *out = (struct volume){.ops = &ext_ops, .fs = fs};
    snprintf(out->device, sizeof(out->device), "%s", part->device);
    put_uuid(fs->fs->super->s_uuid, out->uuid);
    return true;
}
