#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "boot/diskimage/diskimage.h"
#include "boot/diskimage/diskimage_loader.h"
#include "tests/unit/random.h"

#define UUID "01234567-89ab-cdef-0123-456789abcdef"
#define MIB  (1u << 20)

static char work[64];  /* a scratch directory, made anew for every test */
static char image[96]; /* the disk image in it */
static struct disk_boot boot;
static struct err error;

static void shell(const char *format, ...)
{
    char command[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

static int setup(void **state)
{
    (void)state;
    strcpy(work, "/tmp/test_diskimage.XXXXXX");
    if (!mkdtemp(work))
        return -1;
    snprintf(image, sizeof(image), "%s/disk.img?x", work);
    memset(&boot, 0, sizeof(boot));
    memset(&error, 0, sizeof(error));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    disk_boot_free(&boot);
    shell("rm -rf %s", work);
    return 0;
}

/* Put a file into the tree that the next file system is made from. */
static void put(const char *path, const char *text)
{
    char name[256];

    shell("mkdir -p $(dirname %s/tree%s)", work, path);
    snprintf(name, sizeof(name), "%s/tree%s", work, path);

    FILE *f = fopen(name, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void put_link(const char *path, const char *target)
{
    shell("mkdir -p $(dirname %s/tree%s) && ln -s %s %s/tree%s", work, path, target, work, path);
}

static int find_boot(const char *path)
{
    struct disk *disk = disk_raw_open(path, false, &error);
    const int rc = disk ? diskimage_find_boot(disk, path, &boot, &error) : -1;

    disk_close(disk);
    return rc;
}

/* Make an ext4 file system of the tree at an offset of the image, and start a new tree. */
static void make_fs_with(const char *features, unsigned mib, unsigned size_mib)
{
    shell("mkdir -p %s/tree && PATH=$PATH:/sbin:/usr/sbin && mke2fs -q -F -t ext4 -O %s -U " UUID
          " -E offset=%u -d %s/tree '%s' %uM >%s/log && rm -r %s/tree",
          work, features, mib * MIB, work, image, size_mib, work, work);
}

static void make_fs(unsigned mib, unsigned size_mib)
{
    make_fs_with("^has_journal", mib, size_mib);
}

static void write_image(uint64_t offset, const void *data, size_t len)
{
    int fd = open(image, O_WRONLY | O_CREAT, 0600);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, data, len, (off_t)offset), len);
    close(fd);
}

static void set_size(unsigned mib)
{
    int fd = open(image, O_WRONLY | O_CREAT, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)mib * MIB), 0);
    close(fd);
}

