#ifndef TESTS_TOOLS_BREAKPOINT_GUEST_H
#define TESTS_TOOLS_BREAKPOINT_GUEST_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "mmu/walk.h"
#include "vmm/kvm/micro_guest.h"
#include "vmm/points/breakpoint.h"
#include "vmm/points/clock.h"
#include "vmm/points/fingerprint.h"

/* What tests/tools/breakpoints.c and tests/tools/breakpoint_ends.c share: one small program at a
 * time in a real KVM, its breakpoints, and what is found, as TAP. */

/* Where the programs are: a page that user code cannot write to, as that of real programs. */
#define CODE_AT                 0x600000u
#define ADDRESS(program, label) (CODE_AT + (uint64_t)((label) - (program)))

static struct micro_guest guest;
static struct gp_hook hook;
static struct breakpoints set;
static struct vcpu_exit last;
static unsigned number, bad;

static inline void fail(const char *what)
{
    printf("Bail out! %s\n", what);
    exit(1);
}

static inline void ok(bool good, const char *what, unsigned cpl,
                      const struct breakpoint_means *means)
{
    printf("%sok %u %s at CPL%u, by %s\n", good ? "" : "not ", ++number, what, cpl,
           means ? means->name : "what there is");
    bad += !good;
    if (!good)
        printf("# rip %#llx, rax %llu, rcx %llu, exit %d, %llu exits\n",
               (unsigned long long)guest.vcpu.regs->rip, (unsigned long long)guest.vcpu.regs->rax,
               (unsigned long long)guest.vcpu.regs->rcx, last.kind, (unsigned long long)set.exits);
}

/* A #GP hook: the gate leads to the HLT byte of the vector's own handler. */
static inline void install_hook(void)
{
    struct kvm_sregs sregs;
    struct gate gp;

    vcpu_get_sregs(&guest.vcpu, &sregs);
    uint8_t *gate =
        guest_memory_at(&guest.vm.memory, sregs.idt.base + VECTOR_GP * GATE_BYTES, GATE_BYTES);
    if (!gate_read(&guest.vm.memory, &sregs, VECTOR_GP, &gp))
        fail("no gate");
    hook = (struct gp_hook){.handler = gp.handler, .rip = gp.handler + 2};
    gate_redirect(gate, hook.rip);
}

/* Memory of the kernel's own is what is compared at CPL0. */
static inline void protect(unsigned cpl)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(&guest.vcpu, &sregs);
    uint64_t *root = guest_memory_at(&guest.vm.memory, sregs.cr3, 8);
    if (cpl == 0)
        *root &= ~PTE_USER;
    uint64_t *pointers = guest_memory_at(&guest.vm.memory, *root & PTE_ADDRESS, 8);
    uint64_t *directory = guest_memory_at(&guest.vm.memory, *pointers & PTE_ADDRESS, PAGE_BYTES);
    directory[CODE_AT >> 21] &= ~PTE_WRITE;
}

static inline void place(const uint8_t *code, size_t length)
{
    struct kvm_regs regs = *guest.vcpu.regs;

    memcpy(guest_memory_at(&guest.vm.memory, CODE_AT, length), code, length);
    regs.rip = CODE_AT;
    vcpu_set_regs(&guest.vcpu, &regs);
}

static inline void start(const uint8_t *code, size_t length, unsigned cpl,
                         const struct breakpoint_means *means)
{
    struct probe_outcome o = {0};

    vcpu_destroy(&guest.vcpu);
    vm_destroy(&guest.vm);
    if (!micro_guest_start(&guest, code, length, cpl, &o))
        fail(o.detail);
    protect(cpl);
    place(code, length);
    install_hook();
    breakpoints_init(&set, &guest.vcpu, &hook);
    set.only = means;
}

static inline bool is_clean(const uint8_t *code, size_t length)
{
    return !memcmp(guest_memory_at(&guest.vm.memory, CODE_AT, length), code, length);
}

static inline void add(struct breakpoint *b)
{
    struct err e = {0};

    if (breakpoints_add(&set, b, &e) < 0)
        fail(e.text);
}

static inline enum breakpoint_stop run(void)
{
    struct err e = {0};
    enum breakpoint_stop stop = breakpoints_run(&set, &last, &e);

    if (stop == BREAKPOINT_FAILED)
        fail(e.text);
    return stop;
}

static inline bool is_done(enum breakpoint_stop stop)
{
    return stop == BREAKPOINT_EXIT && last.kind == EXIT_PIO_OUT && last.at == MICRO_DONE;
}

static inline struct trace_condition reg_is(unsigned reg, uint64_t value)
{
    return (struct trace_condition){.reg = reg, .value = value};
}

/* What `stops` of a breakpoint says that only counts its passes. */
static inline bool never_stops(const struct breakpoint *b, struct vcpu *vcpu,
                               const struct kvm_regs *regs, const struct kvm_sregs *sregs)
{
    (void)b;
    (void)vcpu;
    (void)regs;
    (void)sregs;
    return false;
}

/* The landmark of the pass where RAX has this value. */
static inline struct landmark take(const uint8_t *code, size_t length, const uint8_t *at,
                                   unsigned cpl, uint64_t rax)
{
    const struct trace_condition condition = reg_is(0, rax);
    struct breakpoint b = {
        .va = ADDRESS(code, at), .cpl = cpl, .condition = &condition, .conditions = 1};
    struct landmark l = {.gpa = b.va, .code_len = 1, .code = {*at}};
    struct kvm_sregs sregs;

    start(code, length, cpl, NULL);
    add(&b);
    if (run() != BREAKPOINT_HIT)
        fail("the pass of a landmark was not found");
    breakpoints_remove(&set, &b);
    vcpu_get_sregs(&guest.vcpu, &sregs);
    fingerprint_take(&guest.vcpu, guest.vcpu.regs, &sregs, &l);
    return l;
}

static inline enum clock_landing land(const struct landmark *l, struct landing_stats *stats)
{
    const atomic_bool never = false;
    struct clock clock = {0};
    struct err e = {0};

    if (clock_open(&clock, &clock_landmark, &guest.vcpu, &hook, &e) < 0)
        fail(e.text);
    clock.patience = 2;
    const enum clock_landing landing = clock_landmark.land(&clock, l, &last, &never, &e);
    if (landing == LAND_FAILED)
        fail(e.text);
    *stats = clock.stats;
    clock_close(&clock);
    return landing;
}

/* True: it has run in the emulated host, with this status, or could not. */
static inline bool runs_elsewhere(const char *name, char **argv, int *status)
{
    static char self[4096];
    struct err e = {0};

    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        fail("/proc/self/exe");
    struct invocation inv = {.self = self, .argv = argv, .host = HOST_AUTO};
    struct host_needs needs = {.guest_memory = 16u << 20};
    if (!host_redirect(&inv, &needs, status, &e))
        return false;
    if (e.text[0])
        fprintf(stderr, "%s: %s\n", name, e.text);
    return true;
}

#endif
