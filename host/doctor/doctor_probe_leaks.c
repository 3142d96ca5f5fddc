/*
 * Probes: the instructions that would carry host state into the guest. Which of them can be made to
 * exit or to fault, and which give a value although the ditto-v1 CPU does not have them?
 */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/x86.h"
#include "host/doctor/doctor.h"
#include "vmm/kvm/frame_rf.h"
#include "vmm/kvm/micro_guest.h"
#include "vmm/kvm/msr.h"

GUEST_CODE(micro_rdmsr, "mov $0x10, %ecx\n"
                        "rdmsr\n" GUEST_DONE);
GUEST_CODE(micro_rdtsc, "rdtsc\n" GUEST_DONE);
GUEST_CODE(micro_in, "in $0xe1, %eax\n" GUEST_DONE);
GUEST_CODE(micro_rdtscp, "rdtscp\n" GUEST_DONE);
GUEST_CODE(micro_rdrand, "rdrand %rax\n" GUEST_DONE);
GUEST_CODE(micro_rdseed, "rdseed %rax\n" GUEST_DONE);
GUEST_CODE(micro_rdpid, "rdpid %rax\n" GUEST_DONE);
/* How many of some transactions (RTM) come to their end: that depends on what the host does. */
GUEST_CODE(micro_xbegin, "xor %eax, %eax\n"
                         "xor %ebx, %ebx\n"
                         "mov $1000, %ecx\n"
                         "1: xbegin 2f\n"
                         "inc %ebx\n"
                         "xend\n"
                         "2: dec %ecx\n"
                         "jnz 1b\n" GUEST_DONE);
/* Where an x87 instruction was, and its operand: asked twice, an exit in between. */
GUEST_CODE(micro_fnstenv, "fninit\n"
                          "fnstenv 0x800000\n" /* the page is there from here on */
                          "micro_fld: fldl 0x800040\n"
                          "fnstenv 0x800000\n"
                          "in $0xe1, %eax\n"
                          "fnstenv 0x800020\n" GUEST_DONE);
extern const uint8_t micro_fld[];
/* 2 - 5 is less than 0, whatever happens at the page that is used for the first time. The load is
 * there for QEMU, which knows flags of before it. */
GUEST_CODE(micro_setl, "mov $0x800000, %edi\n"
                       "mov $2, %eax\n"
                       "mov $-5, %ebx\n"
                       "and $0, %ecx\n"
                       "mov micro_setl(%rip), %edx\n"
                       "add %ebx, %eax\n"
                       "setl (%rdi)\n"
                       "movzbl (%rdi), %eax\n" GUEST_DONE);

/* 2 - 5 carries nothing as an addition: the 0 comes back as it is. */
GUEST_CODE(micro_rcl, "mov $0x800000, %edi\n"
                      "mov $2, %eax\n"
                      "mov $-5, %ebx\n"
                      "and $0, %ecx\n"
                      "mov micro_rcl(%rip), %edx\n"
                      "add %ebx, %eax\n"
                      "rclb (%rdi)\n"
                      "movzbl (%rdi), %eax\n"
                      "xor $1, %eax\n" GUEST_DONE);

/* In QEMU the flags behind SAHF are a word of their own; SUB puts an operand there. The page is
 * there by then: an exit would put things right. */
GUEST_CODE(micro_cmpxchg, "mov $0x800000, %edi\n"
                          "mov $0x40000ad5, %esi\n"
                          "mov $0x200, %eax\n"
                          "mov %eax, (%rdi)\n"
                          "sahf\n"
                          "jmp micro_cmpxchg_block\n"
                          "micro_cmpxchg_block: mov $5, %eax\n"
                          "sub %rsi, %rax\n"
                          "cmpxchg16b (%rdi)\n" GUEST_DONE);

/* The CPU's breakpoint 0 is the guest's own. */
GUEST_CODE(micro_store, "movl $1, 0x800000\n" GUEST_DONE);

static const uint64_t some_time = 0x123456789abcdef0;

static bool answered(const struct micro_guest *g, struct probe_outcome *o)
{
    const struct kvm_regs *r = g->vcpu.regs;

    if (r->rax == (uint32_t)some_time && r->rdx == some_time >> 32)
        return true;
    probe_says(o, PROBE_BROKEN, "the guest reads %#llx:%#llx and not the value it was given",
               (unsigned long long)r->rdx, (unsigned long long)r->rax);
    return false;
}

static void probe_rdmsr(struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_rdmsr), 0, o) ||
        !micro_guest_expect(&g, EXIT_RDMSR, MSR_IA32_TSC, o))
        return;
    vcpu_finish_msr(&g.vcpu, some_time, false);
    if (micro_guest_finish(&g, o) && answered(&g, o))
        probe_says(o, PROBE_OK, "exits, and takes our value");
}

