#ifndef BOOT_BOOT_H
#define BOOT_BOOT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "boot/boot_elf.h"
#include "mmu/memory.h"

/*
 * Direct boot of a 64-bit Linux kernel: the uncompressed vmlinux is put into guest memory where its
 * program headers say, and entered at startup_64. The decompressor stub never runs, so the kernel
 * is never relocated (no KASLR) and its static symbols are its addresses.
 */
struct boot_config {
    const void *kernel; /* a bzImage or an ELF vmlinux; hostile */
    size_t kernel_len;
    const void *initrd; /* may be NULL */
    size_t initrd_len;
    const char *command_line; /* may be NULL */
    uint64_t acpi_rsdp;       /* guest-physical address of the RSDP, 0: none */
};

/* Selectors of the boot GDT (Linux x86 boot protocol, "64-bit boot protocol"). */
#define BOOT_CS 0x10
#define BOOT_DS 0x18

/*
 * The first vCPU's registers. The caller sets CS = BOOT_CS (64-bit code), the data segments to
 * BOOT_DS (flat), CR0 = PE | ET | PG, CR4 = PAE, EFER = LME | LMA, RFLAGS = 2 (interrupts off).
 */
struct boot_state {
    uint64_t rip, rsi, rsp, cr3;
    uint64_t gdt_base;
    uint16_t gdt_limit;
    uint64_t kernel_begin;
    uint64_t kernel_end; /* first guest-physical byte after the kernel and its bss */
    uint64_t initrd_base;
    char version[128]; /* as the bzImage states it, or "" */
    uint8_t *vmlinux;  /* the ELF that was loaded; the caller frees it */
    size_t vmlinux_len;
};

/*
 * Load kernel, initrd, command line, zero page, identity page tables (4 GiB) and GDT into m.
 * On failure nothing is allocated, but guest memory may be partly written.
 * Implements Linux Documentation/arch/x86/boot.rst (2.12 or later) and zero-page.rst.
 */
int boot_load(const struct boot_config *c, struct guest_memory *m, struct boot_state *out,
              struct err *e);

/*
 * The same for the kernel alone, decompressed. Check every PT_LOAD segment, and set out->rip,
 * out->kernel_begin and out->kernel_end; errors as above.
 */
int boot_check_kernel(const struct elf_view *elf, struct boot_state *out, struct err *e);
/* Then: put the segments at their physical addresses, in memory that goes as far as out->kernel_end
 * at least, and zero what the file does not hold. */
void boot_put_kernel(const struct elf_view *elf, struct guest_memory *m);

#endif
