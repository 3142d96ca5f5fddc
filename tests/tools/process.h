#ifndef TESTS_TOOLS_PROCESS_H
#define TESTS_TOOLS_PROCESS_H

#include <errno.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

/*
 * Code that runs as part of a process, traced instruction by instruction, to check dittovm's own
 * stepping against: nothing is shared with vmm/points/stepper.c. The code runs in the tool's own
 * process, and the tracer is a handler of the signal that RFLAGS.TF causes: a process of its own
 * under ptrace() would cost two changes of address space a step, which takes milliseconds in the
 * emulated KVM host.
 */
#define EFLAGS_TF (1ull << 8)
#define EFLAGS_IF (1ull << 9)

#define FPU_BYTES       464 /* of FXSAVE; behind it is the kernel's */
#define FPU_STATE_BV    512 /* XSTATE_BV: which parts of an XSAVE image are not as after a reset */
#define FPU_X87_AND_SSE 3

/* One line for a tool to end with. */
static inline _Noreturn void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(1);
}

/* What is to be seen at an address of the code's; `fd` is mapped from the same offset, -1 is
 * zeroes. */
static inline uint8_t *process_map(uint64_t at, size_t size, int protection, int fd)
{
    const int flags = MAP_SHARED | MAP_FIXED_NOREPLACE | (fd < 0 ? MAP_ANONYMOUS : 0);
    void *memory = mmap((void *)at, size, protection, flags, fd, fd < 0 ? 0 : (off_t)at);

    if (memory != (void *)at)
        fail("cannot map the process's memory");
    return memory;
}

/* ---- between the tool and the code ---- */

static struct {
    struct kvm_regs regs;
    uint8_t fpu[FPU_BYTES];
    int signal; /* that ended its last step */
    bool running;
    mcontext_t tool; /* where the tool goes on */
    uint8_t tool_fpu[FPU_BYTES];
} traced;

static const uint8_t greg_of[18] = {
    REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RSP, REG_RBP, REG_R8,
    REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP, REG_EFL,
};

static inline void process_load_fpu(mcontext_t *m, const uint8_t from[FPU_BYTES])
{
    uint8_t *image = (uint8_t *)m->fpregs;

    memcpy(image, from, FPU_BYTES);
    image[FPU_STATE_BV] |= FPU_X87_AND_SSE;
}

/* SIGUSR1, raised by process_step(): return from it into the code. */
static void process_enter(int number, siginfo_t *info, void *context)
{
    mcontext_t *m = &((ucontext_t *)context)->uc_mcontext;
    const uint64_t *regs = (const uint64_t *)&traced.regs;

    (void)number, (void)info;
    traced.tool = *m;
    memcpy(traced.tool_fpu, m->fpregs, FPU_BYTES);
    for (unsigned i = 0; i < sizeof greg_of; i++)
        m->gregs[greg_of[i]] = (greg_t)regs[i];
    m->gregs[REG_EFL] |= EFLAGS_TF | EFLAGS_IF;
    process_load_fpu(m, traced.fpu);
    traced.running = true;
}

/* What ends a step: return to where SIGUSR1 was raised. */
static void process_leave(int number, siginfo_t *info, void *context)
{
    mcontext_t *m = &((ucontext_t *)context)->uc_mcontext;
    uint64_t *regs = (uint64_t *)&traced.regs;

    (void)info;
    if (!traced.running) { /* the tool's own fault */
        signal(number, SIG_DFL);
        return;
    }
    traced.running = false;
    traced.signal = number;
    for (unsigned i = 0; i < sizeof greg_of; i++)
        regs[i] = (uint64_t)m->gregs[greg_of[i]];
    traced.regs.rflags &= ~EFLAGS_TF;
    memcpy(traced.fpu, m->fpregs, FPU_BYTES);
    memcpy(m->gregs, traced.tool.gregs, sizeof m->gregs);
    process_load_fpu(m, traced.tool_fpu);
}

static inline void process_start(void)
{
    static const int leaving[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    static uint8_t stack[64 << 10];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = process_enter, .sa_flags = SA_SIGINFO};
    const uint16_t fcw = 0x37f;
    const uint32_t mxcsr = 0x1f80;
    int failed = sigaltstack(&own, NULL) | sigaction(SIGUSR1, &action, NULL);

    action = (struct sigaction){.sa_sigaction = process_leave, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    for (unsigned i = 0; i < sizeof leaving / sizeof *leaving; i++)
        failed |= sigaction(leaving[i], &action, NULL);
    if (failed)
        fail("cannot trace a process");
    memcpy(traced.fpu, &fcw, sizeof fcw); /* FXSAVE, Intel SDM volume 1, 10.5.1 */
    memcpy(traced.fpu + 24, &mxcsr, sizeof mxcsr);
}

/* Execute one instruction, or an iteration of a REP, with and into these registers; false when it
 * faulted. */
static inline bool process_step(struct kvm_regs *regs)
{
    traced.regs = *regs;
    raise(SIGUSR1);
    *regs = traced.regs;
    return traced.signal == SIGTRAP;
}

/* ---- what the code is, from bytes alone ---- */

/* Whether a conditional branch is at `at`; for code that has no prefixes but 66, F2, F3 and REX. */
static inline bool is_branch(const uint8_t *at)
{
    while (*at == 0x66 || *at == 0xf2 || *at == 0xf3 || (*at & 0xf0) == 0x40)
        at++;
    return (*at & 0xf0) == 0x70 || (*at & 0xfc) == 0xe0 ||
           (at[0] == 0x0f && (at[1] & 0xf0) == 0x80);
}

/* Whether the flags are pushed there: TF is seen. */
static inline bool is_pushf(const uint8_t *at)
{
    return *at == 0x9c || (at[0] == 0x66 && at[1] == 0x9c);
}

#endif
