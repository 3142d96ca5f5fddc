#ifndef VMM_RDTSC_SITES_H
#define VMM_RDTSC_SITES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "vmm/kallsyms.h"

/*
 * Where kernel code reads the time-stamp counter. No stock KVM can trap it at CPL0, so each site is
 * patched to an instruction of the same length that exits (Intel SDM volume 2: RDTSC is 0F 31,
 * RDTSCP is 0F 01 F9).
 */
struct rdtsc_site {
    uint64_t va;
    uint64_t pa;   /* where the kernel's loader puts it; 0 when the text is not from an ELF file */
    size_t offset; /* into the text or the ELF file */
    bool rdtscp;   /* three bytes long instead of two */
};

/*
 * Find the sites in len bytes of 64-bit code that will run at va. The byte pattern alone also
 * occurs inside other instructions, so each candidate is confirmed by decoding from several places
 * ahead of it: x86 decoding synchronises itself within a few instructions. Writes at most max sites
 * in order of address and returns how many were written; a return of max means there may be more.
 */
size_t rdtsc_sites_find(const uint8_t *text, size_t len, uint64_t va, struct rdtsc_site *out,
                        size_t max);

/* The same for all executable code of an ELF vmlinux. Returns -1 when it is no x86-64 ELF file. */
int rdtsc_sites_in_elf(const void *vmlinux, size_t len, struct rdtsc_site *out, size_t max,
                       size_t *count, struct err *e);

/*
 * Where kernel code chooses the CR4 that it runs with. To make RDTSC at CPL3 raise #GP from the
 * first process on, CR4.TSD (bit 2) must be set in the CR4 that the vCPU starts with, and every one
 * of these immediates replaced by `patched`. Later CR4 writes go through the kernel's per-CPU copy,
 * which it reads from CR4 in between, so nothing else is needed.
 */
enum cr4_site_kind {
    CR4_BITS_SET,     /* start-up code sets these bits (Linux 6.1) */
    CR4_BITS_KEPT,    /* start-up code clears all but these (Linux 6.12) */
    CR4_BITS_CLEARED, /* cpu_init() clears VME, PVI, TSD and DE */
};

struct cr4_site {
    enum cr4_site_kind kind;
    uint64_t va;      /* of the instruction */
    uint64_t pa;      /* of its 32-bit immediate */
    size_t offset;    /* of its 32-bit immediate, in the ELF file */
    uint32_t patched; /* the immediate with which TSD stays set */
};

#define CR4_SITES_MAX 8

/*
 * Find them all in the executable code of an ELF vmlinux. k may be NULL; then those in cpu_init()
 * are not looked for. *count may be 0: the kernel does it in another way. Whoever wants TSD needs
 * at least one of the first two kinds and one of the third.
 */
int cr4_sites_in_elf(const void *vmlinux, size_t len, const struct kallsyms *k,
                     struct cr4_site out[CR4_SITES_MAX], size_t *count, struct err *e);

#endif
