#ifndef BOOT_DISKIMAGE_DISKIMAGE_H
#define BOOT_DISKIMAGE_DISKIMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/disk/disk.h"

/*
 * What a disk would boot: found by reading it as its own boot loader would, so
 * that `dittovm run disk.img` needs no --kernel.
 */
struct disk_boot {
    uint8_t *kernel; /* the file as it is: a bzImage or an ELF */
    size_t kernel_len;
    uint8_t *initrd; /* several are joined as a boot loader does; NULL when there is none */
    size_t initrd_len;
    char command_line[4096]; /* as the boot loader would give it, or "" */
    char root_device[16];    /* of the root file system on virtio-blk: "vda", "vda1"; or "" */
    char root_uuid[37];      /* of the root file system, or "" */
    char loader[32];         /* what named the kernel: "GRUB", "extlinux", ... */
    char boot_device[16];    /* where it was found */
    char config_path[512];   /* of the boot loader's configuration there, or "" */
    char kernel_path[512], initrd_path[512]; /* as named there; "" for no initrd */
};

/*
 * Look into a disk (no partition table, MBR or GPT; ext2, ext3 or ext4), which is only read; path
 * is what messages call it. In this order: GRUB, extlinux and syslinux, boot loader specification
 * entries, the newest kernel in /boot. The caller frees *out with disk_boot_free(); it is empty on
 * failure.
 */
int diskimage_find_boot(struct disk *disk, const char *path, struct disk_boot *out, struct err *e);
void disk_boot_free(struct disk_boot *b);

#endif
