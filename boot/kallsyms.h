#ifndef BOOT_KALLSYMS_H
#define BOOT_KALLSYMS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The symbols of a Linux kernel, out of the compressed table that every kernel with CONFIG_KALLSYMS
 * carries for its own stack traces; the ELF file itself is usually stripped. Understands the
 * layouts of Linux 5.0 to 6.12 (scripts/kallsyms.c, kernel/kallsyms.c), 64-bit x86.
 */
struct kallsyms;

/*
 * Parse the table of an ELF vmlinux, which is not needed afterwards. NULL with *e filled when there
 * is no such table. The caller frees the result.
 */
struct kallsyms *kallsyms_from_elf(const void *vmlinux, size_t len, struct err *e);
void kallsyms_free(struct kallsyms *k);

/* The address of the first symbol of that name, or 0. Per-CPU symbols have small values. */
uint64_t kallsyms_address(const struct kallsyms *k, const char *name);

/*
 * The symbol that holds addr and, unless offset is NULL, how far behind its start addr is; NULL for
 * an address outside the kernel image. The name lives as long as k.
 */
const char *kallsyms_name(const struct kallsyms *k, uint64_t addr, uint64_t *offset);

/* All symbols by index, in order of address; type is as nm prints it ('T', 't', 'D', ...). */
size_t kallsyms_count(const struct kallsyms *k);
const char *kallsyms_symbol(const struct kallsyms *k, size_t i, uint64_t *address, char *type);

#endif
