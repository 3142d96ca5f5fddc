#include "boot/diskimage/diskimage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot/diskimage/diskimage_ext.h"
#include "boot/diskimage/diskimage_kind.h"
#include "boot/diskimage/diskimage_methods.h"
#include "boot/diskimage/diskimage_table.h"

static void find_root(struct disk *d)
{
    static const char *const signs[] = {"/etc/os-release", "/sbin/init", "/bin/sh"};

    for (size_t sign = 0; sign < 3; sign++)
        for (size_t i = 0; i < d->count; i++)
            if (ext_fs_exists(d->volumes[i].fs, signs[sign])) {
                memcpy(d->boot->root_device, d->volumes[i].part.device,
                       sizeof(d->boot->root_device));
                ext_fs_uuid(d->volumes[i].fs, d->boot->root_uuid);
                return;
            }
}

#define NAMED_MAX 8u /* partitions in a message */

/* None of the image's partitions can be read: say what they are. */
static int refuse_partitions(int fd, const struct disk_partition *parts, size_t count,
                             const char *path, struct err *e)
{
    char list[NAMED_MAX * 64] = "";
    size_t len = 0;

    for (size_t i = 0; i < count && i < NAMED_MAX; i++)
        len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s %s", i ? ", " : "",
                                parts[i].device, disk_kind(fd, parts[i].offset));
    return err_set(
        e, STATUS_ERROR,
        "no Linux kernel found in %s: only ext2, ext3 and ext4 are looked into, and its "
        "partitions are others (%s%s); give --kernel, and --initrd and --append root=...",
        path, list, count > NAMED_MAX ? ", ..." : "");
}

static int open_volumes(struct disk *d, int fd, uint64_t size, const char *path, struct err *e)
{
    struct disk_partition parts[PARTITIONS_MAX];
    struct ext_fs *whole = ext_fs_open(path, 0, &d->reads_left);
    uint8_t magic[4];

    if (whole) {
        d->volumes[d->count++] = (struct volume){
            .part = {.device = "vda", .size = size},
            .fs = whole,
        };
        return 0;
    }

    size_t count = disk_partitions(fd, size, parts, PARTITIONS_MAX);

    for (size_t i = 0; i < count; i++) {
        struct ext_fs *fs = ext_fs_open(path, parts[i].offset, &d->reads_left);

        if (fs)
            d->volumes[d->count++] = (struct volume){.part = parts[i], .fs = fs};
    }
    if (d->count > 0)
        return 0;
    if (count > 0)
        return refuse_partitions(fd, parts, count, path, e);
    if (pread(fd, magic, sizeof(magic), 0) == sizeof(magic) && memcmp(magic, "QFI\xfb", 4) == 0)
        return err_set(e, STATUS_ERROR,
                       "%s is a qcow2 image; convert it with qemu-img convert -O raw", path);
    if (strcmp(disk_kind(fd, 0), "unknown") != 0)
        return err_set(
            e, STATUS_ERROR,
            "no Linux kernel found in %s: only ext2, ext3 and ext4 are looked into, and it "
            "is %s; give --kernel, and --initrd and --append root=...",
            path, disk_kind(fd, 0));
    return err_set(e, STATUS_ERROR,
                   "%s is not a raw disk image: it has neither a partition table nor an ext2, "
                   "ext3 or ext4 file system",
                   path);
}

static int search(struct disk *d, const char *path, struct err *e)
{
    static bool (*const methods[])(struct disk *, const struct volume *) = {
        diskimage_try_grub, diskimage_try_extlinux, diskimage_try_entries, diskimage_try_newest};

    find_root(d);
    for (size_t m = 0; m < sizeof(methods) / sizeof(*methods); m++)
        for (size_t i = 0; i < d->count; i++)
            if (methods[m](d, &d->volumes[i]))
                return 0;
    return err_set(e, STATUS_ERROR,
                   "no Linux kernel found in %s: looked for grub.cfg, extlinux.conf, "
                   "loader/entries/*.conf and vmlinuz-* in /boot and / of %zu ext file system%s; "
                   "give --kernel",
                   path, d->count, d->count == 1 ? "" : "s");
}

int diskimage_find_boot(const char *path, struct disk_boot *out, struct err *e)
{
    memset(out, 0, sizeof(*out));

    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_set(e, STATUS_ERROR, "cannot open the disk image %s: %s", path, strerror(errno));

    struct stat st;
    off_t size = -1;

    if (fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)))
        size = lseek(fd, 0, SEEK_END);
    if (size <= 0) {
        close(fd);
        return err_set(e, STATUS_ERROR,
                       "%s is not a disk image: it is empty, or neither a file nor a block device",
                       path);
    }

    struct disk *d = calloc(1, sizeof(*d));

    if (!d) {
        close(fd);
        return err_set(e, STATUS_ERROR, "out of memory for reading %s", path);
    }
    d->boot = out;
    d->reads_left = EXT_READS_MAX;

    int rc = open_volumes(d, fd, (uint64_t)size, path, e);

    if (rc == 0)
        rc = search(d, path, e);
    for (size_t i = 0; i < d->count; i++)
        ext_fs_close(d->volumes[i].fs);
    free(d);
    close(fd);
    if (rc < 0)
        disk_boot_free(out);
    return rc;
}

void disk_boot_free(struct disk_boot *b)
{
    free(b->kernel);
    free(b->initrd);
    memset(b, 0, sizeof(*b));
}
