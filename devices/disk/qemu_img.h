#ifndef DEVICES_DISK_QEMU_IMG_H
#define DEVICES_DISK_QEMU_IMG_H

#include <stddef.h>

#include "base/err.h"

/* A name of a file as QEMU's tools take it: one with a colon would be a protocol's. */
#define QEMU_FILE_BYTES (4096u + 2)
void qemu_file_name(const char *path, char name[QEMU_FILE_BYTES]);

/* Run qemu-img with these arguments (args[0] is its name, NULL ends them), its output to the file
 * `output`, or nowhere with -1. -1 with *e unless it says that all went well: "cannot WHAT: " and
 * what it said. */
int qemu_img_run(char *const *args, int output, const char *what, struct err *e);

/* What one of these tools has said into the file `said`: its first line, without its name. */
void qemu_tool_said(int said, const char *tool, char *text, size_t size);

#endif
