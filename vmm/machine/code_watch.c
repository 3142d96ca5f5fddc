#include "vmm/machine/code_watch.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hidden_ports.h"
#include "boot/code_sites.h"
#include "mmu/walk.h"
#include "vmm/kvm/cr4.h"
#include "vmm/machine/kexec.h"

#define TOP   0xffffffff80000000ull /* where Linux has its code: the highest 2 GiB */
#define PAGES (2ull * 512 * 512)

/* How often it is looked. vCPUs that run at the same time have to be stopped for it. */
#define EVERY_NS      100000000ull
#define CREW_EVERY_NS 1000000000ull
/* A page that is known is looked at again at each so many looks. */
#define ROUNDS 64u
/* Decoding gets in step with the code within so many bytes before a page. */
#define LEAD_BYTES 512u
#define SITES_MAX  64u   /* found at once */
#define EFFORT     4096u /* in one look at all pages (boot/code_sites.h) */

struct known_page {
    uint32_t frame;  /* GPA / PAGE_BYTES */
    uint32_t digest; /* 0: not known */
};

struct code_watch {
    uint64_t due_ns;
    unsigned looks;
    unsigned effort;               /* that is left of this look's */
    struct known_page page[PAGES]; /* of TOP on */
};

struct code_watch *code_watch_create(void)
{
    return calloc(1, sizeof(struct code_watch)); /* of which little is ever touched */
}

void code_watch_destroy(struct code_watch *w)
{
    free(w);
}

bool code_watch_is_due(const struct machine *m, uint64_t now)
{
    return m->recorder && m->code_watch && m->hook.rip && now >= m->code_watch->due_ns;
}

static void say(struct machine *m, const char *what, uint64_t va)
{
    machine_doubt(m, "%s at %#llx was found only after it may have run", what,
                  (unsigned long long)va);
}

/* The page at va, of which what it holds is not known. False: not all of it was looked at. */
static bool look_at_page(struct machine *m, uint64_t cr3, uint64_t va)
{
    static const char *const names[] = {
        [SITE_RDTSC] = "RDTSC in kernel code",
        [SITE_RDTSCP] = "RDTSCP in kernel code",
        [SITE_CR4_READ] = "a read of CR4",
        [SITE_CR4_WRITE] = "a write to CR4",
    };
    const struct guest_memory *memory = &m->vm.memory;
    uint8_t code[LEAD_BYTES + PAGE_BYTES + CODE_SITE_BYTES - 1];
    struct code_site site[SITES_MAX];
    struct translation t;

    /* What comes before it counts only if it can be executed, too. */
    const bool lead = walk(memory, cr3, va - LEAD_BYTES, &t) && t.executable;
    const uint64_t from = lead ? va - LEAD_BYTES : va;
    const size_t len =
        walk_read(memory, cr3, from, code, va + PAGE_BYTES - from + CODE_SITE_BYTES - 1);
    size_t count, done = 0;

    do { /* what comes behind a site is an instruction's start */
        count = code_sites_find(code + done, len - done, from + done, site, SITES_MAX,
                                &m->code_watch->effort);
        for (size_t i = 0; i < count; i++)
            if (site[i].va >= va && site[i].va < va + PAGE_BYTES &&
                kernel_code_replace(memory, cr3, &site[i], &m->dma.dma))
                say(m, names[site[i].kind], site[i].va);
        if (count)
            done = site[count - 1].va + site[count - 1].len - from;
    } while (count == SITES_MAX);
    return m->code_watch->effort;
}

