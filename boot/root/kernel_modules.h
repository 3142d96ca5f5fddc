#ifndef BOOT_ROOT_KERNEL_MODULES_H
#define BOOT_ROOT_KERNEL_MODULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "boot/root/module_directory.h"

/*
 * The modules by which a kernel finds its root disk, where they are not built in. They are looked
 * for in the kernel's module directory: modules.builtin and modules.dep (depmod(8)), or
 * modules.order.
 */
struct kernel_modules {
    struct kernel_module {
        char *name; /* of its file, without a directory and without a suffix of compression */
        uint8_t *data;
        size_t len;
    } * at; /* in the order in which they are to be loaded */
    unsigned count;
};

/* The release of a kernel, a bzImage or an ELF file; "" where it does not say. -1: it is no kernel.
 */
int kernel_release(const uint8_t *kernel, size_t len, char release[KERNEL_RELEASE_MAX],
                   struct err *e);

/*
 * Load them, decompressed. A kernel whose release has no directory anywhere is taken to have all
 * built in, unless --modules was given. -1: a file is damaged, or a directory has not what must be
 * there. network: also those of a NIC. Free with kernel_modules_free().
 */
int kernel_modules_load(const struct kernel_modules_place *place, bool network,
                        struct kernel_modules *modules, struct err *e);
void kernel_modules_free(struct kernel_modules *modules);

#endif
