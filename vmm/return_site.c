#include "vmm/return_site.h"

#include <string.h>

#include "base/now.h"
#include "mmu/walk.h"
#include "vmm/insn.h"
#include "vmm/site.h"

#define MAX_SITES  14
#define SITE_BYTES 16u
#define STACK_SIZE 16384ull /* of a Linux kernel thread; its top is aligned to it */
#define STACK_SCAN 1024     /* words looked at */
/* A place reached as soon as this is in a loop, where replay would pass it too often. */
#define QUICK_NS 2000000ull
/* How long the end of an instruction that repeats itself is waited for. */
#define RUN_TO_NS 200000000ull

struct return_site {
    uint64_t va;
    uint8_t *at;
    uint8_t saved[SITE_BYTES]; /* what was there and behind it, as far as the page goes */
    unsigned len;
    uint64_t armed_ns;
    bool armed;
};

bool code_is_stable(const struct stable_code *stable, uint64_t va, uint64_t gpa,
                    const uint8_t *code, uint64_t len)
{
    for (unsigned i = 0; i < stable->count; i++) {
        uint64_t offset = gpa - stable->range[i].gpa;
        if (gpa >= stable->range[i].gpa && offset + len <= stable->range[i].len &&
            va - stable->range[i].va == offset)
            return !memcmp(stable->range[i].bytes + offset, code, len);
    }
    return true;
}

/* Whether a CALL ends right before va. */
static bool follows_call(const struct guest_memory *m, uint64_t cr3, uint64_t va)
{
    uint8_t before[7];

    if (walk_read(m, cr3, va - sizeof before, before, sizeof before) != sizeof before)
        return false;
    if (before[2] == 0xe8)
        return true;
    for (unsigned len = 2; len <= 7; len++) /* FF /2, of any length */
        if (before[7 - len] == 0xff && (before[8 - len] >> 3 & 7) == 2)
            return true;
    return false;
}

static bool examine(struct vcpu *vcpu, const struct clock_host *host, uint64_t cr3, uint64_t va,
                    struct return_site *out)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct kvm_sregs sregs = {.cr3 = cr3};
    struct translation t;
    struct insn insn;

    if (va < 1ull << 63 || !walk(m, cr3, va, &t) || !t.executable || t.user ||
        !follows_call(m, cr3, va) || !insn_decode(m, cr3, va, &insn) ||
        site_quality(m, &insn, vcpu->regs, &sregs) != SITE_GOOD ||
        !code_is_stable(&host->stable, va, t.gpa, insn.bytes, insn.info.length))
        return false;
    *out = (struct return_site){.va = va, .at = guest_memory_at(m, t.gpa, 1)};
    return out->at != NULL;
}

/* The return addresses on the stack, innermost first. */
static unsigned collect(struct vcpu *vcpu, const struct clock_host *host, unsigned skip,
                        struct return_site *sites)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct kvm_sregs sregs;
    uint64_t rsp = (vcpu->regs->rsp + 7) & ~7ull;
    unsigned count = 0;

    vcpu_get_sregs(vcpu, &sregs);
    uint64_t end = (rsp | (STACK_SIZE - 1)) + 1;
    for (unsigned i = 0; i < STACK_SCAN && rsp < end && count < MAX_SITES; i++, rsp += 8) {
        struct return_site site;
        uint64_t word;
        if (walk_read(m, sregs.cr3, rsp, &word, 8) != 8)
            break;
        if (!examine(vcpu, host, sregs.cr3, word, &site))
            continue;
        bool known = false;
        for (unsigned k = 0; k < count; k++)
            known |=
                sites[k].va - word + SITE_BYTES < 2 * SITE_BYTES; /* they compare their bytes */
        if (known)
            continue;
        if (skip) {
            skip--;
            continue;
        }
        sites[count++] = site;
    }
    return count;
}

static void arm(struct return_site *site)
{
    site->len = (unsigned)(PAGE_BYTES - (site->va & (PAGE_BYTES - 1)));
    if (site->len > SITE_BYTES)
        site->len = SITE_BYTES;
    memcpy(site->saved, site->at, site->len);
    site->armed = true;
    site->armed_ns = host_now_ns();
    *site->at = HLT;
}

/* The guest may have freed the page (start-up code) and put data there, in which a byte that looks
 * like ours is its own: what lies behind it tells. */
static void disarm(struct return_site *site)
{
    if (site->armed && *site->at == HLT && !memcmp(site->at + 1, site->saved + 1, site->len - 1))
        *site->at = site->saved[0];
    site->armed = false;
}

static struct return_site *find_hit(struct vcpu *vcpu, const struct vcpu_exit *exit,
                                    struct return_site *sites, unsigned count)
{
    for (unsigned i = 0; exit->kind == EXIT_HLT && i < count; i++)
        if (sites[i].armed && vcpu->regs->rip == sites[i].va + 1)
            return &sites[i];
    return NULL;
}

static enum clock_choice run_armed(struct vcpu *vcpu, struct return_site *sites, unsigned count,
                                   uint64_t quick_ns, struct vcpu_exit *exit, struct err *e)
{
    for (unsigned live = count; live; live--) {
        if (vcpu_run(vcpu, exit, e) < 0)
            return CLOCK_FAILED;
        if (exit->kind == EXIT_KICK)
            return CLOCK_LATER;
        struct return_site *hit = find_hit(vcpu, exit, sites, count);
        if (!hit)
            return CLOCK_EXITED;
        bool quick = host_now_ns() - hit->armed_ns < quick_ns;
        struct kvm_regs regs = *vcpu->regs;
        regs.rip = hit->va;
        disarm(hit);
        vcpu_set_regs(vcpu, &regs);
        if (!quick && vcpu_interruptible(vcpu))
            return CLOCK_CHOSEN;
    }
    return CLOCK_LATER;
}

enum clock_choice return_site_run(struct vcpu *vcpu, const struct clock_host *host, unsigned skip,
                                  struct vcpu_exit *exit, struct err *e)
{
    struct return_site sites[MAX_SITES];
    unsigned count = collect(vcpu, host, skip, sites);

    if (!count)
        return CLOCK_LATER;
    for (unsigned i = 0; i < count; i++)
        arm(&sites[i]);
    host->kick_after(host->opaque, skip ? host->wait_ns : host->wait_ns / 4);
    enum clock_choice choice = run_armed(vcpu, sites, count, QUICK_NS, exit, e);
    for (unsigned i = 0; i < count; i++)
        disarm(&sites[i]);
    return choice;
}

enum clock_choice return_site_run_to(struct vcpu *vcpu, const struct clock_host *host, uint64_t va,
                                     struct vcpu_exit *exit, struct err *e)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct return_site site = {.va = va};
    struct kvm_sregs sregs;
    struct translation t;

    vcpu_get_sregs(vcpu, &sregs);
    site.at = walk(m, sregs.cr3, va, &t) ? guest_memory_at(m, t.gpa, 1) : NULL;
    if (!site.at || sregs.ss.dpl != 0)
        return CLOCK_LATER;
    arm(&site);
    host->kick_after(host->opaque, RUN_TO_NS);
    enum clock_choice choice = run_armed(vcpu, &site, 1, 0, exit, e);
    disarm(&site);
    return choice;
}
