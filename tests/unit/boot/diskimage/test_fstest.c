/* Images whose file systems grub-fstest reads. Skipped where it or a mkfs is not installed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

#include <cmocka.h>

#include "boot/diskimage/diskimage.h"
#include "boot/diskimage/diskimage_fstest.h"
#include "boot/diskimage/diskimage_handed.h"
#include "tests/unit/random.h"

#define PROGRAMS "/usr/bin:/bin:/usr/sbin:/sbin"

static char work[64]; /* a scratch directory, made anew for every test */
static char image[96];
static struct disk_boot boot;
static struct err error;

static int shell(const char *format, ...)
{
    char command[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command);
}

static int setup(void **state)
{
    (void)state;
    setenv("PATH", PROGRAMS, 1);
    strcpy(work, "/tmp/test_fstest.XXXXXX");
    if (!mkdtemp(work))
        return -1;
    snprintf(image, sizeof image, "%s/disk.img", work);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    disk_boot_free(&boot);
    setenv("PATH", PROGRAMS, 1);
    return shell("rm -rf %s", work);
}

static void need(const char *tool)
{
    if (shell("command -v grub-fstest %s >/dev/null", tool) != 0)
        skip();
}

static void put(const char *path, const char *text)
{
    char name[256];

    assert_int_equal(shell("mkdir -p $(dirname %s/tree%s)", work, path), 0);
    snprintf(name, sizeof name, "%s/tree%s", work, path);
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void make_fat(void)
{
    assert_int_equal(shell("truncate -s 8M %s && mkfs.fat -i 12345678 %s >/dev/null && "
                           "mcopy -s -i %s %s/tree/* ::/",
                           image, image, image, work),
                     0);
}

static int find_boot(void)
{
    struct disk *disk = disk_raw_open(image, false, &error);

    disk_boot_free(&boot);
    const int rc = disk ? diskimage_find_boot(disk, image, &boot, &error) : -1;
    disk_close(disk);
    return rc;
}

static void assert_finds(const char *kernel, const char *initrd, const char *line)
{
    if (find_boot() < 0)
        fail_msg("%s", error.text);
    assert_int_equal(boot.kernel_len, strlen(kernel));
    assert_memory_equal(boot.kernel, kernel, strlen(kernel));
    assert_int_equal(boot.initrd_len, strlen(initrd));
    if (initrd[0])
        assert_memory_equal(boot.initrd, initrd, strlen(initrd));
    assert_string_equal(boot.command_line, line);
    assert_true(boot.asked);
}

static void entries_on_fat(void **state)
{
    (void)state;
    need("mkfs.fat mcopy");
    put("/loader/loader.conf", "timeout 3\n");
    put("/loader/entries/debian-6.9.conf", "title D\nversion 6.9\nlinux /debian/6.9/linux\ninitrd "
                                           "/debian/6.9/initrd.img\noptions nine\n");
    put("/loader/entries/debian-6.10.conf",
        "title D\nversion 6.10\nlinux /debian/6.10/linux\noptions ten\n");
    put("/debian/6.9/linux", "nine");
    put("/debian/6.9/initrd.img", "nine initrd");
    put("/debian/6.10/linux", "ten");
    make_fat();
    assert_finds("ten", "", "ten");
    assert_string_equal(boot.loader, "boot loader entry");
    assert_string_equal(boot.boot_device, "vda");
    assert_string_equal(boot.config_path, "/loader/entries/debian-6.10.conf");
    put("/loader/loader.conf", "default debian-6.9*\n");
    make_fat();
    assert_finds("nine", "nine initrd", "nine");
}

/* With what another one of this program finds there. */
static void is_handed_on(void **state)
{
    char path[DISKIMAGE_HANDED_MAX];
    struct disk_boot other;

    (void)state;
    need("mkfs.fat mcopy");
    put("/loader/entries/x.conf", "linux /k\ninitrd /i\noptions a b\n");
    put("/k", "kernel");
    put("/i", "initrd");
    make_fat();
    assert_finds("kernel", "initrd", "a b");
    assert_int_equal(diskimage_hand(&boot, path, &error), 0);
    assert_int_equal(diskimage_take_handed(path, &other, &error), 0);
    assert_memory_equal(other.kernel, "kernel", 6);
    assert_memory_equal(other.initrd, "initrd", 6);
    assert_string_equal(other.config_path, boot.config_path);
    disk_boot_free(&other);
    assert_int_equal(truncate(path, sizeof other + 8), 0);
    assert_int_equal(diskimage_take_handed(path, &other, &error), -1);
    assert_int_equal(truncate(path, sizeof other - 1), 0);
    assert_int_equal(diskimage_take_handed(path, &other, &error), -1);
    assert_null(other.kernel);
    unlink(path);
    assert_int_equal(diskimage_take_handed(path, &other, &error), -1);
}

static void root_in_a_subvolume_of_btrfs(void **state)
{
    (void)state;
    need("mkfs.btrfs");
    put("/@rootfs/boot/vmlinuz-6.1", "kernel");
    put("/@rootfs/boot/initrd.img-6.1", "initrd");
    put("/@rootfs/etc/os-release", "ID=debian\n");
    assert_int_equal(shell("truncate -s 128M %s && mkfs.btrfs -q --rootdir %s/tree %s >/dev/null",
                           image, work, image),
                     0);
    assert_finds("kernel", "initrd", "");
    assert_string_equal(boot.loader, "newest kernel");
    assert_string_equal(boot.root_device, "vda");
    assert_string_equal(boot.root_flags, "subvol=@rootfs");
    assert_int_equal(strlen(boot.root_uuid), 36);

    put("/@rootfs/boot/grub/grub.cfg", "menuentry x {\n linux /@rootfs/boot/vmlinuz-6.1 "
                                       "root=/dev/vda rootflags=subvol=@rootfs\n}\n");
    assert_int_equal(shell("mkfs.btrfs -f -q --rootdir %s/tree %s >/dev/null", work, image), 0);
    assert_finds("kernel", "", "root=/dev/vda rootflags=subvol=@rootfs");
    assert_string_equal(boot.loader, "GRUB");
    assert_string_equal(boot.config_path, "/@rootfs/boot/grub/grub.cfg");
}

/* A boot loader is of that disk, whatever it says: neither the host's files nor others are. */
static void paths_lead_nowhere_else(void **state)
{
    (void)state;
    need("mkfs.fat mcopy");
    put("/loader/entries/x.conf", "linux (host)/etc/passwd\n");
    put("/grub/grub.cfg", "menuentry x {\n linux (host)/etc/passwd\n}\n"
                          "menuentry y {\n linux /../../../etc/passwd\n}\n");
    make_fat();
    assert_int_equal(find_boot(), -1);
    assert_non_null(strstr(error.text, "no Linux kernel found"));
}

static void not_installed(void **state)
{
    (void)state;
    need("mkfs.fat mcopy");
    put("/loader/entries/x.conf", "linux /k\n");
    put("/k", "kernel");
    make_fat();
    setenv("PATH", work, 1);
    assert_int_equal(find_boot(), -1);
    assert_non_null(strstr(error.text, "(FAT): grub-fstest is not installed; run 'apt-get install "
                                       "grub-common'"));
}

static void survives_damaged_images(void **state)
{
    (void)state;
    need("mkfs.fat mcopy");
    put("/loader/entries/x.conf", "linux /k\n");
    put("/k", "kernel");
    make_fat();
    const int fd = open(image, O_RDWR);
    assert_true(fd >= 0);
    srand(1);
    for (unsigned i = 0; i < rounds(300); i++) {
        uint8_t good[512], bad[512];
        const off_t at = i % 2 ? 0 : (off_t)(rand() % 100) * 512;

        assert_int_equal(pread(fd, good, sizeof good, at), sizeof good);
        memcpy(bad, good, sizeof bad);
        for (unsigned k = 0; k < 3; k++)
            bad[(size_t)rand() % 96] ^= (uint8_t)(1 << rand() % 8);
        assert_int_equal(pwrite(fd, bad, sizeof bad, at), sizeof bad);
        if (find_boot() == 0)
            assert_non_null(boot.kernel);
        assert_int_equal(pwrite(fd, good, sizeof good, at), sizeof good);
    }
    close(fd);
    assert_finds("kernel", "", "");
}

static void devices_as_it_names_them(void **state)
{
    static const struct {
        const char *line, *grub, *device, *uuid;
    } good[] = {
        {"\tPartition loop0,gpt1: Filesystem type fat - Label `x, UUID 1', UUID 2CB6-D8B9 - "
         "Partition start at 1024KiB",
         "loop0,gpt1", "vda1", "2CB6-D8B9"},
        {"Device loop0: Filesystem type xfs, UUID 9ad4a6b6-49c2 - Sector", "loop0", "vda",
         "9ad4a6b6-49c2"},
        {"\tPartition loop0,msdos15: Filesystem type ext*", "loop0,msdos15", "vda15", ""},
        {"Device lvm/system-root: Filesystem type btrfs, UUID 1 - S", "lvm/system-root",
         "mapper/system-root", "1"},
        {"Device md/0: Filesystem type xfs", "md/0", "md0", ""},
        {"Device md/boot: Filesystem type xfs", "md/boot", "md/boot", ""},
    };
    static const char *const bad[] = {
        "",
        "Device loop0: No known filesystem detected",
        "Device host: Filesystem type hostfs - Sector",
        "Device proc: Filesystem type procfs - Sector",
        "Device lvm/a b: Filesystem type xfs",
        "Device lvm/a)b: Filesystem type xfs",
        "\tPartition loop0,gpt0: Filesystem type xfs",
        "\tPartition loop0,gpt1,bsd1: Filesystem type xfs",
        "\tPartition md/0,gpt1: Filesystem type xfs",
        "Volume loop0: Filesystem type xfs",
    };
    struct fstest_device d;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(fstest_parse_device(good[i].line, strlen(good[i].line), &d));
        assert_string_equal(d.grub, good[i].grub);
        assert_string_equal(d.device, good[i].device);
        assert_string_equal(d.uuid, good[i].uuid);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(fstest_parse_device(bad[i], strlen(bad[i]), &d));
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(entries_on_fat),
        IN_SCRATCH(is_handed_on),
        IN_SCRATCH(root_in_a_subvolume_of_btrfs),
        IN_SCRATCH(paths_lead_nowhere_else),
        IN_SCRATCH(not_installed),
        IN_SCRATCH(survives_damaged_images),
        cmocka_unit_test(devices_as_it_names_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
