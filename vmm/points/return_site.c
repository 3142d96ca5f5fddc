#include "vmm/points/return_site.h"

#include <string.h>

#include "base/now.h"
#include "mmu/insn.h"
#include "mmu/walk.h"
#include "vmm/points/breakpoint.h"
#include "vmm/points/site.h"

#define MAX_SITES  14
#define STACK_SIZE 16384ull /* of a Linux kernel thread; its top is aligned to it */
#define STACK_SCAN 1024     /* words looked at */
/* A place reached as soon as this is in a loop, where replay would pass it too often. */
#define QUICK_NS 2000000ull

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
                    struct breakpoint *out)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct kvm_sregs sregs = {.cr3 = cr3, .cs.l = 1};
    struct translation t;
    struct insn insn;

    if (va < 1ull << 63 || !walk(m, cr3, va, &t) || !t.executable || t.user ||
        !follows_call(m, cr3, va) || !insn_decode(m, &sregs, va, &insn) ||
        site_quality(m, &insn, vcpu->regs, &sregs) < SITE_GOOD ||
        !code_is_stable(&host->stable, va, t.gpa, insn.bytes, insn.info.length))
        return false;
    *out = (struct breakpoint){.va = va, .gpa = t.gpa};
    return guest_memory_at(m, t.gpa, 1) != NULL;
}

/* The return addresses on the stack, innermost first. */
static unsigned collect(struct vcpu *vcpu, const struct clock_host *host, unsigned skip,
                        struct breakpoint *sites)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct kvm_sregs sregs;
    uint64_t rsp = (vcpu->regs->rsp + 7) & ~7ull;
    unsigned count = 0;

    vcpu_get_sregs(vcpu, &sregs);
    uint64_t end = (rsp | (STACK_SIZE - 1)) + 1;
    for (unsigned i = 0; i < STACK_SCAN && rsp < end && count < MAX_SITES; i++, rsp += 8) {
        struct breakpoint site;
        uint64_t word;
        if (walk_read(m, sregs.cr3, rsp, &word, 8) != 8)
            break;
        if (!examine(vcpu, host, sregs.cr3, word, &site))
            continue;
        bool known = false;
        for (unsigned k = 0; k < count; k++)
            known |= sites[k].va == word;
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

static enum clock_choice run_to_sites(struct breakpoints *set, const struct clock_host *host,
                                      struct breakpoint *sites, unsigned count, uint64_t quick_ns,
                                      struct vcpu_exit *exit, struct err *e)
{
    static const enum clock_choice otherwise[] = {
        [BREAKPOINT_EXIT] = CLOCK_EXITED,
        [BREAKPOINT_STOPPED] = CLOCK_LATER,
        [BREAKPOINT_FAILED] = CLOCK_FAILED,
    };
    const uint64_t began = host_now_ns();

    while (set->first) {
        enum breakpoint_stop stop = breakpoints_run(set, exit, e);
        if (stop != BREAKPOINT_HIT)
            return otherwise[stop];
        if (host_now_ns() - began >= quick_ns && clock_can_stop(set->vcpu, host))
            return CLOCK_CHOSEN;
        for (unsigned i = 0; i < count; i++)
            if (sites[i].hit)
                breakpoints_remove(set, &sites[i]);
    }
    return CLOCK_LATER;
}

static enum clock_choice run_with(struct vcpu *vcpu, const struct clock_host *host,
                                  struct breakpoint *sites, unsigned count, uint64_t quick_ns,
                                  uint64_t kick_ns, struct vcpu_exit *exit, struct err *e)
{
    struct breakpoints set;
    enum clock_choice choice = CLOCK_FAILED;
    unsigned added = 0;

    breakpoints_init(&set, vcpu, host->hook);
    while (added < count && breakpoints_add(&set, &sites[added], e) == 0)
        added++;
    if (added == count) {
        host->kick_after(host->opaque, kick_ns);
        choice = run_to_sites(&set, host, sites, count, quick_ns, exit, e);
    }
    for (unsigned i = 0; i < added; i++)
        breakpoints_remove(&set, &sites[i]);
    return choice;
}

enum clock_choice return_site_run(struct vcpu *vcpu, const struct clock_host *host, unsigned skip,
                                  struct vcpu_exit *exit, struct err *e)
{
    struct breakpoint sites[MAX_SITES];
    unsigned count = collect(vcpu, host, skip, sites);

    if (!count)
        return CLOCK_LATER;
    return run_with(vcpu, host, sites, count, QUICK_NS, skip ? host->wait_ns : host->wait_ns / 4,
                    exit, e);
}

enum clock_choice return_site_run_to(struct vcpu *vcpu, const struct clock_host *host, uint64_t va,
                                     uint64_t kick_ns, struct vcpu_exit *exit, struct err *e)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct breakpoint site = {.va = va};
    struct kvm_sregs sregs;
    struct translation t;

    vcpu_get_sregs(vcpu, &sregs);
    if (sregs.ss.dpl != 0 || !walk(m, sregs.cr3, va, &t) || !guest_memory_at(m, t.gpa, 1))
        return CLOCK_LATER;
    return run_with(vcpu, host, &site, 1, 0, kick_ns, exit, e);
}