static void look_at(struct machine *m, uint64_t cr3, uint64_t va, uint64_t gpa)
{
    struct code_watch *w = m->code_watch;
    struct known_page *known = &w->page[(va - TOP) / PAGE_BYTES];
    const uint32_t frame = (uint32_t)(gpa / PAGE_BYTES);
    const uint64_t page = (va - TOP) / PAGE_BYTES;

    if (va >= m->kernel_code.start && va < m->kernel_code.end)
        return;
    if (known->digest && known->frame == frame && page % ROUNDS != w->looks % ROUNDS)
        return;
    const uint8_t *bytes = guest_memory_any(&m->vm.memory, gpa, PAGE_BYTES);
    if (!bytes)
        return;
    const uint32_t digest = (uint32_t)XXH3_64bits(bytes, PAGE_BYTES) | 1;
    if (known->digest == digest && known->frame == frame)
        return;
    *known = (struct known_page){frame, 0}; /* the next look goes on here */
    if (w->effort && look_at_page(m, cr3, va))
        known->digest = (uint32_t)XXH3_64bits(bytes, PAGE_BYTES) | 1;
}

static const uint64_t *table_at(const struct guest_memory *m, uint64_t entry)
{
    return entry & PTE_PRESENT ? guest_memory_any(m, entry & PTE_ADDRESS, PAGE_BYTES) : NULL;
}

/* What a table of the lowest level, or a large page, maps: 2 MiB from va on. */
static void look_at_2m(struct machine *m, uint64_t cr3, uint64_t va, uint64_t entry)
{
    const uint64_t *table;

    if (!(entry & PTE_PRESENT) || entry & PTE_NX)
        return;
    if (entry & PTE_LARGE) {
        const uint64_t gpa = entry & PTE_ADDRESS & ~0x1fffffull;
        for (unsigned i = 0; i < 512; i++)
            look_at(m, cr3, va + i * PAGE_BYTES, gpa + i * PAGE_BYTES);
        return;
    }
    table = table_at(&m->vm.memory, entry);
    for (unsigned i = 0; table && i < 512; i++)
        if ((table[i] & (PTE_PRESENT | PTE_USER | PTE_NX)) == PTE_PRESENT)
            look_at(m, cr3, va + i * PAGE_BYTES, table[i] & PTE_ADDRESS);
}

/* Whether what is at the address of the module hook is no longer what was put there. */
static bool is_another_kernel(struct machine *m, uint64_t cr3)
{
    static const uint8_t hook[] = {0xe6, MODULE_PORT};
    uint8_t code[sizeof hook];
    const uint64_t at = m->kernel_code.module_hook;

    return at && walk_read(&m->vm.memory, cr3, at, code, sizeof code) == sizeof code &&
           memcmp(code, hook, sizeof code);
}

void code_watch_look(struct machine *m, struct vcpu *vcpu, uint64_t now)
{
    const struct guest_memory *memory = &m->vm.memory;
    struct code_watch *w = m->code_watch;
    struct kvm_sregs sregs;

    w->due_ns = now + (m->config.parallel ? CREW_EVERY_NS : EVERY_NS);
    w->looks++;
    w->effort = EFFORT;
    vcpu_get_sregs(vcpu, &sregs);
    if (is_another_kernel(m, sregs.cr3)) {
        machine_doubt(m,
                      "the machine has started another kernel (kexec), of which RDTSC is trapped "
                      "only once it is found");
        kexec_forget_kernel(m);
    }
    /* On its way up a CPU has it clear. */
    if (vcpu->regs->rip >= TOP && cr4_tsd_is_lost(vcpu)) {
        recorder_tsd_set(m->recorder);
        vcpu_set_sregs(vcpu, &sregs);
        machine_doubt(m, "RDTSC in programs was not trapped for a moment: CR4.TSD was clear");
    }
    const uint64_t *root = guest_memory_any(memory, sregs.cr3 & PTE_ADDRESS, PAGE_BYTES);
    const uint64_t *upper = root ? table_at(memory, root[511]) : NULL;
    for (unsigned i = 510; upper && i < 512; i++) {
        const uint64_t *middle = upper[i] & PTE_LARGE ? NULL : table_at(memory, upper[i]);
        for (unsigned k = 0; middle && k < 512; k++)
            look_at_2m(m, sregs.cr3, TOP + ((i - 510ull) * 512 + k) * (PAGE_BYTES * 512ull),
                       middle[k]);
    }
    if (!w->effort)
        machine_doubt(m, "so much in the kernel's code looks like RDTSC that not all of it was "
                         "looked at in time");
}
