#include "boot/root/tree_image.h"

#include <assert.h>
#include <errno.h>
#include <ext2fs/ext2fs.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "boot/root/tree_attributes.h"
#include "devices/disk/disk_tree.h"

#define BLOCK        DISK_TREE_BLOCK
#define GROUP_BLOCKS (8u * BLOCK)
#define INODE_BYTES  256u
#define FREE_BLOCKS  (2048u << 8) /* 2 GiB, and */
#define FREE_INODES  65536u       /* ... for the guest's own files */
#define FAST_LINK    60u          /* a shorter target is in the inode */
/* ext4's extents (Documentation/filesystems/ext4/ifork.rst): of at most 32768 blocks, 4 in the
 * inode, or there the places of 4 blocks with as many as fit. */
#define EXTENT_BLOCKS 32768u
#define EXTENTS_HERE  4u
#define EXTENTS_LEAF  ((BLOCK - sizeof(struct ext3_extent_header)) / sizeof(struct ext3_extent))
#define FILE_MAX      ((uint64_t)EXTENTS_HERE * EXTENTS_LEAF * EXTENT_BLOCKS * BLOCK)
#define DIRENT_HEAD   8u

struct maker {
    struct tree *tree;
    ext2_filsys fs;
    blk64_t next; /* block: all before it are taken */
    struct bytes files, texts;
    uint64_t file_count;
    uint32_t left_empty;
    bool too_large; /* for one file system */
};

static uint64_t blocks_of(uint64_t bytes)
{
    return (bytes + BLOCK - 1) / BLOCK;
}

static uint64_t leaves_of(uint64_t blocks)
{
    const uint64_t extents = (blocks + EXTENT_BLOCKS - 1) / EXTENT_BLOCKS;

    return extents <= EXTENTS_HERE ? 0 : (extents + EXTENTS_LEAF - 1) / EXTENTS_LEAF;
}

/* ---- directories ---- */

static uint32_t dirent_bytes(size_t name_len)
{
    return (uint32_t)(DIRENT_HEAD + name_len + 3) & ~3u;
}

static uint8_t dirent_type(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return EXT2_FT_REG_FILE;
    case S_IFDIR:
        return EXT2_FT_DIR;
    case S_IFCHR:
        return EXT2_FT_CHRDEV;
    case S_IFBLK:
        return EXT2_FT_BLKDEV;
    case S_IFIFO:
        return EXT2_FT_FIFO;
    case S_IFSOCK:
        return EXT2_FT_SOCK;
    default:
        return EXT2_FT_SYMLINK;
    }
}

/* The blocks of a directory that is being filled. */
struct dirents {
    struct bytes data;
    size_t last; /* where the last entry begins, which goes on to the end of its block */
};

static void put_dirent(struct dirents *d, uint32_t ino, const char *name, uint8_t type)
{
    const size_t len = strlen(name), in_block = d->data.len % BLOCK;
    const uint32_t bytes = dirent_bytes(len);
    static const uint8_t zeroes[BLOCK];

    if (in_block && in_block + bytes > BLOCK) {
        const uint16_t rest = (uint16_t)(BLOCK - d->last % BLOCK);
        bytes_put(&d->data, zeroes, BLOCK - in_block);
        memcpy(d->data.data + d->last + 4, &rest, sizeof rest);
    }
    d->last = d->data.len;
    bytes_put_u32(&d->data, ino);
    bytes_put_u16(&d->data, (uint16_t)bytes);
    bytes_put_u8(&d->data, (uint8_t)len);
    bytes_put_u8(&d->data, type);
    bytes_put(&d->data, name, len);
    bytes_put(&d->data, zeroes, bytes - DIRENT_HEAD - len);
}

