#include "boot/kernel_code.h"

#include <assert.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hidden_ports.h"
#include "boot/boot_elf.h"
#include "boot/code_gap.h"
#include "boot/code_sites.h"
#include "boot/page_aging.h"
#include "mmu/walk.h"

#define SITES_MAX 8192

#define CALLS 4u
/* Pieces of code that are looked through for functions; kernels have five or six. */
#define PIECES_MAX 64u

/* A module's sections, and what they may have of code. */
#define SECTIONS_MAX 4096u
#define CODE_MAX     (64u << 20)

/* ---- the kernel's file ---- */

static int patch_sites(const struct guest_memory *m, const void *vmlinux, size_t len,
                       struct kernel_code *out, unsigned *cr4_writes, bool *all, struct err *e)
{
    struct code_site *sites = calloc(SITES_MAX, sizeof *sites);
    size_t count = 0;

    *cr4_writes = 0;
    if (!sites)
        return err_set(e, STATUS_ERROR, "out of memory");
    int rc = code_sites_in_elf(vmlinux, len, sites, SITES_MAX, &count, all, e);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        uint8_t code[CODE_SITE_BYTES] = {0}, patch[CODE_SITE_BYTES];
        uint8_t *at = guest_memory_at(m, sites[i].pa, sites[i].len);
        if (!at)
            continue;
        memcpy(code, at, sites[i].len);
        const size_t n = code_site_patch(&sites[i], code, patch);
        memcpy(at, patch, n);
        out->patched += n > 0;
        *cr4_writes += sites[i].kind == SITE_CR4_WRITE;
    }
    free(sites);
    return rc;
}

/* ---- the kernel's functions that we change ---- */

/* Have the calls of the function at `target` (0: there is none) in this piece of code write to a
 * port first, unless that is done: *hook is the address of that OUT then. */
static void hook_calls(const struct elf_extent *code, const uint8_t *text, uint8_t *loaded,
                       uint64_t target, uint8_t port, struct code_gap *gap, uint64_t *hook,
                       unsigned *effort)
{
    const uint8_t detour[2 + CODE_REL_BYTES] = {0xe6, port, CODE_JMP};
    size_t call[CALLS];
    unsigned calls = 0;

    if (target && !*hook)
        calls = code_calls_find(text, code->len, code->va, target, call, CALLS, effort);
    if (!calls || !*effort) /* one that was not found would not come by */
        return;
    const size_t at = code_gap_put(gap, loaded, detour, sizeof detour);
    if (!at)
        return;
    code_set_target(loaded + at + 2, code->va + at + 2, target);
    *hook = code->va + at;
    for (unsigned i = 0; i < calls; i++)
        code_set_target(loaded + call[i], code->va + call[i], *hook);
}

static void change_functions(const struct guest_memory *m, const struct elf_view *elf,
                             const struct kallsyms *symbols, struct kernel_code *out)
{
    const uint64_t finalize = kallsyms_address(symbols, "module_finalize");
    const uint64_t kexec = kallsyms_address(symbols, "machine_kexec");
    struct elf_extent code;
    unsigned position = 0, pieces = 0, effort = CODE_SITE_EFFORT;

    while (pieces++ < PIECES_MAX && elf_next_code(elf, &position, &code)) {
        const uint8_t *text = elf->bytes + code.offset;
        uint8_t *loaded = code.pa ? guest_memory_at(m, code.pa, code.len) : NULL;
        struct code_gap gap;
        if (!loaded || !code_gap_find(text, code.len, &gap))
            continue;
        hook_calls(&code, text, loaded, finalize, MODULE_PORT, &gap, &out->module_hook, &effort);
        hook_calls(&code, text, loaded, kexec, KEXEC_PORT, &gap, &out->kexec_hook, &effort);
        out->aging_flushes += page_aging_patch(&code, text, loaded, symbols, &gap);
        entry_sites_patch(&code, text, loaded, symbols, &gap, &out->entries);
    }
}

static bool has_modules(const struct kallsyms *symbols)
{
    return kallsyms_address(symbols, "module_finalize") ||
           kallsyms_address(symbols, "load_module") || kallsyms_address(symbols, "do_init_module");
}

