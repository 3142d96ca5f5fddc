#ifndef BOOT_ROOT_MODULE_FILE_H
#define BOOT_ROOT_MODULE_FILE_H

#include "base/bytes.h"
#include "base/err.h"
#include "boot/root/module_directory.h"

/* Read a kernel module, `path` in `directory`: plain, or with the suffix .xz, .zst or .gz and
 * compressed so. The caller frees *out. */
int module_file_read(const struct module_directory *directory, const char *path, struct bytes *out,
                     struct err *e);

#endif