static void fill_directory(const struct tree *tree, uint32_t self, struct dirents *d)
{
    const struct tree_node *node = tree->node;
    static const uint8_t zeroes[BLOCK];

    put_dirent(d, node[self].ino, ".", EXT2_FT_DIR);
    put_dirent(d, node[node[self].parent].ino, "..", EXT2_FT_DIR);
    for (uint32_t i = node[self].first_child; i != TREE_NONE; i = node[i].next)
        put_dirent(d, node[node[i].same_as].ino, node[i].name, dirent_type(node[i].st.st_mode));
    const uint16_t rest = (uint16_t)(BLOCK - d->last % BLOCK);
    bytes_put(&d->data, zeroes, (BLOCK - d->data.len % BLOCK) % BLOCK);
    memcpy(d->data.data + d->last + 4, &rest, sizeof rest);
}

/* ---- inodes ---- */

static errcode_t write_blocks(struct maker *m, uint64_t block, const void *data, uint64_t count)
{
    return io_channel_write_blk64(m->fs->io, block, (int)count, data);
}

static void put_extents(void *at, unsigned room, uint64_t first, uint64_t block, uint64_t count)
{
    struct ext3_extent_header *head = at;
    struct ext3_extent *extent = (struct ext3_extent *)(head + 1);

    *head = (struct ext3_extent_header){.eh_magic = EXT3_EXT_MAGIC, .eh_max = (uint16_t)room};
    for (; count && head->eh_entries < room; head->eh_entries++, extent++) {
        const uint64_t len = count < EXTENT_BLOCKS ? count : EXTENT_BLOCKS;
        *extent = (struct ext3_extent){
            .ee_block = (uint32_t)first,
            .ee_len = (uint16_t)len,
            .ee_start_hi = (uint16_t)(block >> 32),
            .ee_start = (uint32_t)block,
        };
        first += len;
        block += len;
        count -= len;
    }
}

/* `count` blocks from `block` on are the contents of an inode. */
static errcode_t map_blocks(struct maker *m, struct ext2_inode_large *inode, uint64_t block,
                            uint64_t count)
{
    const uint64_t leaves = leaves_of(count), in_leaf = (uint64_t)EXTENTS_LEAF * EXTENT_BLOCKS;
    struct ext3_extent_header *head = (struct ext3_extent_header *)inode->i_block;
    struct ext3_extent_idx *index = (struct ext3_extent_idx *)(head + 1);
    uint64_t data[BLOCK / sizeof(uint64_t)];

    inode->i_flags |= EXT4_EXTENTS_FL;
    inode->i_blocks = (uint32_t)((count + leaves) * (BLOCK / 512));
    if (!leaves) {
        put_extents(inode->i_block, EXTENTS_HERE, 0, block, count);
        return 0;
    }
    *head = (struct ext3_extent_header){.eh_magic = EXT3_EXT_MAGIC,
                                        .eh_entries = (uint16_t)leaves,
                                        .eh_max = EXTENTS_HERE,
                                        .eh_depth = 1};
    for (uint64_t i = 0; i < leaves; i++, index++) {
        const uint64_t first = i * in_leaf, left = count - first;
        *index =
            (struct ext3_extent_idx){.ei_block = (uint32_t)first, .ei_leaf = (uint32_t)m->next};
        memset(data, 0, sizeof data);
        put_extents(data, EXTENTS_LEAF, first, block + first, left < in_leaf ? left : in_leaf);
        const errcode_t error = write_blocks(m, m->next++, data, 1);
        if (error)
            return error;
    }
    return 0;
}

/* Seconds beyond 2038 have two bits more, below them are nanoseconds. */
static uint32_t extra_time(const struct timespec *t)
{
    const int64_t beyond = t->tv_sec - (int32_t)t->tv_sec;

    return (uint32_t)((beyond >> 32) & 3) | (uint32_t)t->tv_nsec << 2;
}

/* Beyond ext4's limit a directory's count is not kept (DIR_NLINK). Of another file that is the
 * most: the guest can remove names down to its count, and more of them are on the disk. */
