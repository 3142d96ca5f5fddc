/* boot/root/tree*.c and devices/disk/disk_tree.c: a directory becomes a disk with an ext4 file
 * system, which e2fsck finds nothing wrong with, and which libext2fs reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <ext2fs/ext2fs.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "boot/diskimage/diskimage_ext.h"
#include "boot/root/tree.h"
#include "boot/root/tree_image.h"
#include "devices/disk/disk_tree.h"

static char work[] = "/tmp/test_tree.XXXXXX";

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(work) && chdir(work) == 0 && mkdir("root", 0755) == 0 && mkdir("made", 0700) == 0
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", work);
    return chdir("/") == 0 ? system(command) : -1;
}

static void put(const char *path, const void *data, size_t len)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    close(fd);
}

static void make_disk(const char *directory, uint32_t *left_empty)
{
    struct bytes table;
    struct tree tree;
    struct err e;
    char *path = realpath(directory, NULL);

    unlink("made/" DISK_TREE_IMAGE);
    assert_int_equal(tree_walk(&tree, directory, &e), 0);
    assert_int_equal(tree_image_make(&tree, path, "made/" DISK_TREE_IMAGE, &table, left_empty, &e),
                     0);
    put("made/" DISK_TREE_TABLE, table.data, table.len);
    bytes_free(&table);
    tree_free(&tree);
    free(path);
}

static void check_fs(void)
{
    const int status =
        system("PATH=$PATH:/sbin:/usr/sbin e2fsck -fn made/" DISK_TREE_IMAGE " >fsck.out 2>&1");

    if (status)
        (void)!system("cat fsck.out >&2");
    assert_int_equal(status, 0);
}

/* What libext2fs reads of a file on the disk. */
static void expect(struct disk *disk, const char *path, const void *data, size_t len)
{
    const struct disk_partition whole = {.offset = 0, .size = disk->size};
    uint32_t reads = EXT_READS_MAX;
    struct volume volume;
    struct bytes got = {0};

    assert_true(ext_volume_open(disk, &whole, &reads, &volume));
    assert_int_equal(volume_read(&volume, path, 64u << 20, &got), 0);
    assert_int_equal(got.len, len);
    assert_memory_equal(got.data, data, len);
    bytes_free(&got);
    volume_close(&volume);
}

static struct disk *open_disk(void)
{
    struct err e;
    struct disk *disk = disk_tree_open("made", &e);

    assert_non_null(disk);
    return disk;
}

/* An inode, by its path. */
static struct ext2_inode_large inode_at(const char *path, ext2_ino_t *ino)
{
    struct ext2_inode_large inode;
    ext2_filsys fs;

    assert_int_equal(
        ext2fs_open("made/" DISK_TREE_IMAGE, EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &fs), 0);
    assert_int_equal(ext2fs_namei(fs, EXT2_ROOT_INO, EXT2_ROOT_INO, path, ino), 0);
    assert_int_equal(ext2fs_read_inode_full(fs, *ino, (struct ext2_inode *)&inode, sizeof inode),
                     0);
    ext2fs_close_free(&fs);
    return inode;
}

static void make_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
}

