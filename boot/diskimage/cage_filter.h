#ifndef BOOT_DISKIMAGE_CAGE_FILTER_H
#define BOOT_DISKIMAGE_CAGE_FILTER_H

/*
 * What a program in a cage (cage.h) may ask of the kernel. Its disk is this descriptor, out of the
 * way of those that the kernel gives it: reads of it, what it opens and what it executes are its
 * keeper's to answer. Other system calls fail with EPERM.
 */
#define CAGE_DISK_FD 100
/* And has this name, of something that exists: programs look whether it does before they open it.
 */
#define CAGE_DISK_NAME "/dev/null"

/* Put this process into the cage, for good. The keeper's descriptor, or -1 with errno. */
int cage_filter_install(void);

#endif