static uint16_t links_of(const struct tree_node *node)
{
    if (node->links < EXT2_LINK_MAX)
        return (uint16_t)node->links;
    return S_ISDIR(node->st.st_mode) ? 1 : EXT2_LINK_MAX;
}

static struct ext2_inode_large inode_of(const struct tree_node *node)
{
    const struct stat *st = &node->st;

    return (struct ext2_inode_large){
        .i_mode = (uint16_t)st->st_mode,
        .i_uid = (uint16_t)st->st_uid,
        .osd2.linux2.l_i_uid_high = (uint16_t)(st->st_uid >> 16),
        .i_gid = (uint16_t)st->st_gid,
        .osd2.linux2.l_i_gid_high = (uint16_t)(st->st_gid >> 16),
        .i_links_count = links_of(node),
        .i_extra_isize = sizeof(struct ext2_inode_large) - EXT2_GOOD_OLD_INODE_SIZE,
        .i_atime = (uint32_t)st->st_atim.tv_sec,
        .i_atime_extra = extra_time(&st->st_atim),
        .i_mtime = (uint32_t)st->st_mtim.tv_sec,
        .i_mtime_extra = extra_time(&st->st_mtim),
        .i_ctime = (uint32_t)st->st_ctim.tv_sec,
        .i_ctime_extra = extra_time(&st->st_ctim),
        .i_crtime = (uint32_t)st->st_ctim.tv_sec,
        .i_crtime_extra = extra_time(&st->st_ctim),
    };
}

static void set_size(struct ext2_inode_large *inode, uint64_t size)
{
    inode->i_size = (uint32_t)size;
    inode->i_size_high = (uint32_t)(size >> 32);
}

/* Contents that are in the image. */
static errcode_t put_contents(struct maker *m, struct ext2_inode_large *inode, const void *data,
                              uint64_t size)
{
    const uint64_t block = m->next, count = blocks_of(size);

    m->next += count;
    set_size(inode, size);
    const errcode_t error = map_blocks(m, inode, block, count);
    return error ? error : write_blocks(m, block, data, count);
}

static errcode_t put_directory(struct maker *m, uint32_t self, struct ext2_inode_large *inode)
{
    struct dirents d = {0};

    fill_directory(m->tree, self, &d);
    const errcode_t error = put_contents(m, inode, d.data.data, d.data.len);
    bytes_free(&d.data);
    return error;
}

static errcode_t put_link(struct maker *m, const char *target, struct ext2_inode_large *inode)
{
    const size_t len = strlen(target);
    char block[BLOCK] = {0};

    if (len < FAST_LINK) {
        set_size(inode, len);
        memcpy(inode->i_block, target, len);
        return 0;
    }
    memcpy(block, target, len < BLOCK ? len : BLOCK - 1);
    return put_contents(m, inode, block, len < BLOCK ? len : BLOCK - 1);
}

/* Contents that are not. */
static errcode_t put_file(struct maker *m, uint32_t self, struct ext2_inode_large *inode)
{
    const uint64_t size = (uint64_t)m->tree->node[self].st.st_size, count = blocks_of(size);
    const uint64_t block = m->next;

    if (size > FILE_MAX)
        return 0;
    set_size(inode, size);
    m->next += count;
    if (count) {
        char *path = tree_path(m->tree, self);
        const struct disk_tree_file file = {block * BLOCK, size, m->texts.len};
        bytes_put(&m->files, &file, sizeof file);
        bytes_put(&m->texts, path, strlen(path) + 1);
        m->file_count++;
        free(path);
    }
    return map_blocks(m, inode, block, count);
}