static void probe_patched_rdtsc(struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_in), 0, o) ||
        !micro_guest_expect(&g, EXIT_RDTSC, 0, o))
        return;
    vcpu_finish_rdtsc(&g.vcpu, &g.exit, some_time);
    if (micro_guest_finish(&g, o) && answered(&g, o))
        probe_says(o, PROBE_OK, "exits, and takes our value");
}

static bool set_tsd(struct micro_guest *g)
{
    struct kvm_sregs s;

    vcpu_get_sregs(&g->vcpu, &s);
    s.cr4 |= CR4_TSD;
    vcpu_set_sregs(&g->vcpu, &s);
    return true;
}

static void probe_tsd(struct probe_outcome *o)
{
    struct micro_guest g;

    if (micro_guest_start(&g, PROGRAM(micro_rdtsc), 3, o) && set_tsd(&g) &&
        micro_guest_expect(&g, EXIT_PIO_OUT, VECTOR_GP, o))
        probe_says(o, PROBE_OK, "CR4.TSD makes it #GP");
}

/* Does the instruction fault, as it should on a CPU that does not have it? */
static void probe_absent(const uint8_t *code, size_t length, unsigned cpl, bool with_tsd,
                         struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, code, length, cpl, o) || (with_tsd && !set_tsd(&g)) ||
        !micro_guest_run(&g, o))
        return;
    bool to_port = g.exit.kind == EXIT_PIO_OUT;
    if (to_port && g.exit.at == VECTOR_UD)
        probe_says(o, PROBE_OK, "#UD");
    else if (to_port && g.exit.at == VECTOR_GP && with_tsd)
        probe_says(o, PROBE_OK, "#GP by CR4.TSD, which is caught");
    else if (to_port && g.exit.at == MICRO_DONE)
        probe_says(o, PROBE_MISSING, "it gives a value of the host's");
    else
        micro_guest_unexpected(&g, "#UD", o);
}

static void probe_rdtsc(struct probe_outcome *o)
{
    probe_absent(PROGRAM(micro_rdtsc), 0, false, o);
}

void probe_rdtscp(struct probe_outcome *o)
{
    probe_absent(PROGRAM(micro_rdtscp), 3, true, o);
}

static void probe_rdtscp_cpl0(struct probe_outcome *o)
{
    probe_absent(PROGRAM(micro_rdtscp), 0, false, o);
}

void probe_rdrand(struct probe_outcome *o)
{
    probe_absent(PROGRAM(micro_rdrand), 3, false, o);
}

void probe_rdseed(struct probe_outcome *o)
{
    probe_absent(PROGRAM(micro_rdseed), 3, false, o);
}

void probe_rdpid(struct probe_outcome *o)
{
    probe_absent(PROGRAM(micro_rdpid), 3, false, o);
}

/* Where microcode has switched transactions off, each aborts at once, which is as good as #UD. */
void probe_xbegin(struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_xbegin), 3, o) || !micro_guest_run(&g, o))
        return;
    if (g.exit.kind == EXIT_PIO_OUT && g.exit.at == VECTOR_UD)
        probe_says(o, PROBE_OK, "#UD");
    else if (g.exit.kind == EXIT_PIO_OUT && g.exit.at == MICRO_DONE)
        probe_says(o, g.vcpu.regs->rbx ? PROBE_MISSING : PROBE_OK,
                   "%llu of 1,000 come to their end", (unsigned long long)g.vcpu.regs->rbx);
    else
        micro_guest_unexpected(&g, "#UD", o);
}

/* AMD's CPUs before Zen 2 do not save the pointers with the rest of the x87 state, unless there is
 * an exception (CPUID 0x80000008, XSAVEERPTR), and Linux puts one of its own there. */
void probe_x87_pointers(struct probe_outcome *o)
{
    const uint32_t rip = (uint32_t)(MICRO_CODE + (uint64_t)(micro_fld - micro_fnstenv));
    /* As FNSTENV stores it, of 32 bits (Intel SDM vol. 1, figure 8-9); the selectors, and the
     * opcode, with the offset before them. */
    struct environment {
        uint32_t control, status, tags, instruction, code, operand, data;
    } env[2];
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_fnstenv), 3, o) ||
        !micro_guest_expect(&g, EXIT_RDTSC, 0, o))
        return;
    vcpu_finish_rdtsc(&g.vcpu, &g.exit, some_time);
    if (!micro_guest_finish(&g, o))
        return;
    for (unsigned i = 0; i < 2; i++)
        memcpy(&env[i], guest_memory_at(&g.vm.memory, MICRO_DATA + 32ull * i, sizeof env[i]),
               sizeof env[i]);
    if (env[1].instruction != rip)
        probe_says(o, PROBE_MISSING, "after an exit it is the host's, %#x", env[1].instruction);
    else if (memcmp(&env[0], &env[1], sizeof env[0]) != 0)
        probe_says(o, PROBE_MISSING,
                   "after an exit the rest is another: %#x, %#x:%#x, not %#x, %#x:%#x", env[1].code,
                   env[1].data, env[1].operand, env[0].code, env[0].data, env[0].operand);
    else
        probe_says(o, PROBE_OK, "is the guest's own after an exit");
}

