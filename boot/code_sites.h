#ifndef BOOT_CODE_SITES_H
#define BOOT_CODE_SITES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Instructions of kernel code that no stock KVM lets us see, and that we have to see: reads of the
 * time-stamp counter, and every access to CR4, of which TSD is ours (vmm/kvm/cr4.h). Each is
 * replaced by port I/O of the same length, which exits.
 */
enum code_site_kind {
    SITE_RDTSC,     /* 0F 31 */
    SITE_RDTSCP,    /* 0F 01 F9: stays, as the CPU model has none and it raises #UD */
    SITE_CR4_READ,  /* 0F 20 /4, whatever its ModRM.mod */
    SITE_CR4_WRITE, /* 0F 22 /4 */
};

struct code_site {
    enum code_site_kind kind;
    uint64_t va;
    uint64_t pa;   /* where the kernel's loader puts it; 0 when the code is not from an ELF file */
    size_t offset; /* into the code or the ELF file */
    uint8_t len;   /* bytes, prefixes included, at most CODE_SITE_BYTES */
};
#define CODE_SITE_BYTES 15u

/*
 * Find the sites in len bytes of 64-bit code that will run at va. The byte pattern alone also
 * occurs inside other instructions, so each candidate is confirmed by decoding from several places
 * ahead of it: x86 decoding synchronises itself within a few instructions. Writes at most max sites
 * in order of address and returns how many were written; a return of max means there may be more.
 *
 * *effort: how many places may still be tried as the start of one; it is 0 when the search was
 * given up. Real kernels have a few hundred: CODE_SITE_EFFORT bounds the work on made-up ones to
 * some 10 s.
 */
#define CODE_SITE_EFFORT 65536u
size_t code_sites_find(const uint8_t *code, size_t len, uint64_t va, struct code_site *out,
                       size_t max, unsigned *effort);

/* The same for all executable code of an ELF vmlinux, with the effort of a kernel. *all: nothing
 * was given up, and there are no more than max. Returns -1 when it is no x86-64 ELF file. */
int code_sites_in_elf(const void *vmlinux, size_t len, struct code_site *out, size_t max,
                      size_t *count, bool *all, struct err *e);

/* How many bytes at the site are to be replaced, and by which; `code` is what is there. 0: none, as
 * it is another instruction than was found, or one that stays. */
size_t code_site_patch(const struct code_site *site, const uint8_t code[CODE_SITE_BYTES],
                       uint8_t patch[CODE_SITE_BYTES]);

/* The calls of the function at `target` in len bytes of code that will run at va: offsets, at most
 * max. *effort: as above. */
unsigned code_calls_find(const uint8_t *code, size_t len, uint64_t va, uint64_t target, size_t *out,
                         unsigned max, unsigned *effort);

/* Whether an instruction starts at `at`, as far as decoding from several places ahead tells. */
bool code_starts_at(const uint8_t *code, size_t len, size_t at);

#endif
