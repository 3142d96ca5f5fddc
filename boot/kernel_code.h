#ifndef BOOT_KERNEL_CODE_H
#define BOOT_KERNEL_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "boot/code_sites.h"
#include "boot/entry_sites.h"
#include "boot/kallsyms.h"
#include "mmu/dma.h"
#include "mmu/memory.h"

/*
 * The guest kernel's code, of which every instruction that has to exit is replaced
 * (boot/code_sites.h) before it can run: that of the kernel's file when it is loaded, that of a
 * module when the kernel has put it together.
 *
 * For modules the one call of module_finalize(), which every x86 Linux has, is led over two
 * instructions of ours in a gap of the kernel's text,
 *
 *     out %al,$MODULE_PORT
 *     jmp module_finalize
 *
 * There the module's sections lie at their final addresses, relocated, and nothing of them has run.
 * For a replay that is a port that is written, and writes of a device. The calls of machine_kexec()
 * are led over KEXEC_PORT in the same way (vmm/machine/kexec.h).
 */
struct kernel_code {
    uint64_t module_hook;   /* address of that OUT; 0: there is none */
    uint64_t kexec_hook;    /* the same of KEXEC_PORT */
    uint64_t start, end;    /* what the kernel's file takes of the address space */
    unsigned patched;       /* sites in the kernel's file */
    unsigned aging_flushes; /* places where it ages a page (boot/page_aging.h) */
    struct entry_count entries;
    char doubt[160]; /* what could not be found, and so may make a replay diverge; "": nothing */
};

/*
 * Replace the sites in a kernel that was loaded into memory and has not run. `symbols` may be NULL.
 * `linux`: it is one, and what is not found in it is a doubt. -1: it is no ELF file.
 */
int kernel_code_patch(const struct guest_memory *m, const void *vmlinux, size_t len,
                      const struct kallsyms *symbols, bool is_linux, struct kernel_code *out,
                      struct err *e);

/* At the module hook, called with these arguments of module_finalize(): replace the sites in the
 * module, as a device that writes to memory. False: not all of its code was looked at, as it is
 * mapped in part only, or has more that looks like sites than any module. */
bool kernel_code_load_module(const struct guest_memory *m, uint64_t cr3, uint64_t hdr,
                             uint64_t sechdrs, struct dma *dma);

/* Replace a site in memory under page table root cr3, whichever pages it lies on. False: there is
 * nothing to be replaced. */
bool kernel_code_replace(const struct guest_memory *m, uint64_t cr3, const struct code_site *site,
                         struct dma *dma);

#endif
