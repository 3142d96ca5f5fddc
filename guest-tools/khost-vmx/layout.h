/* Where in memory Bochs puts what it starts, and what the boot sector leaves. Physical addresses. */
#define MAP       0x9000     /* what the BIOS says of memory: entries of the size MAP_ENTRY */
#define MAP_ENTRY 24         /* 20 bytes of INT 15h, and 4 that are 0 behind the last one */
#define REQUEST   0x0ff00000 /* text: sizes of the ram disk, in decimal, and the kernel's command line */
#define START     0x10000000 /* start.c */
#define KERNEL    0x11000000 /* vmlinux, an ELF file */
#define RAMDISK   0x18000000
