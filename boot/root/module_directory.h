#ifndef BOOT_ROOT_MODULE_DIRECTORY_H
#define BOOT_ROOT_MODULE_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Of a kernel's release, with its NUL. */
#define KERNEL_RELEASE_MAX 128u

/* Where a kernel's modules are looked for. */
struct kernel_modules_place {
    const char *release; /* of the kernel; "": it does not say */
    const char *named;   /* --modules; NULL: not given */
    int root;            /* the directory that becomes the root */
    const char *kernel;  /* the path of the kernel */
};

/*
 * A kernel's module directory, and the tree that it lies in. What is in it comes from that tree,
 * wherever its links and its lists lead: the guest gets it, and so may not get a file of the
 * host's.
 */
struct module_directory {
    int base;    /* the tree */
    bool one_fs; /* ... which is the machine's root: other file systems are not in it */
    char *path;  /* of the directory, from there */
};

/* False: there is none that has modules.dep or modules.order. Else close it. */
bool module_directory_find(struct module_directory *directory,
                           const struct kernel_modules_place *place);
void module_directory_close(struct module_directory *directory);

/* Whether something is there; and as file_read(), by its path in the directory. */
bool module_directory_has(const struct module_directory *directory, const char *path);
int module_directory_read(const struct module_directory *directory, const char *path, uint64_t max,
                          uint8_t **data, size_t *len, struct err *e);

#endif
