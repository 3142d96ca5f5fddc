#ifndef BOOT_BOOT_ELF_H
#define BOOT_BOOT_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * A bounded view of a hostile little-endian x86-64 ELF file in memory. Nothing is owned; the bytes
 * must outlive the view.
 */
struct elf_view {
    const uint8_t *bytes;
    size_t len;
    Elf64_Ehdr header;
};

/* One run of bytes that the file holds and that lands at a virtual address. */
struct elf_extent {
    uint64_t va, pa; /* pa: p_paddr of the segment that holds it, or 0 when none does */
    size_t offset;   /* in the file */
    size_t len;      /* > 0; offset + len is within the file */
};

/* Far more than a kernel has: who looks at them for each of its sections is soon done. */
#define ELF_SEGMENTS_MAX 64u

/* Check the header, that the program header table lies in the file and is no longer than that, and
 * that pieces of code (elf_next_code()) do not overlap. `what` names the file's role in the error,
 * as in "not a Linux kernel". */
int elf_open(struct elf_view *elf, const void *bytes, size_t len, const char *what, struct err *e);

unsigned elf_segment_count(const struct elf_view *elf);
/* Program header i (below elf_segment_count), unchecked as to its contents. */
Elf64_Phdr elf_segment(const struct elf_view *elf, unsigned i);

/*
 * The executable bytes of the file: executable sections that are not to be written or, when the
 * section table is missing or names none, executable PT_LOAD segments. Call with *position = 0 and
 * until it returns false; extents that leave the file are skipped.
 */
bool elf_next_code(const struct elf_view *elf, unsigned *position, struct elf_extent *out);

#endif