/* The fault is nested paging's, which a guest cannot see, so it depends on the host where it is.
 * QEMU (seen: 7.2, 11.1) calculates all flags for some conditions, and then has lost what it needs
 * to begin the instruction once more. */
static void probe_flags(struct probe_outcome *o, const uint8_t *code, size_t length)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, code, length, 3, o) || !micro_guest_finish(&g, o))
        return;
    if (g.vcpu.regs->rax == 1)
        probe_says(o, PROBE_OK, "keeps the flags");
    else
        probe_says(o, PROBE_MISSING, "loses the flags: this CPU is emulated wrongly");
}

void probe_setcc(struct probe_outcome *o)
{
    probe_flags(o, PROGRAM(micro_setl));
}

/* The same with all flags (QEMU 7.2). */
void probe_rcl(struct probe_outcome *o)
{
    probe_flags(o, PROGRAM(micro_rcl));
}

/* QEMU (seen: 7.2) takes the flags that CMPXCHG16B does not set from an operation long before. */
void probe_cmpxchg(struct probe_outcome *o)
{
    const uint64_t expected = 0x85; /* CF, PF and SF: of SUB; ZF: what is in memory is another */
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_cmpxchg), 3, o) || !micro_guest_finish(&g, o))
        return;
    if ((g.vcpu.regs->rflags & RFLAGS_STATUS) == expected)
        probe_says(o, PROBE_OK, "keeps the flags");
    else
        probe_says(o, PROBE_MISSING, "loses the flags: this CPU is emulated wrongly");
}

/* QEMU (seen: 7.2) loads DR7 without setting the breakpoints in it, and leaves those that are set.
 */
void probe_guest_breakpoint(struct probe_outcome *o)
{
    struct kvm_debugregs debug = {.db = {MICRO_DATA}, .dr6 = DR6_RESET, .dr7 = DR7_WRITE_4};
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_store), 3, o))
        return;
    if (ioctl(g.vcpu.fd, KVM_SET_DEBUGREGS, &debug) < 0) {
        probe_says(o, PROBE_BROKEN, "KVM_SET_DEBUGREGS: %s", strerror(errno));
        return;
    }
    if (!micro_guest_run(&g, o))
        return;
    if (g.exit.kind == EXIT_PIO_OUT && g.exit.at == VECTOR_DB)
        probe_says(o, PROBE_OK, "#DB");
    else if (g.exit.kind == EXIT_PIO_OUT && g.exit.at == MICRO_DONE)
        probe_says(o, PROBE_MISSING, "is not noticed: this CPU is emulated wrongly");
    else
        micro_guest_unexpected(&g, "#DB", o);
}

static const char not_told[] = "cpuid hides it; a guest that uses it anyway diverges in replay";

const struct probe doctor_leak_probes[] = {
    {"RDMSR of the TSC exits", probe_rdmsr, true, "this KVM is not used"},
    {"in $0xe1 exits", probe_patched_rdtsc, true, "this KVM is not used"},
    {"RDTSC at CPL3 faults", probe_tsd, true, "this KVM is not used"},
    {"RDTSC at CPL0 faults", probe_rdtsc, false, "kernels' RDTSC are patched to in $0xe1"},
    {"RDTSCP at CPL3 faults", probe_rdtscp, false, not_told},
    {"RDTSCP at CPL0 faults", probe_rdtscp_cpl0, false, not_told},
    {"RDRAND faults", probe_rdrand, false, not_told},
    {"RDSEED faults", probe_rdseed, false, not_told},
    {"RDPID faults", probe_rdpid, false, not_told},
    {"XBEGIN faults or aborts", probe_xbegin, false, not_told},
    {"FNSTENV's pointers", probe_x87_pointers, false,
     "a guest that uses it (FNSTENV, FNSAVE) diverges in replay"},
    {"SETcc to a page that is not there", probe_setcc, false,
     "programs may go wrong, and then diverge in replay; 'make khost-qemu' builds a QEMU without "
     "it"},
    {"RCL of a page that is not there", probe_rcl, false,
     "programs may go wrong, and then diverge in replay; 'make khost-qemu' builds a QEMU without "
     "it"},
    {"CMPXCHG16B with an exit behind it", probe_cmpxchg, false,
     "a machine may go wrong where its recorder puts a breakpoint behind one; 'make khost-qemu' "
     "builds a QEMU without it"},
    {"a write that a guest's DR7 watches", probe_guest_breakpoint, false,
     "a guest's own breakpoints (gdb's watch, perf's mem:) work by chance, and its replay "
     "diverges; 'make khost-qemu' builds a QEMU without it"},
    {"RF in the frames of faults", probe_frame_rf, false,
     "recordings of Linux replay on no CPU but such ones; 'make khost-qemu' builds a QEMU that is "
     "like real CPUs"},
    {0},
};