static errcode_t put_node(struct maker *m, uint32_t self)
{
    const struct tree_node *node = &m->tree->node[self];
    struct ext2_inode_large inode = inode_of(node);
    const dev_t rdev = node->st.st_rdev;
    errcode_t error = 0;

    switch (node->st.st_mode & S_IFMT) {
    case S_IFDIR:
        error = put_directory(m, self, &inode);
        break;
    case S_IFLNK:
        error = put_link(m, node->target, &inode);
        break;
    case S_IFREG:
        error = put_file(m, self, &inode);
        break;
    case S_IFCHR:
    case S_IFBLK: /* as the kernel's new_encode_dev() */
        inode.i_block[1] = (minor(rdev) & 0xff) | major(rdev) << 8 | (minor(rdev) & ~0xffu) << 12;
        break;
    default:
        break;
    }
    if (!error && node->ino != EXT2_ROOT_INO)
        ext2fs_inode_alloc_stats2(m->fs, node->ino, +1, S_ISDIR(node->st.st_mode));
    return error ? error
                 : ext2fs_write_inode_full(m->fs, node->ino, (struct ext2_inode *)&inode,
                                           sizeof inode);
}

/* All regular files, or all others. Those that have contents in the image come first, so that it is
 * not in many pieces, which take long to remove. */
static errcode_t put_nodes(struct maker *m, bool files)
{
    errcode_t error = 0;

    for (uint32_t i = 0; !error && i < m->tree->count; i++)
        if (m->tree->node[i].same_as == i && S_ISREG(m->tree->node[i].st.st_mode) == files)
            error = put_node(m, i);
    return error;
}

/* ---- the file system ---- */

/* Number the inodes. Returns how many blocks their contents take, with those that say where they
 * are. */
static uint64_t plan(struct maker *m, uint32_t *inodes)
{
    uint32_t ino = EXT2_GOOD_OLD_FIRST_INO;
    uint64_t blocks = 0;

    for (uint32_t i = 0; i < m->tree->count; i++) {
        struct tree_node *node = &m->tree->node[i];
        if (node->same_as != i)
            continue;
        node->ino = i ? ino++ : EXT2_ROOT_INO;
        if (S_ISREG(node->st.st_mode)) {
            const uint64_t size = (uint64_t)node->st.st_size;
            m->left_empty += size > FILE_MAX;
            blocks += size > FILE_MAX ? 0 : blocks_of(size) + leaves_of(blocks_of(size));
        } else if (S_ISLNK(node->st.st_mode)) {
            blocks += strlen(node->target) >= FAST_LINK;
        } else if (S_ISDIR(node->st.st_mode)) {
            struct dirents d = {0};
            fill_directory(m->tree, i, &d); /* its size, whatever the numbers */
            blocks += blocks_of(d.data.len);
            bytes_free(&d.data);
        }
        blocks += node->attributes.len > 0;
    }
    *inodes = ino + FREE_INODES;
    return blocks;
}