static void put_u32(uint8_t *at, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

static void put_mbr_entry(uint8_t *record, unsigned i, uint8_t type, uint32_t start, uint32_t len)
{
    uint8_t *entry = record + 446 + 16 * i;

    entry[4] = type;
    put_u32(entry + 8, start);
    put_u32(entry + 12, len);
    record[510] = 0x55;
    record[511] = 0xaa;
}

static void assert_finds(const char *kernel, const char *initrd, const char *line)
{
    if (find_boot(image) < 0)
        fail_msg("%s", error.text);
    assert_int_equal(boot.kernel_len, strlen(kernel));
    assert_memory_equal(boot.kernel, kernel, strlen(kernel));
    assert_int_equal(boot.initrd_len, initrd ? strlen(initrd) : 0);
    if (initrd)
        assert_memory_equal(boot.initrd, initrd, strlen(initrd));
    else
        assert_null(boot.initrd);
    assert_string_equal(boot.command_line, line);
}

static const char debian_grub[] =
    "if [ -s $prefix/grubenv ]; then\n  load_env\nfi\n"
    "if [ \"${next_entry}\" ] ; then\n   set default=\"${next_entry}\"\n"
    "else\n   set default=\"0\"\nfi\n"
    "function gfxmode {\n  set gfxpayload=\"${1}\"\n  linux /not/this\n}\n"
    "# menuentry 'commented out' { linux /no }\n"
    "menuentry 'Debian GNU/Linux' --class gnu $menuentry_id_option 'gnulinux-simple' {\n"
    "\tload_video\n\tif [ x$feature = xy ]; then\n\t  search --set=root abc\n\tfi\n"
    "\techo\t'Loading Linux 6.1 ...'\n"
    "\tlinux\t/boot/vmlinuz-6.1 root=UUID=" UUID " ro  quiet $extra y=${z} 'a=b c'\n"
    "\tinitrd\t/boot/initrd.img-6.1\n}\n"
    "submenu 'Advanced options' $menuentry_id_option 'advanced' {\n"
    "\tmenuentry 'with Linux 5' --id five {\n\t\tlinux /boot/vmlinuz-5 old\n\t}\n"
    "\tmenuentry 'with Linux 4' { linux ($root)/boot/vmlinuz-4 older; initrd /a /b; }\n"
    "}\n";

static void grub_on_a_whole_disk(void **state)
{
    (void)state;
    put("/boot/grub/grub.cfg", debian_grub);
    put("/boot/vmlinuz-6.1", "kernel six");
    put("/boot/initrd.img-6.1", "initrd six");
    put("/etc/os-release", "NAME=x\n");
    make_fs(0, 2);
    assert_finds("kernel six", "initrd six", "root=UUID=" UUID " ro quiet \"a=b c\"");
    assert_string_equal(boot.loader, "GRUB");
    assert_string_equal(boot.root_device, "vda");
    assert_string_equal(boot.boot_device, "vda");
    assert_string_equal(boot.root_uuid, UUID);
    assert_string_equal(boot.config_path, "/boot/grub/grub.cfg");
    assert_string_equal(boot.kernel_path, "/boot/vmlinuz-6.1");
    assert_string_equal(boot.initrd_path, "/boot/initrd.img-6.1");
}

static void grub_default_picks_the_entry(void **state)
{
    static const struct {
        const char *value, *kernel;
    } cases[] = {
        {"0", "/boot/vmlinuz-6.1"},  {"1", "/boot/vmlinuz-5"},
        {"1>1", "/boot/vmlinuz-4"},  {"advanced>five", "/boot/vmlinuz-5"},
        {"7", "/boot/vmlinuz-6.1"},  {"Advanced options>with Linux 4", "/boot/vmlinuz-4"},
        {"$x", "/boot/vmlinuz-6.1"}, {"gnulinux-simple", "/boot/vmlinuz-6.1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct loader_entry entry;
        char text[4096];
        int n = snprintf(text, sizeof(text), "%sset default=\"%s\"\n", debian_grub, cases[i].value);

        assert_true(grub_parse(text, (size_t)n, &entry));
        assert_string_equal(entry.kernel, cases[i].kernel);
        if (strcmp(entry.kernel, "/boot/vmlinuz-4") == 0) {
            assert_int_equal(entry.initrd_count, 2);
            assert_string_equal(entry.initrds[1], "/b");
            assert_string_equal(entry.command_line, "older");
        }
    }

    struct loader_entry entry;

    assert_false(grub_parse("menuentry x { chainloader +1 }\n", 31, &entry));
    assert_true(
        grub_parse("menuentry x { chainloader +1\n}\nmenuentry y {\nlinux /k\n}", 56, &entry));
    assert_string_equal(entry.kernel, "/k");
}

static void logical_partition_by_mbr(void **state)
{
    uint8_t record[512] = {0};

    (void)state;
    put("/vmlinuz-1", "kernel");
    make_fs(4, 2);
    put_mbr_entry(record, 0, 0x83, 64, 100); /* nothing in it */
    put_mbr_entry(record, 1, 0x05, 2048, 5 * 2048);
    write_image(0, record, sizeof(record));
    memset(record, 0, sizeof(record));
    put_mbr_entry(record, 0, 0x83, 10, 20); /* vda5 */
    put_mbr_entry(record, 1, 0x05, 2048, 2048);
    write_image(MIB, record, sizeof(record));
    memset(record, 0, sizeof(record));
    put_mbr_entry(record, 0, 0x83, 10, 20);         /* vda6 */
    put_mbr_entry(record, 1, 0x05, 2 * 2048, 2048); /* from the start of the first */
    write_image(2 * MIB, record, sizeof(record));
    memset(record, 0, sizeof(record));
    put_mbr_entry(record, 0, 0x83, 2048, 4096); /* vda7, at 4 MiB */
    put_mbr_entry(record, 1, 0x05, 2048, 2048); /* a loop */
    write_image(3 * MIB, record, sizeof(record));
    assert_finds("kernel", NULL, "");
    assert_string_equal(boot.boot_device, "vda7");
    assert_string_equal(boot.root_device, "");
    assert_string_equal(boot.loader, "newest kernel");
}

/* A GPT header at a sector, its entries at another. */
static void write_gpt(uint64_t sector, uint64_t entries_at, uint32_t flaw)
{
    uint8_t header[512] = {0}, entries[128 * 128] = {0};
    static const uint32_t starts[] = {1, 3}; /* MiB */

    for (unsigned i = 0; i < 2; i++) {
        uint8_t *entry = entries + (i == 0 ? 0 : 14) * 128; /* vda1 and vda15 */

        memset(entry, 0x11, 32);
        put_u32(entry + 32, starts[i] * 2048);
        put_u32(entry + 40, (starts[i] + 2) * 2048 - 1);
    }
    memcpy(header, "EFI PART\0\0\1\0\x5c\0\0\0", 16);
    put_u32(header + 72, (uint32_t)entries_at);
    put_u32(header + 80, 128);
    put_u32(header + 84, 128);
    put_u32(header + 16, (uint32_t)crc32(0, header, 92));
    header[72] ^= (uint8_t)flaw;
    write_image(sector * 512, header, sizeof(header));
    write_image(entries_at * 512, entries, sizeof(entries));
}

static void boot_and_root_partition_by_gpt(void **state)
{
    uint8_t record[512] = {0};

    (void)state;
    put("/grub/grub.cfg", "menuentry x {\n linux /vmlinuz-7 root=/dev/vda15\n initrd /i1 /i2\n}\n");
    put("/vmlinuz-7", "kernel seven");
    put("/i1", "one");
    put("/i2", "two");
    make_fs(1, 2);
    put("/sbin/init", "#!");
    make_fs(3, 2);
    set_size(6);
    put_mbr_entry(record, 0, 0xee, 1, 6 * 2048 - 1);
    write_image(0, record, sizeof(record));
    write_gpt(1, 2, 0);

    if (find_boot(image) < 0)
        fail_msg("%s", error.text);
    assert_int_equal(boot.kernel_len, 12);
    assert_int_equal(boot.initrd_len, 7); /* the second begins at a multiple of 4 */
    assert_memory_equal(boot.initrd, "one\0two", 7);
    assert_string_equal(boot.command_line, "root=/dev/vda15");
    assert_string_equal(boot.boot_device, "vda1");
    assert_string_equal(boot.root_device, "vda15");
    disk_boot_free(&boot);

    /* The primary table points to the wrong sectors and its checksum shows it: the backup counts.
     */
    write_gpt(6 * 2048 - 1, 6 * 2048 - 33, 0);
    write_gpt(1, 2, 0x40);
    assert_int_equal(find_boot(image), 0);
    disk_boot_free(&boot);

    /* Both are wrong in their checksum only. */
    write_gpt(1, 2, 0);
    write_image(512 + 16, "????", 4);
    write_image((6 * 2048 - 1) * 512 + 16, "????", 4);
    assert_int_equal(find_boot(image), 0);
}

static void extlinux_entry(void **state)
{
    static const char other[] = "DEFAULT two\nLABEL one\nKERNEL /k1\nLABEL two\n KERNEL /k2\n"
                                " APPEND initrd=/a,/b ro\n";
    struct loader_entry entry;

    (void)state;
    put("/boot/extlinux.conf", "# comment\nDEFAULT menu.c32\nPROMPT 0\n\nLABEL old\n  LINUX old\n"
                               "LABEL lts\r\n  menu default\n  LINUX vmlinuz-lts\r\n"
                               "  INITRD initramfs-lts\n  APPEND root=UUID=x  modules=ext4\n");
    put("/boot/vmlinuz-lts", "lts kernel");
    put("/boot/initramfs-lts", "lts initrd");
    make_fs(0, 2);
    assert_finds("lts kernel", "lts initrd", "root=UUID=x modules=ext4");
    assert_string_equal(boot.loader, "extlinux");
    assert_string_equal(boot.kernel_path, "/boot/vmlinuz-lts");

    memset(&entry, 0, sizeof(entry));
    assert_true(extlinux_parse(other, strlen(other), &entry));
    assert_string_equal(entry.kernel, "/k2");
    assert_int_equal(entry.initrd_count, 2);
    assert_string_equal(entry.initrds[1], "/b");
    assert_false(extlinux_parse("DEFAULT x\n", 10, &entry));
}

static void newest_boot_loader_entry(void **state)
{
    (void)state;
    put("/boot/grub2/grub.cfg", "insmod blscfg\nblscfg\n");
    put("/boot/loader/entries/a-6.9.conf", "title F\nversion 6.9.1\nlinux /vmlinuz-6.9\n");
    put("/boot/loader/entries/b-6.10.conf", "title F\nversion 6.10.1\nlinux /vmlinuz-6.10\n"
                                            "initrd /initramfs-6.10.img $tuned_initrd\n"
                                            "options root=/dev/vda $kernelopts\noptions ro\n");
    put("/boot/vmlinuz-6.9", "nine");
    put("/boot/vmlinuz-6.10", "ten");
    put("/boot/initramfs-6.10.img", "ten initrd");
    make_fs(0, 2);
    assert_finds("ten", "ten initrd", "root=/dev/vda ro");
    assert_string_equal(boot.loader, "boot loader entry");
    assert_string_equal(boot.config_path, "/boot/loader/entries/b-6.10.conf");
}

static void newest_kernel_without_a_boot_loader(void **state)
{
    (void)state;
    put("/boot/vmlinuz-6.1.0-9-amd64", "nine");
    put("/boot/vmlinuz-6.1.0-10-amd64", "ten");
    put("/boot/initrd.img-6.1.0-9-amd64", "nine initrd");
    put_link("/boot/initrd.img-6.1.0-10-amd64", "../data/initrd");
    put("/data/initrd", "ten initrd");
    put_link("/bin", "usr/bin");
    put("/usr/bin/sh", "#!");
    make_fs(0, 2);
    assert_finds("ten", "ten initrd", "");
    assert_string_equal(boot.root_device, "vda");
}

static void kernel_behind_symbolic_links(void **state)
{
    (void)state;
    put_link("/vmlinuz", "/boot/current");
    put_link("/boot/current", "k");
    put_link("/initrd.img", "initrd.img"); /* a loop */
    put("/boot/k", "linked");
    make_fs(0, 2);
    assert_finds("linked", NULL, "");
}

static void assert_refused(const char *path, const char *why)
{
    assert_int_equal(find_boot(path), -1);
    if (!strstr(error.text, why))
        fail_msg("\"%s\" does not say \"%s\"", error.text, why);
    assert_null(strchr(error.text, '\n'));
    assert_null(boot.kernel);
}

/* What cannot be looked into is named, as a whole disk and as a partition. */
static void names_other_kinds(void **state)
{
    static const struct {
        const char *kind, *bytes;
        unsigned at;
    } kinds[] = {{"LVM", "LABELONE", 512},       {"XFS", "XFSB", 0},
                 {"btrfs", "_BHRfS_M", 0x10040}, {"LUKS", "LUKS\xba\xbe", 0},
                 {"FAT", "FAT32   ", 82},        {"md RAID", "\xfc\x4e\x2b\xa9", 4096}};
    uint8_t record[512] = {0};

    (void)state;
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        char text[64];

        unlink(image);
        set_size(1);
        write_image(kinds[i].at, kinds[i].bytes, strlen(kinds[i].bytes));
        snprintf(text, sizeof(text), "(%s)", kinds[i].kind);
        assert_refused(image, text);
        unlink(image);
        set_size(1);
        put_mbr_entry(record, 1, 0x8e, 64, 100);
        write_image(0, record, sizeof(record));
        write_image(64 * 512 + kinds[i].at, kinds[i].bytes, strlen(kinds[i].bytes));
        snprintf(text, sizeof(text), "(vda2 %s)", kinds[i].kind);
        assert_refused(image, text);
    }
}

static void refuses_with_advice(void **state)
{
    uint8_t record[512] = {0};

    (void)state;
    assert_refused("/nonexistent/x.img", "No such file");
    assert_refused("/", "neither a file nor a block device");
    assert_refused("/dev/null", "neither a file nor a block device");
    set_size(0);
    assert_refused(image, "empty");
    set_size(1);
    assert_refused(image, "neither a partition table nor a file system that is known");
    put_mbr_entry(record, 0, 0x83, 64, 100);
    write_image(0, record, sizeof(record));
    assert_refused(image, "it has no file system that can be read");
    assert_refused(image, "(vda1 unknown)");
    unlink(image);
    put("/boot/config", "no kernel");
    put("/boot/grub/grub.cfg", "menuentry x { linux /boot/vmlinuz-gone\n}\n");
    make_fs(0, 2);
    assert_refused(image, "no Linux kernel found");
    assert_refused(image, "give --kernel");
}

static void version_order(void **state)
{
    static const char *const ascending[] = {
        "5.10.0-9", "6.1~rc1", "6.1", "6.1.0-9-amd64", "6.1.0-10-amd64", "6.1.0-010-amd64-x",
        "6.10.2",   "7a",      "7+"};

    (void)state;
    for (size_t i = 0; i < sizeof(ascending) / sizeof(*ascending); i++)
        for (size_t k = 0; k < sizeof(ascending) / sizeof(*ascending); k++) {
            int order = version_compare(ascending[i], ascending[k]);

            assert_int_equal((order > 0) - (order < 0), (i > k) - (i < k));
        }
}

static void parsers_survive_damaged_text(void **state)
{
    static const char other[] =
        "DEFAULT l\nLABEL l\nKERNEL k\nINITRD a,b\nAPPEND x=\"$y\" initrd=q\n"
        "linux k\ninitrd b\noptions $x y\nversion 1\n";
    char text[sizeof(debian_grub)];

    (void)state;
    srand(1);
    for (unsigned i = 0; i < rounds(2000); i++) {
        static struct loader_entry entry;
        char version[LOADER_PATH_MAX];
        const char *from = i % 2 ? other : debian_grub;
        size_t len = strlen(from);

        memcpy(text, from, len);
        for (unsigned k = 0; k < 4; k++)
            text[(size_t)rand() % len] = "{}'\"$\\\n;> \0x"[rand() % 12];

        /* Exactly as long as it is, so that the sanitizer sees a step beyond. */
        char *exact = malloc(len);

        memcpy(exact, text, len);
        len -= (size_t)rand() % 20;
        grub_parse(exact, len, &entry);
        extlinux_parse(exact, len, &entry);
        bls_parse(exact, len, &entry, version);
        free(exact);
    }
}

static void survives_damaged_images(void **state)
{
    uint8_t record[512] = {0};
    int fd;

    (void)state;
    put("/boot/grub/grub.cfg", debian_grub);
    put("/boot/vmlinuz-6.1", "kernel six");
    put("/boot/initrd.img-6.1", "initrd six");
    put_link("/vmlinuz", "/boot/vmlinuz-6.1");
    /* With checksums, damage would stop at the first of them. */
    make_fs_with("^has_journal,^metadata_csum", 1, 1);
    set_size(3);
    put_mbr_entry(record, 0, 0x83, 2048, 2048);
    put_mbr_entry(record, 1, 0x05, 4096, 2000);
    write_image(0, record, sizeof(record));
    write_image(2 * MIB, record, sizeof(record));
    fd = open(image, O_RDWR);
    assert_true(fd >= 0);
    srand(1);
    for (unsigned i = 0; i < rounds(2000); i++) {
        uint8_t good[512], bad[512];
        /* Partition tables, superblock and group descriptors, then what mke2fs wrote first. */
        off_t at = i % 4 == 0   ? (i % 8 ? 0 : 2 * MIB)
                   : i % 4 == 1 ? MIB + 1024 + (off_t)(rand() % 4) * 512
                                : MIB + (off_t)(rand() % 400) * 512;

        assert_int_equal(pread(fd, good, sizeof(good), at), sizeof(good));
        memcpy(bad, good, sizeof(bad));
        for (unsigned k = 0; k < 3; k++)
            bad[(size_t)rand() % sizeof(bad)] ^= (uint8_t)(1 << rand() % 8);
        assert_int_equal(pwrite(fd, bad, sizeof(bad), at), sizeof(bad));
        if (find_boot(image) == 0)
            assert_non_null(boot.kernel);
        disk_boot_free(&boot);
        assert_int_equal(pwrite(fd, good, sizeof(good), at), sizeof(good));
    }
    close(fd);
    assert_int_equal(find_boot(image), 0);
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* A directory of 1024^3 blocks, all of them one empty block of the disk, under three levels of
 * indirect blocks: wherever the kernel is looked for, that ends. */
static void directory_without_end(void **state)
{
    enum { BLOCK = 4096, FIRST = 1000 };
    uint8_t empty[BLOCK] = {[4] = BLOCK & 0xff, [5] = BLOCK >> 8};
    uint8_t pointers[BLOCK];

    (void)state;
    put("/boot/loader/entries/x.conf", "title none\n");
    shell("mkdir -p %s/tree && PATH=$PATH:/sbin:/usr/sbin && mke2fs -q -F -t ext2 -b 4096 -d "
          "%s/tree '%s' 4M >%s/log",
          work, work, image, work);
    write_image(FIRST * BLOCK, empty, sizeof empty);
    for (unsigned level = 1; level <= 3; level++) {
        for (unsigned i = 0; i < BLOCK; i += 4)
            put_u32(pointers + i, FIRST + level - 1);
        write_image((FIRST + level) * BLOCK, pointers, sizeof pointers);
    }
    /* Under another name: debugfs takes what is behind a '?' for options. */
    shell("cd %s && PATH=$PATH:/sbin:/usr/sbin && mv '%s' hostile && "
          "for d in / /boot /boot/loader/entries; do "
          "debugfs -w -R \"set_inode_field $d block[TIND] %u\" hostile 2>log; done && "
          "mv hostile '%s'",
          work, image, FIRST + 3, image);
    alarm(120); /* instead of for ever */
    assert_int_equal(find_boot(image), -1);
    alarm(0);
    assert_non_null(strstr(error.text, "no Linux kernel found"));
}

/* Have debugfs do this with the image, under a name without '?': what is behind one is options. */
static void debugfs(const char *request)
{
    shell("cd %s && PATH=$PATH:/sbin:/usr/sbin && mv '%s' hostile && "
          "debugfs -w -R '%s' hostile >log 2>&1 && mv hostile '%s'",
          work, image, request, image);
}

/* A link in front of the first file that is looked for, with this size and these flags. */
static void hostile_link(const char *target, const char *size, const char *flags)
{
    char request[96];

    unlink(image);
    put_link("/etc", target);
    make_fs_with("^has_journal,^metadata_csum", 0, 2);
    snprintf(request, sizeof request, "set_inode_field /etc size %s", size);
    debugfs(request);
    snprintf(request, sizeof request, "set_inode_field /etc flags %s", flags);
    debugfs(request);
    assert_refused(image, "no Linux kernel found");
}

#define INLINE_DATA "0x10000000"
#define LONG_NAME   "0123456789012345678901234567890123456789"

/* libext2fs believes an inode: it copies what is within one to where the size says, and scans as
 * far as that. */
static void links_of_any_size(void **state)
{
    (void)state;
    hostile_link("x", "0", INLINE_DATA);
    hostile_link(LONG_NAME LONG_NAME, "0", INLINE_DATA);
    hostile_link(LONG_NAME LONG_NAME, "0x7fffffff", "0");
    hostile_link("x", "0x7fffffff", "0");
}

/* A link that leads so often through another one. */
static void put_links(const char *path, const char *step, unsigned times)
{
    char target[128] = "";

    for (unsigned i = 0; i < times; i++)
        strcat(target, step);
    put_link(path, target);
}

/* Links that lead through each other, in directories within their inodes: nothing is read from the
 * disk for them. */
static void links_without_end(void **state)
{
    (void)state;
    put_link("/etc", "d/b");
    put_links("/d/b", "c/", 29);
    put_links("/d/c", "h/", 29);
    put_links("/d/h", "f/e/../", 8);
    put_links("/d/f/e", "i/", 29);
    put_links("/d/f/i", "j/", 29);
    put_link("/d/f/j", ".");
    make_fs_with("^has_journal,inline_data", 0, 2);
    alarm(20); /* instead of for ever */
    assert_refused(image, "no Linux kernel found");
    alarm(0);
}

/* As many partitions as there can be are all the same one, in which there is much to look at. */
static void partitions_of_one_kind(void **state)
{
    uint8_t record[512] = {0}, header[512] = {0}, entries[128 * 128] = {0};
    char *options = malloc(64000);

    (void)state;
    assert_non_null(options);
    memset(options, 'a', 63998);
    for (unsigned i = 9; i < 63998; i += 2)
        options[i] = ' ';
    memcpy(options, "options ", 8);
    options[63998] = 0;
    put("/loader/entries/0.conf", options);
    free(options);
    shell("cd %s/tree/loader/entries && for i in $(seq 1023); do ln 0.conf $i.conf; done", work);
    make_fs(1, 2);
    set_size(6);
    put_mbr_entry(record, 0, 0xee, 1, 6 * 2048 - 1);
    write_image(0, record, sizeof record);
    for (unsigned i = 0; i < 128; i++) {
        memset(entries + i * 128, 0x11, 32);
        put_u32(entries + i * 128 + 32, 2048);
        put_u32(entries + i * 128 + 40, 3 * 2048 - 1);
    }
    memcpy(header, "EFI PART\0\0\1\0\x5c\0\0\0", 16);
    put_u32(header + 72, 2);
    put_u32(header + 80, 128);
    put_u32(header + 84, 128);
    put_u32(header + 16, (uint32_t)crc32(0, header, 92));
    write_image(512, header, sizeof header);
    write_image(1024, entries, sizeof entries);
    alarm(20);
    assert_refused(image, "of 1 file system;");
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(grub_on_a_whole_disk),
        IN_SCRATCH(links_of_any_size),
        IN_SCRATCH(links_without_end),
        IN_SCRATCH(partitions_of_one_kind),
        IN_SCRATCH(directory_without_end),
        cmocka_unit_test(grub_default_picks_the_entry),
        IN_SCRATCH(logical_partition_by_mbr),
        IN_SCRATCH(boot_and_root_partition_by_gpt),
        IN_SCRATCH(extlinux_entry),
        IN_SCRATCH(newest_boot_loader_entry),
        IN_SCRATCH(newest_kernel_without_a_boot_loader),
        IN_SCRATCH(kernel_behind_symbolic_links),
        IN_SCRATCH(names_other_kinds),
        IN_SCRATCH(refuses_with_advice),
        cmocka_unit_test(version_order),
        cmocka_unit_test(parsers_survive_damaged_text),
        IN_SCRATCH(survives_damaged_images),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
