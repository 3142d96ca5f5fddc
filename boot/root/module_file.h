#ifndef BOOT_ROOT_MODULE_FILE_H
#define BOOT_ROOT_MODULE_FILE_H

#include "base/bytes.h"
#include "base/err.h"

/* Read a kernel module, `path` in `directory`: plain, or with the suffix .xz, .zst or .gz and
 * compressed so. The caller frees *out. */
int module_file_read(int directory, const char *path, struct bytes *out, struct err *e);

#endif