static void test_all_kinds(void **state)
{
    static char big[3000000], target[2000];
    struct disk *disk;
    ext2_ino_t ino, other;
    uint32_t left;

    (void)state;
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)(i * 7 + i / 4096);
    put("root/a", "hello\n", 6);
    put("root/empty", "", 0);
    put("root/big", big, sizeof big);
    put("root/\xff odd\n name'\"", "odd", 3);
    assert_int_equal(mkdir("root/d", 02750), 0);
    assert_int_equal(chmod("root/d", 02750), 0);
    assert_int_equal(link("root/a", "root/d/b"), 0);
    assert_int_equal(symlink("../a", "root/d/link"), 0);
    memset(target, 'x', sizeof target - 1);
    assert_int_equal(symlink(target, "root/long"), 0);
    assert_int_equal(mkfifo("root/fifo", 0600), 0);
    make_socket("root/socket");
    const bool has_device = mknod("root/null", S_IFCHR | 0666, makedev(1, 300)) == 0;
    const bool has_attribute = setxattr("root/a", "user.what", "value", 5, 0) == 0;
    make_disk("root", &left);
    assert_int_equal(left, 0);
    check_fs();
    disk = open_disk();
    expect(disk, "/a", "hello\n", 6);
    expect(disk, "/d/b", "hello\n", 6);
    expect(disk, "/d/link", "hello\n", 6);
    expect(disk, "/empty", "", 0);
    expect(disk, "/big", big, sizeof big);
    expect(disk, "/\xff odd\n name'\"", "odd", 3);
    disk_close(disk);
    assert_int_equal(inode_at("/a", &ino).i_links_count, 2);
    (void)inode_at("/d/b", &other);
    assert_int_equal(ino, other);
    assert_int_equal(inode_at("/d", &ino).i_mode, S_IFDIR | 02750);
    assert_int_equal(inode_at("/long", &ino).i_size, sizeof target - 1);
    assert_true(S_ISFIFO(inode_at("/fifo", &ino).i_mode));
    assert_true(S_ISSOCK(inode_at("/socket", &ino).i_mode));
    if (has_device)
        assert_int_equal(inode_at("/null", &ino).i_block[1],
                         (300 & 0xff) | 1 << 8 | (300 & ~0xff) << 12);
    if (has_attribute)
        assert_int_equal(
            system(
                "PATH=$PATH:/sbin:/usr/sbin debugfs -R 'ea_get a user.what' made/" DISK_TREE_IMAGE
                " 2>/dev/null | grep -q value"),
            0);
}

static void test_many_names(void **state)
{
    char path[400];
    uint32_t left;

    (void)state;
    assert_int_equal(mkdir("root/many", 0755), 0);
    for (unsigned i = 0; i < 3000; i++) {
        const int len = snprintf(path, sizeof path, "root/many/%u", i);
        memset(path + len, 'n', i % 240);
        path[len + (int)(i % 240)] = '\0';
        put(path, path, i % 5);
    }
    for (unsigned i = 0; i < 300; i++) {
        snprintf(path, sizeof path, "root/many/dir%u", i);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    make_disk("root", &left);
    check_fs();
    ext2_ino_t ino;
    assert_int_equal(inode_at("/many", &ino).i_links_count, 302);
}

/* More names than ext4 counts: hard links beyond what this file system may have are made up. */
static void test_many_links(void **state)
{
    struct bytes table;
    struct tree tree;
    struct err e;
    uint32_t left;
    ext2_ino_t ino;

    (void)state;
    assert_int_equal(mkdir("root/links", 0755), 0);
    put("root/links/0", "", 0);
    for (unsigned n = 0; n < 2; n++) {
        unlink("made/" DISK_TREE_IMAGE);
        assert_int_equal(tree_walk(&tree, "root/links", &e), 0);
        tree.node[1].links = n ? 65537 : EXT2_LINK_MAX - 1;
        assert_int_equal(tree_image_make(&tree, "root", "made/" DISK_TREE_IMAGE, &table, &left, &e),
                         0);
        bytes_free(&table);
        tree_free(&tree);
        assert_int_equal(inode_at("/0", &ino).i_links_count, n ? EXT2_LINK_MAX : EXT2_LINK_MAX - 1);
    }
}

/* An image that this process may not make so large. */
static void test_no_room(void **state)
{
    const struct rlimit small = {1 << 20, RLIM_INFINITY};
    struct rlimit old;
    struct bytes table;
    struct tree tree;
    struct err e;
    uint32_t left;

    (void)state;
    unlink("made/" DISK_TREE_IMAGE);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(tree_walk(&tree, "root/links", &e), 0);
    getrlimit(RLIMIT_FSIZE, &old);
    setrlimit(RLIMIT_FSIZE, &small);
    assert_int_equal(tree_image_make(&tree, "root", "made/" DISK_TREE_IMAGE, &table, &left, &e),
                     -1);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_string_equal(e.text, "cannot make a file system of root in made/" DISK_TREE_IMAGE
                                ": File too large");
    bytes_free(&table);
    tree_free(&tree);
}

/* Sizes at which a file's list of extents changes its form; they are sparse. */
static void test_large_files(void **state)
{
    static const uint64_t sizes[] = {128ull << 20, (512ull << 20) - 4092, 512ull << 20,
                                     (512ull << 20) + 4, (43ull << 30) + 5000};
    uint8_t block[4096];
    char path[64];
    uint32_t left;

    (void)state;
    assert_int_equal(mkdir("root/large", 0755), 0);
    for (unsigned i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "root/large/%u", i);
        put(path, "start", 5);
        if (truncate(path, (off_t)sizes[i]) < 0)
            skip(); /* a file system without such files */
        const int fd = open(path, O_WRONLY);
        assert_int_equal(pwrite(fd, "last", 4, (off_t)sizes[i] - 4), 4);
        close(fd);
    }
    put("root/large/too", "", 0);
    if (truncate("root/large/too", 200ll << 30) < 0)
        skip();
    make_disk("root/large", &left);
    assert_int_equal(left, 1);
    check_fs();
    struct disk *disk = open_disk();
    ext2_filsys fs;
    assert_int_equal(
        ext2fs_open("made/" DISK_TREE_IMAGE, EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &fs), 0);
    for (unsigned i = 0; i < 5; i++) { /* the block that libext2fs says is the last */
        ext2_ino_t ino;
        blk64_t where;
        snprintf(path, sizeof path, "/%u", i);
        assert_int_equal(ext2fs_namei(fs, EXT2_ROOT_INO, EXT2_ROOT_INO, path, &ino), 0);
        assert_int_equal(ext2fs_bmap2(fs, ino, NULL, NULL, 0, (sizes[i] - 4) / 4096, NULL, &where),
                         0);
        assert_int_equal(disk_read(disk, where * 4096, block, sizeof block), 0);
        assert_memory_equal(block + (sizes[i] - 4) % 4096, "last", 4);
    }
    ext2fs_close_free(&fs);
    disk_close(disk);
}