/* An empty file system, in which all that is its own lies at the beginning. */
static errcode_t begin(struct maker *m, const char *image, uint64_t contents, uint32_t inodes)
{
    const uint64_t tables = ((uint64_t)inodes * INODE_BYTES / BLOCK + 1) * 17 / 16;
    uint64_t blocks = contents + tables + FREE_BLOCKS;
    uint64_t groups = blocks / GROUP_BLOCKS + 1 + (uint64_t)inodes / GROUP_BLOCKS;
    unsigned log_groups = 1;

    groups += groups / 4096 + 1; /* bitmaps, descriptors */
    while ((1ull << log_groups) < groups)
        log_groups++;
    blocks = groups * GROUP_BLOCKS;
    if (blocks > UINT32_MAX) {
        m->too_large = true;
        return EFBIG;
    }
    struct ext2_super_block param = {
        .s_blocks_count = (uint32_t)blocks,
        .s_inodes_count = inodes,
        .s_log_block_size = 2,
        .s_log_cluster_size = 2,
        .s_rev_level = EXT2_DYNAMIC_REV,
        .s_inode_size = INODE_BYTES,
        .s_log_groups_per_flex = (uint8_t)log_groups,
        .s_feature_compat = EXT4_FEATURE_COMPAT_SPARSE_SUPER2 | EXT2_FEATURE_COMPAT_EXT_ATTR,
        .s_feature_incompat = EXT2_FEATURE_INCOMPAT_FILETYPE | EXT3_FEATURE_INCOMPAT_EXTENTS |
                              EXT4_FEATURE_INCOMPAT_FLEX_BG,
        .s_feature_ro_compat = EXT2_FEATURE_RO_COMPAT_LARGE_FILE |
                               EXT4_FEATURE_RO_COMPAT_EXTRA_ISIZE |
                               EXT4_FEATURE_RO_COMPAT_DIR_NLINK,
    };
    if (truncate(image, (off_t)(blocks * BLOCK)) < 0)
        return errno;
    errcode_t error = ext2fs_initialize(image, EXT2_FLAG_64BITS, &param, unix_io_manager, &m->fs);
    if (!error)
        error = ext2fs_allocate_tables(m->fs);
    if (error)
        return error;
    m->fs->super->s_min_extra_isize = m->fs->super->s_want_extra_isize =
        sizeof(struct ext2_inode_large) - EXT2_GOOD_OLD_INODE_SIZE;
    for (ext2_ino_t ino = 1; ino < EXT2_GOOD_OLD_FIRST_INO; ino++)
        ext2fs_inode_alloc_stats2(m->fs, ino, +1, ino == EXT2_ROOT_INO);
    error = ext2fs_find_first_zero_block_bitmap2(m->fs->block_map, m->fs->super->s_first_data_block,
                                                 blocks - 1, &m->next);
    return error || m->next + contents >= blocks ? (error ? error : EFBIG) : 0;
}

static errcode_t make(struct maker *m, const char *image)
{
    uint32_t inodes;
    const uint64_t contents = plan(m, &inodes);
    errcode_t error = begin(m, image, contents, inodes);
    const uint64_t first = m->next;
    blk64_t taken;

    if (!error &&
        ext2fs_find_first_set_block_bitmap2(m->fs->block_map, first, first + contents, &taken) == 0)
        error = EXT2_ET_BLOCK_ALLOC_FAIL; /* libext2fs has put something of its own there */
    if (!error)
        error = put_nodes(m, false);
    if (!error)
        error = put_nodes(m, true);
    if (error)
        return error;
    assert(m->next <= first + contents);
    if (m->next > first)
        ext2fs_block_alloc_stats_range(m->fs, first, m->next - first, +1);
    error = tree_attributes_put(m->tree, m->fs);
    if (!error)
        error = ext2fs_write_bitmaps(m->fs);
    return error ? error : ext2fs_close_free(&m->fs);
}

static void put_table(struct maker *m, struct bytes *table)
{
    const struct disk_tree_head head = {m->file_count, m->texts.len};

    bytes_put(table, &head, sizeof head);
    if (m->files.len)
        bytes_put(table, m->files.data, m->files.len);
    bytes_put(table, m->texts.data, m->texts.len);
}

int tree_image_make(struct tree *tree, const char *directory, const char *image,
                    struct bytes *table, uint32_t *left_empty, struct err *e)
{
    struct maker m = {.tree = tree};
    const int fd = open(image, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    errcode_t error = fd < 0 ? errno : 0;

    *table = (struct bytes){0};
    if (fd >= 0)
        close(fd);
    bytes_put(&m.texts, directory, strlen(directory) + 1);
    if (!error)
        error = make(&m, image);
    if (m.fs)
        ext2fs_free(m.fs);
    if (!error)
        put_table(&m, table);
    *left_empty = m.left_empty;
    bytes_free(&m.files);
    bytes_free(&m.texts);
    if (m.too_large)
        return err_set(e, STATUS_ERROR,
                       "cannot make a file system of %s: its files are larger than 16 TiB",
                       directory);
    return error ? err_set(e, STATUS_ERROR, "cannot make a file system of %s in %s: %s", directory,
                           image, error_message(error))
                 : 0;
}
