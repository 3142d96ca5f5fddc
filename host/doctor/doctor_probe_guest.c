/*
 * Probes: can real guests run here at all, and can they be driven from user space?
 */
#include <string.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include "base/x86.h"
#include "host/doctor/doctor.h"
#include "vmm/kvm/micro_guest.h"

GUEST_CODE(micro_sse, "movdqa 0x800000, %xmm0\n"
                      "paddq %xmm0, %xmm0\n"
                      "pshufb %xmm0, %xmm0\n"
                      "crc32b %al, %ecx\n"
                      "fxsave 0x800100\n" GUEST_DONE);
GUEST_CODE(micro_popcnt, "mov $0xff, %eax\n"
                         "popcnt %rax, %rbx\n" GUEST_DONE);
GUEST_CODE(micro_cmpxchg16b, "xor %eax, %eax\n"
                             "xor %edx, %edx\n"
                             "mov $1, %ebx\n"
                             "xor %ecx, %ecx\n"
                             "lock cmpxchg16b 0x800000\n" GUEST_DONE);
/* From CPL3 by SYSCALL to CPL0 and by SYSRET back. */
GUEST_CODE(micro_syscall, "syscall\n"
                          "after_syscall:\n" GUEST_DONE "kernel_entry:\n"
                          "mov %cs, %ebx\n"
                          "mov $0xff, %edi\n"
                          "popcnt %rdi, %rsi\n"
                          "movdqa 0x800000, %xmm0\n"
                          "paddq %xmm0, %xmm0\n"
                          "lock cmpxchg16b 0x800000\n"
                          "sysretq\n");
extern const uint8_t after_syscall[], kernel_entry[];

GUEST_CODE(micro_hlt, "hlt\n" GUEST_DONE);
GUEST_CODE(micro_sti_hlt, "sti\n"
                          "hlt\n" GUEST_DONE);
GUEST_CODE(micro_window, "mov $100000, %ecx\n"
                         "1: dec %ecx\n"
                         "jnz 1b\n"
                         "sti\n"
                         "nop\n"
                         "nop\n"
                         "2: jmp 2b\n");
GUEST_CODE(micro_increment, "inc %rax\n" GUEST_DONE);
GUEST_CODE(micro_spin, "1: inc %rcx\n"
                       "jmp 1b\n");

static void run_to_end(const uint8_t *code, size_t length, struct probe_outcome *o)
{
    struct micro_guest g;

    if (micro_guest_start(&g, code, length, 0, o) && micro_guest_finish(&g, o))
        probe_says(o, PROBE_OK, "executed");
}

static void probe_sse(struct probe_outcome *o)
{
    run_to_end(PROGRAM(micro_sse), o);
}

static void probe_cmpxchg16b(struct probe_outcome *o)
{
    run_to_end(PROGRAM(micro_cmpxchg16b), o);
}

static void probe_popcnt(struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_popcnt), 0, o) || !micro_guest_finish(&g, o))
        return;
    if (g.vcpu.regs->rbx == 8)
        probe_says(o, PROBE_OK, "executed");
    else
        probe_says(o, PROBE_BROKEN, "popcnt of 0xff is %llu", (unsigned long long)g.vcpu.regs->rbx);
}

/* AMD APM volume 2, 6.1.1: STAR holds the selectors, LSTAR the entry. */
void probe_real_guest(struct probe_outcome *o)
{
    struct micro_guest g;
    const uint64_t entry = MICRO_CODE + (uint64_t)(kernel_entry - micro_syscall);

    if (!micro_guest_start(&g, PROGRAM(micro_syscall), 3, o) ||
        !micro_guest_set_msr(&g, MSR_STAR, 0x23ull << 48 | (uint64_t)MICRO_KERNEL_CS << 32, o) ||
        !micro_guest_set_msr(&g, MSR_LSTAR, entry, o))
        return;
    bool finished = micro_guest_finish(&g, o);
    const struct kvm_regs *regs = g.vcpu.regs;
    if ((regs->rbx & 3) == 3)
        probe_says(o, PROBE_BROKEN, "it arrives at CPL3, not at CPL0");
    else if (finished && regs->rbx != MICRO_KERNEL_CS)
        probe_says(o, PROBE_BROKEN, "it arrives with the code segment %#llx",
                   (unsigned long long)regs->rbx);
    else if (finished && regs->rsi != 8)
        probe_says(o, PROBE_BROKEN, "popcnt of 0xff behind it is %llu",
                   (unsigned long long)regs->rsi);
    else if (finished)
        probe_says(o, PROBE_OK, "arrives at CPL0, and SYSRET at CPL3");
}