static void find_extent(const struct elf_view *elf, struct kernel_code *out)
{
    out->start = UINT64_MAX;
    for (unsigned i = 0; i < elf_segment_count(elf); i++) {
        const Elf64_Phdr p = elf_segment(elf, i);
        /* Per-CPU segments of older kernels are at address 0. */
        if (p.p_type != PT_LOAD || !p.p_vaddr)
            continue;
        if (p.p_vaddr < out->start)
            out->start = p.p_vaddr;
        if (p.p_vaddr + p.p_memsz > out->end)
            out->end = p.p_vaddr + p.p_memsz;
    }
}

int kernel_code_patch(const struct guest_memory *m, const void *vmlinux, size_t len,
                      const struct kallsyms *symbols, bool is_linux, struct kernel_code *out,
                      struct err *e)
{
    struct elf_view elf;
    unsigned cr4_writes;
    bool all;
    const char *doubt = "";

    *out = (struct kernel_code){0};
    if (elf_open(&elf, vmlinux, len, "kernel", e) < 0 ||
        patch_sites(m, vmlinux, len, out, &cr4_writes, &all, e) < 0)
        return -1;
    find_extent(&elf, out);
    if (symbols)
        change_functions(m, &elf, symbols, out);
    if (!all)
        doubt = "the kernel's code has more that looks like RDTSC than is looked at";
    else if (is_linux && !symbols)
        doubt =
            "the kernel's symbol table (kallsyms) is of no known layout, so RDTSC in its modules "
            "cannot be found in time";
    else if (is_linux && !out->module_hook && has_modules(symbols))
        doubt = "the place where the kernel has a module ready was not found, so RDTSC in modules "
                "cannot be found in time";
    else if (is_linux && !cr4_writes)
        doubt = "no write to CR4 was found in the kernel, so RDTSC in programs may not be trapped";
    else if (is_linux && !out->aging_flushes && page_aging_is_known(symbols))
        doubt = "the place where the kernel ages its pages was not found, so what it takes out of "
                "memory may not be the same";
    snprintf(out->doubt, sizeof out->doubt, "%s", doubt);
    return 0;
}

/* ---- modules ---- */

bool kernel_code_replace(const struct guest_memory *m, uint64_t cr3, const struct code_site *site,
                         struct dma *dma)
{
    uint8_t code[CODE_SITE_BYTES] = {0}, patch[CODE_SITE_BYTES];
    struct translation t;

    if (walk_read(m, cr3, site->va, code, site->len) != site->len)
        return false;
    const size_t n = code_site_patch(site, code, patch);
    for (size_t i = 0; i < n; i++) /* it may lie on two pages */
        if (!walk(m, cr3, site->va + i, &t) || dma->write(dma, t.gpa, patch + i, 1) < 0)
            return false;
    return n > 0;
}

/* False: not all of it was looked at. */
static bool patch_section(const struct guest_memory *m, uint64_t cr3, const Elf64_Shdr *section,
                          struct dma *dma, unsigned *effort)
{
    uint8_t *bytes = malloc(section->sh_size);
    struct code_site *sites = calloc(SITES_MAX, sizeof *sites);
    bool all = false;

    if (bytes && sites) {
        const size_t len = walk_read(m, cr3, section->sh_addr, bytes, section->sh_size);
        const size_t count =
            code_sites_find(bytes, len, section->sh_addr, sites, SITES_MAX, effort);
        for (size_t i = 0; i < count; i++)
            (void)kernel_code_replace(m, cr3, &sites[i], dma);
        all = *effort && count < SITES_MAX;
    }
    free(sites);
    free(bytes);
    return all;
}

/* module_finalize(const Elf_Ehdr *hdr, const Elf_Shdr *sechdrs, struct module *me) */
bool kernel_code_load_module(const struct guest_memory *m, uint64_t cr3, uint64_t hdr,
                             uint64_t sechdrs, struct dma *dma)
{
    unsigned effort = CODE_SITE_EFFORT;
    uint64_t left = CODE_MAX;
    bool all = true;
    Elf64_Ehdr h;

    if (walk_read(m, cr3, hdr, &h, sizeof h) != sizeof h || h.e_shnum > SECTIONS_MAX)
        return false;
    for (unsigned i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr s;
        if (walk_read(m, cr3, sechdrs + i * sizeof s, &s, sizeof s) != sizeof s)
            return false;
        if (!(s.sh_flags & SHF_ALLOC) || !(s.sh_flags & SHF_EXECINSTR) || s.sh_type == SHT_NOBITS ||
            !s.sh_size)
            continue;
        if (s.sh_size > left)
            return false;
        left -= s.sh_size;
        all &= patch_section(m, cr3, &s, dma, &effort);
    }
    return all;
}
