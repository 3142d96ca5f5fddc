#ifndef CLI_SYMBOL_FILE_H
#define CLI_SYMBOL_FILE_H

#include "base/bytes.h"
#include "recording/symbol_list.h"

/*
 * An ELF file for debuggers: the kernel's symbols and the address ranges of its code and data, none
 * of their bytes (those are the guest's).
 *
 *     header | .symtab | .strtab | .shstrtab | section headers
 *
 * A section holds a run of addresses: code where there are functions, data elsewhere; kallsyms does
 * not say what the kernel's own sections were. Per-CPU variables are absolute symbols.
 */

/* Append the file to out. The list is not empty; its names become .strtab. */
void symbol_file_write(struct bytes *out, const struct symbol_list *list);

#endif
