#ifndef BOOT_DISKIMAGE_DISKIMAGE_BOOT_H
#define BOOT_DISKIMAGE_DISKIMAGE_BOOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a disk would boot: found by reading it as its own boot loader would. */
struct disk_boot {
    uint8_t *kernel; /* the file as it is: a bzImage or an ELF */
    size_t kernel_len;
    uint8_t *initrd; /* several are joined as a boot loader does; NULL when there is none */
    size_t initrd_len;
    char command_line[4096]; /* as the boot loader would give it, or "" */
    char root_device[128];   /* of the root file system below /dev: "vda", "vda1"; or "" */
    char root_flags[64];     /* what it is to be mounted with: "subvol=@rootfs"; or "" */
    char root_uuid[37];      /* of the root file system, or "" */
    char loader[32];         /* what named the kernel: "GRUB", "extlinux", ... */
    char boot_device[128];   /* where it was found */
    char config_path[512];   /* of the boot loader's configuration there, or "" */
    char kernel_path[512], initrd_path[512]; /* as named there; "" for no initrd */
    bool asked; /* grub-fstest read something of it, which takes time */
};

void disk_boot_free(struct disk_boot *b);

#endif