static void probe_hlt(struct probe_outcome *o)
{
    struct micro_guest g;

    if (micro_guest_start(&g, PROGRAM(micro_hlt), 0, o) && micro_guest_expect(&g, EXIT_HLT, 0, o))
        probe_says(o, PROBE_OK, "exits to user space");
}

static void probe_injection(struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_sti_hlt), 0, o) ||
        !micro_guest_expect(&g, EXIT_HLT, 0, o))
        return;
    if (!vcpu_interruptible(&g.vcpu)) {
        probe_says(o, PROBE_BROKEN, "a guest halted behind sti is not interruptible");
        return;
    }
    vcpu_inject(&g.vcpu, 0x30);
    if (micro_guest_expect(&g, EXIT_PIO_OUT, 0x30, o))
        probe_says(o, PROBE_OK, "KVM_INTERRUPT, no in-kernel irqchip");
}

static void probe_window(struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_window), 0, o))
        return;
    vcpu_want_window(&g.vcpu, true);
    if (!micro_guest_expect(&g, EXIT_WINDOW, 0, o))
        return;
    vcpu_want_window(&g.vcpu, false);
    if (g.vcpu.regs->rcx != 0) {
        probe_says(o, PROBE_BROKEN, "the window opened while interrupts were disabled");
        return;
    }
    vcpu_inject(&g.vcpu, 0x31);
    if (micro_guest_expect(&g, EXIT_PIO_OUT, 0x31, o))
        probe_says(o, PROBE_OK, "opens behind sti");
}

static void probe_sync_regs(struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_increment), 0, o))
        return;
    g.vcpu.regs->rax = 41;
    g.vcpu.run->kvm_dirty_regs |= KVM_SYNC_X86_REGS;
    if (!micro_guest_finish(&g, o))
        return;
    if (g.vcpu.regs->rax == 42)
        probe_says(o, PROBE_OK, "both ways");
    else
        probe_says(o, PROBE_BROKEN, "rax is %llu and not 42", (unsigned long long)g.vcpu.regs->rax);
}

static void probe_immediate_exit(struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_increment), 0, o))
        return;
    vcpu_kick(&g.vcpu);
    if (!micro_guest_expect(&g, EXIT_KICK, 0, o) || !micro_guest_finish(&g, o))
        return;
    if (g.vcpu.regs->rax == 1)
        probe_says(o, PROBE_OK, "nothing ran before it");
    else
        probe_says(o, PROBE_BROKEN, "the guest ran in spite of it");
}

static struct vcpu *to_kick;

static void kick(int signal_number)
{
    (void)signal_number;
    vcpu_kick(to_kick);
}

static void probe_kick(struct probe_outcome *o)
{
    struct micro_guest g;
    const struct sigaction action = {.sa_handler = kick};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    const struct itimerspec soon = {.it_value.tv_nsec = 10000000};
    timer_t timer;

    if (!micro_guest_start(&g, PROGRAM(micro_spin), 0, o))
        return;
    to_kick = &g.vcpu;
    sigaction(SIGUSR1, &action, NULL);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) < 0 ||
        timer_settime(timer, 0, &soon, NULL) < 0) {
        probe_says(o, PROBE_BROKEN, "cannot make a timer");
        return;
    }
    if (!micro_guest_expect(&g, EXIT_KICK, 0, o))
        return;
    if (g.vcpu.regs->rcx > 0)
        probe_says(o, PROBE_OK, "stops a spinning guest");
    else
        probe_says(o, PROBE_BROKEN, "the guest never ran");
}

static const char no_real_guests[] = "this KVM is not used";

const struct probe doctor_guest_probes[] = {
    {"SYSCALL from CPL3", probe_real_guest, true, no_real_guests},
    {"SSE at CPL0", probe_sse, true, no_real_guests},
    {"popcnt at CPL0", probe_popcnt, true, no_real_guests},
    {"cmpxchg16b at CPL0", probe_cmpxchg16b, true, no_real_guests},
    {"hlt exit", probe_hlt, true, no_real_guests},
    {"interrupt injection", probe_injection, true, no_real_guests},
    {"interrupt window", probe_window, true, no_real_guests},
    {"registers in kvm_run", probe_sync_regs, true, no_real_guests},
    {"immediate_exit", probe_immediate_exit, true, no_real_guests},
    {"kick by a signal", probe_kick, true, no_real_guests},
    {0},
};