/* Files that are no longer what they were. */
static void test_changed_files(void **state)
{
    static char data[100000], zeroes[4096];
    uint8_t block[4096];
    blk64_t at[3];
    uint32_t left;
    ext2_filsys fs;

    (void)state;
    memset(data, 'd', sizeof data);
    assert_int_equal(mkdir("root/changed", 0755), 0);
    put("root/changed/0", data, sizeof data);
    put("root/changed/1", data, sizeof data);
    put("root/changed/2", data, sizeof data);
    put("secret", data, sizeof data);
    make_disk("root/changed", &left);
    struct disk *disk = open_disk();
    assert_int_equal(
        ext2fs_open("made/" DISK_TREE_IMAGE, EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &fs), 0);
    for (unsigned i = 0; i < 3; i++) {
        const char name[] = {(char)('0' + i), '\0'};
        ext2_ino_t ino;
        assert_int_equal(ext2fs_namei(fs, EXT2_ROOT_INO, EXT2_ROOT_INO, name, &ino), 0);
        assert_int_equal(ext2fs_bmap2(fs, ino, NULL, NULL, 0, 20, NULL, &at[i]), 0);
    }
    ext2fs_close_free(&fs);
    assert_int_equal(truncate("root/changed/0", 10), 0);
    assert_int_equal(disk_read(disk, at[0] * 4096, block, sizeof block), 0);
    assert_memory_equal(block, zeroes, sizeof block);
    assert_int_equal(unlink("root/changed/1"), 0);
    assert_int_equal(disk_read(disk, at[1] * 4096, block, sizeof block), -1);
    assert_int_equal(unlink("root/changed/2"), 0); /* a way out of the directory */
    assert_int_equal(symlink("../../secret", "root/changed/2"), 0);
    assert_int_equal(disk_read(disk, at[2] * 4096, block, sizeof block), -1);
    assert_int_equal(disk_write(disk, 0, block, sizeof block), -1);
    disk_close(disk);
}

static void test_no_directory(void **state)
{
    struct tree tree;
    struct err e;

    (void)state;
    put("file", "", 0);
    assert_int_equal(tree_walk(&tree, "file", &e), -1);
    assert_int_equal(tree_walk(&tree, "nothing", &e), -1);
    put("made/" DISK_TREE_IMAGE, "", 0);
    put("made/" DISK_TREE_TABLE, "short", 5);
    assert_null(disk_tree_open("made", &e));
    assert_non_null(strstr(e.text, "makes no sense"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds),    cmocka_unit_test(test_many_names),
        cmocka_unit_test(test_large_files),  cmocka_unit_test(test_changed_files),
        cmocka_unit_test(test_many_links),   cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_no_directory),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
