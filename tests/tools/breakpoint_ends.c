/*
 * Runs to a breakpoint, and landings, that the guest's own code would never end, or that a landmark
 * makes impossible (a recording is hostile input): each ends as it is to. Writes TAP.
 */
#include <sys/ioctl.h>

#include "base/now.h"
#include "tests/tools/breakpoint_guest.h"
#include "vmm/kvm/debug_registers.h"
#include "vmm/points/repeat.h"
#include "vmm/points/stepper.h"

/* It counts passes as Linux entries (vmm/points/entry_count.h), and waits for what does not come.
 */
GUEST_CODE(counting, "1: decq 0x802000\n"
                     "jnz 2f\n"
                     "hlt\n"
                     "2: inc %eax\n"
                     "counting_at: mov $1, %ebx\n"
                     "jmp 1b\n" GUEST_DONE);
#define COUNTING_WORD 0x802000u
/* It looks like what counts entries, where that is about to exit, but goes round for ever. */
GUEST_CODE(alike, "movq $0, 0x802000\n"
                  "alike_at: inc %eax\n"
                  "test %rsp, %rsp\n"
                  "1: jnz 2f\n"
                  "hlt\n"
                  "2: jmp 1b\n");
/* More iterations than are done at once, of which none can fault, and none writes. */
GUEST_CODE(lengthy, "mov $0x200000, %esi\n"
                    "mov $0x500000, %ecx\n"
                    "lengthy_at: rep lodsb\n" GUEST_DONE);
GUEST_CODE(stores, "rep stosb\n" GUEST_DONE);
#define MOST_AT_ONCE (1u << 20)
extern const uint8_t counting_at[], alike_at[], lengthy_at[];

/* What a landing comes to that nothing else would end: there is no pass like it. */
static void test_endless(void)
{
    const unsigned rbx = 1;
    struct landing_stats stats;
    struct landmark l = take(PROGRAM(counting), counting_at, 0, 7);

    l.regs[rbx] = ~0ull;
    ok(land(&l, &stats) == LAND_LATE && is_clean(PROGRAM(counting)), "a landing that does not end",
       0, NULL);

    l = take(PROGRAM(counting), counting_at, 0, 7);
    l.regs[rbx] = ~0ull;
    l.entry = ENTRY_NEAR;
    l.entries_gpa = COUNTING_WORD;
    l.entries = 7;
    uint64_t *word = guest_memory_at(&guest.vm.memory, COUNTING_WORD, sizeof *word);
    start(PROGRAM(counting), 0, NULL);
    *word = 0;
    bool good = land(&l, &stats) == LAND_PASSED && *word == -8ull;
    ok(good && is_clean(PROGRAM(counting)), "a landing that an entry later has not come", 0, NULL);

    l.regs[rbx] = 1;
    start(PROGRAM(counting), 0, NULL);
    *word = 0;
    good = land(&l, &stats) == LANDED && guest.vcpu.regs->rax == 7 && *word == -7ull;
    ok(good && stats.exits <= 2, "a landing by the count of entries", 0, NULL);
}

/* Kicks come where the alarm seems about to go off. */
static void test_alike(void)
{
    struct landing_stats stats;
    struct landmark l = take(PROGRAM(alike), alike_at, 0, 0);

    l.regs[1] = ~0ull;
    l.entry = ENTRY_NEAR;
    l.entries_gpa = COUNTING_WORD;
    start(PROGRAM(alike), 0, NULL);
    *(uint64_t *)guest_memory_at(&guest.vm.memory, COUNTING_WORD, 8) = 5;
    ok(land(&l, &stats) == LAND_LATE && is_clean(PROGRAM(alike)),
       "a loop that looks like the counting of entries", 0, NULL);
}

/* A HLT of ours would change what is counted. */
static void test_counted_code(void)
{
    struct landing_stats stats;
    struct landmark l = take(PROGRAM(counting), counting_at, 0, 7);
    uint64_t *const word = guest_memory_at(&guest.vm.memory, COUNTING_WORD, sizeof *word);

    start(PROGRAM(counting), 0, NULL);
    *word = HLT + 1;
    l.regs[REGISTER_RIP] = l.gpa = COUNTING_WORD;
    l.code[0] = HLT + 1;
    l.entry = ENTRY_NEAR;
    l.entries_gpa = COUNTING_WORD;
    l.entries = -*word;
    const enum clock_landing landing = land(&l, &stats);
    ok(landing == LAND_PASSED &&
           *(uint64_t *)guest_memory_at(&guest.vm.memory, COUNTING_WORD, sizeof *word) == HLT,
       "a landing in the word by which entries are counted", 0, NULL);
}

/* ---- REPs ---- */

static void test_lengthy(void)
{
    struct breakpoint b = {.va = ADDRESS(lengthy, lengthy_at), .cpl = 3};
    struct stepper stepper;
    struct step done;
    struct err e = {0};

    start(PROGRAM(lengthy), 3, NULL);
    add(&b);
    bool good = run() == BREAKPOINT_HIT;
    breakpoints_remove(&set, &b);
    stepper_init(&stepper, &guest.vcpu);
    good &= stepper_step(&stepper, &done, &last, &e) == 0 && done.repeats;
    stepper_close(&stepper);
    const uint64_t before = guest.vcpu.regs->rcx;
    good &= repeat_run(&guest.vcpu, NULL, UINT64_MAX) == MOST_AT_ONCE &&
            guest.vcpu.regs->rcx == before - MOST_AT_ONCE;
    ok(good, "a long REP is done in pieces", 3, NULL);

    start(PROGRAM(lengthy), 3, NULL);
    b.stops = never_stops;
    add(&b);
    set.give_up_ns = 1;
    good = run() == BREAKPOINT_LATE && guest.vcpu.regs->rcx > 0;
    breakpoints_remove(&set, &b);
    ok(good, "a long REP is given up", 3, NULL);
}

/* Memory at the end of the first 4 GiB and behind them. */
static void map_across(const struct kvm_sregs *sregs)
{
    const uint64_t large =
        PTE_PRESENT | PTE_WRITE | PTE_USER | PTE_ACCESSED | PTE_DIRTY | PTE_LARGE;
    uint64_t *const root = guest_memory_at(&guest.vm.memory, sregs->cr3, PAGE_BYTES);
    uint64_t *const pointers = guest_memory_at(&guest.vm.memory, *root & PTE_ADDRESS, PAGE_BYTES);
    uint64_t *const first = guest_memory_at(&guest.vm.memory, *pointers & PTE_ADDRESS, PAGE_BYTES);

    first[511] = 0x800000 | large;
    pointers[3] = pointers[4] = pointers[0];
}

/* What repeat_run() does of ten iterations of 32-bit code that stands between two of them. */
static uint64_t repeated(uint32_t rdi, uint32_t base, uint32_t limit, uint8_t type)
{
    struct kvm_sregs sregs;

    start(PROGRAM(stores), 3, NULL);
    struct kvm_regs regs = *guest.vcpu.regs;
    regs.rcx = 10;
    regs.rdi = rdi;
    vcpu_set_regs(&guest.vcpu, &regs);
    vcpu_get_sregs(&guest.vcpu, &sregs);
    sregs.cs.l = 0;
    sregs.cs.db = 1;
    sregs.es = sregs.ss;
    sregs.es.base = base;
    sregs.es.limit = limit;
    sregs.es.type = type;
    vcpu_set_sregs(&guest.vcpu, &sregs);
    map_across(&sregs);
    return repeat_run(&guest.vcpu, NULL, UINT64_MAX);
}

static void test_32_bits(void)
{
    const uint8_t data = 3, expands_down = 7, code = 11;

    ok(repeated(0x800100, 0, ~0u, data) == 9, "a REP of 32-bit code", 3, NULL);
    ok(repeated(0xfffffffb, 0, ~0u, data) == 5, "a REP of 32-bit code to the end of 4 GiB", 3,
       NULL);
    ok(repeated(0x800100, 0, 0x800104, data) == 0 && repeated(0x800100, 16, ~0u, data) == 0 &&
           repeated(0x800100, 0, ~0u, expands_down) == 0 && repeated(0x800100, 0, ~0u, code) == 0,
       "a REP of 32-bit code in a segment that is not all of memory is the CPU's", 3, NULL);
}

/* ---- interrupted runs ---- */

GUEST_CODE(passes, "mov $3, %ecx\n"
                   "1: inc %eax\n"
                   "passes_at: mov $1, %ebx\n"
                   "dec %ecx\n"
                   "jnz 1b\n" GUEST_DONE);
extern const uint8_t passes_at[];

/* The user's wish to stop comes with an exit of the guest's own, which must not be lost; or where a
 * breakpoint is, which counts that pass once. */
static void test_interrupted(unsigned cpl)
{
    struct breakpoint b = {.va = ADDRESS(passes, passes_at), .cpl = cpl, .countdown = 3};
    atomic_bool interrupted = true;

    start(PROGRAM(passes), cpl, NULL);
    set.interrupted = &interrupted;
    ok(is_done(run()), "an exit of the guest's own in a run that is interrupted", cpl, NULL);

    start(PROGRAM(passes), cpl, NULL);
    set.interrupted = &interrupted;
    add(&b);
    bool good = run() == BREAKPOINT_STOPPED && guest.vcpu.regs->rip == b.va &&
                guest.vcpu.regs->rax == 1 && vcpu_cpl(&guest.vcpu) == cpl && b.countdown == 3 &&
                is_clean(PROGRAM(passes));
    interrupted = false;
    good &= run() == BREAKPOINT_HIT && guest.vcpu.regs->rax == 3;
    breakpoints_remove(&set, &b);
    ok(good && is_done(run()), "a breakpoint in a run that is interrupted", cpl, NULL);
}

/* ---- instructions with several exits ---- */

GUEST_CODE(reads_to_device, "mov $0x3fe00000, %edi\n"
                            "mov $0x77, %edx\n"
                            "reads_at: insb\n" GUEST_DONE);
extern const uint8_t reads_at[];
#define DEVICE_GPA 0xfe000000u

/* The breakpoint is set where the instruction is half done, and finishing it leads to its next
 * exit. */
static void test_reads_to_device(unsigned cpl, const struct breakpoint_means *means)
{
    const uint64_t large =
        PTE_PRESENT | PTE_WRITE | PTE_USER | PTE_ACCESSED | PTE_DIRTY | PTE_LARGE;
    struct breakpoint b = {.va = ADDRESS(reads_to_device, reads_at), .cpl = cpl};
    struct kvm_sregs sregs;

    start(PROGRAM(reads_to_device), cpl, means);
    vcpu_get_sregs(&guest.vcpu, &sregs);
    const uint64_t *root = guest_memory_at(&guest.vm.memory, sregs.cr3, PAGE_BYTES);
    const uint64_t *pointers = guest_memory_at(&guest.vm.memory, *root & PTE_ADDRESS, PAGE_BYTES);
    uint64_t *first = guest_memory_at(&guest.vm.memory, *pointers & PTE_ADDRESS, PAGE_BYTES);
    first[511] = DEVICE_GPA | large;
    bool good = run() == BREAKPOINT_EXIT && last.kind == EXIT_PIO_IN && last.at == 0x77;
    if (good)
        *last.data = 0x5a;
    add(&b);
    good = good && run() == BREAKPOINT_EXIT && last.kind == EXIT_MMIO_WRITE &&
           last.at == DEVICE_GPA && *last.data == 0x5a && is_done(run());
    breakpoints_remove(&set, &b);
    ok(good, "an INS to a device's memory", cpl, means);
}

/* ---- steps ---- */

GUEST_CODE(loads_ss, "mov %ss, %eax\n"
                     "mov %eax, %ss\n"
                     "pushf\n"
                     "loads_ss_behind: nop\n" GUEST_DONE);
extern const uint8_t loads_ss_behind[];

/* A step over a load of SS takes the next instruction along, which must not show TF either. */
static void test_loads_ss(void)
{
    struct stepper stepper;
    struct step done;
    struct err e = {0};

    start(PROGRAM(loads_ss), 0, NULL);
    stepper_init(&stepper, &guest.vcpu);
    while (guest.vcpu.regs->rip != ADDRESS(loads_ss, loads_ss_behind) &&
           stepper_step(&stepper, &done, &last, &e) == 0 && done.kind == STEP_DONE)
        ;
    const bool there = guest.vcpu.regs->rip == ADDRESS(loads_ss, loads_ss_behind);
    stepper_close(&stepper);
    const uint64_t *top = guest_memory_at(&guest.vm.memory, guest.vcpu.regs->rsp, sizeof *top);
    ok(there && top && !(*top & RFLAGS_TF), "a step over a load of SS and PUSHF", 0, NULL);
}

/* ---- injected interrupts ---- */

#define NMI_VECTOR   2u
#define TIMER_VECTOR 0x21u

/* RFLAGS in the frame of an interrupt of a guest whose vCPU has RF, as KVM leaves it behind a page
 * fault of its own on Intel; 0 when there is no such frame. */
static uint64_t pushed_rflags(bool nmi)
{
    const uint16_t vector = nmi ? NMI_VECTOR : TIMER_VECTOR;
    struct err e = {0};

    start(PROGRAM(counting), 3, NULL);
    struct kvm_regs regs = *guest.vcpu.regs;
    regs.rflags |= RFLAGS_RF | RFLAGS_IF;
    vcpu_set_regs(&guest.vcpu, &regs);
    if (nmi)
        vcpu_inject_nmi(&guest.vcpu);
    else
        vcpu_inject(&guest.vcpu, (uint8_t)vector);
    if (vcpu_run(&guest.vcpu, &last, &e) < 0)
        fail(e.text);
    const uint64_t *frame = guest_memory_at(&guest.vm.memory, guest.vcpu.regs->rsp, 24);
    return last.kind == EXIT_PIO_OUT && last.at == vector && frame ? frame[2] : 0;
}

static void test_resume_flag(void)
{
    ok((pushed_rflags(false) & (RFLAGS_RF | RFLAGS_IF)) == RFLAGS_IF &&
           (pushed_rflags(true) & (RFLAGS_RF | RFLAGS_IF)) == RFLAGS_IF,
       "an interrupt, and an NMI, with no RF in its frame", 3, NULL);
}

/* ---- the guest's own debug registers ---- */

GUEST_CODE(watched_store, "movl $1, 0x800000\n"
                          "watched_next: nop\n" GUEST_DONE);
extern const uint8_t watched_next[];

/* Run, after a step over the store if `stepped`, to what comes of it. */
static bool meets_debug_exception(bool stepped)
{
    const struct kvm_debugregs watch = {.db = {0x800000}, .dr6 = DR6_RESET | 2, .dr7 = DR7_WRITE_4};
    struct kvm_debugregs now;
    struct err e = {0};

    start(PROGRAM(watched_store), 3, NULL);
    if (ioctl(guest.vcpu.fd, KVM_SET_DEBUGREGS, &watch) < 0)
        fail("KVM_SET_DEBUGREGS");
    if (stepped && (vcpu_run_step(&guest.vcpu, &last, &e) < 0 || last.kind != EXIT_STEP ||
                    guest.vcpu.regs->rip != ADDRESS(watched_store, watched_next) ||
                    vcpu_interruptible(&guest.vcpu)))
        return false;
    return vcpu_run(&guest.vcpu, &last, &e) == 0 && last.kind == EXIT_PIO_OUT &&
           last.at == VECTOR_DB && ioctl(guest.vcpu.fd, KVM_GET_DEBUGREGS, &now) == 0 &&
           (now.dr6 & DR6_HITS) == 1;
}

static void test_guest_watch(void)
{
    static const char what[] = "a step over a write that the guest's own DR7 watches";

    if (meets_debug_exception(false))
        ok(meets_debug_exception(true), what, 3, NULL);
    else
        printf("ok %u %s # SKIP this CPU does not notice it (doctor)\n", ++number, what);
}

/* The guest's own step comes between our breakpoint's two hits. */
GUEST_CODE(own_step, "own_step_at: nop\n"
                     "pushf\n"
                     "orl $0x100, (%rsp)\n"
                     "popf\n"
                     "nop\n"
                     "own_step_next: jmp own_step_at\n");
extern const uint8_t own_step_at[], own_step_next[];

static void test_guest_step(unsigned cpl)
{
    static const char what[] = "a guest's own step beside a debug register of ours";
    struct breakpoint b = {.va = ADDRESS(own_step, own_step_at), .cpl = cpl},
                      next = {.va = ADDRESS(own_step, own_step_next), .cpl = cpl};
    enum breakpoint_stop stop;

    start(PROGRAM(own_step), cpl, &breakpoint_register);
    if (!debug_registers_work(&guest.vm, cpl)) {
        printf("ok %u %s # SKIP no debug registers here (doctor)\n", ++number, what);
        return;
    }
    add(&b);
    add(&next);
    bool good = run() == BREAKPOINT_HIT && b.hit;
    breakpoints_remove(&set, &b);
    while ((stop = run()) == BREAKPOINT_STOPPED)
        ;
    good &= stop == BREAKPOINT_EXIT && last.kind == EXIT_PIO_OUT && last.at == VECTOR_DB;
    struct kvm_debugregs now;
    good &= ioctl(guest.vcpu.fd, KVM_GET_DEBUGREGS, &now) == 0 && (now.dr6 & DR6_BS);
    const uint64_t *frame = guest_memory_at(&guest.vm.memory, guest.vcpu.regs->rsp, 8);
    good &= frame && *frame == next.va;
    breakpoints_remove(&set, &next);
    ok(good, what, cpl, &breakpoint_register);
}

/* ---- where a breakpoint was found ---- */

GUEST_CODE(found, ".fill 64, 1, 0x90\n"
                  "found_at: inc %eax\n"
                  "mov $0x11223344, %ebx\n"
                  "mov $0x55667788, %ecx\n"
                  "add %ebx, %ecx\n" GUEST_DONE);
/* What found_at is here is the middle of a constant. */
GUEST_CODE(other, ".fill 60, 1, 0x90\n"
                  "movabs $0x1122334455667788, %rax\n"
                  "movabs $0x1122334455667788, %rbx\n"
                  "add %rbx, %rax\n" GUEST_DONE);
extern const uint8_t found_at[];
#define ELSEWHERE 0xa00000u

/* Run to its end, or to the breakpoint, with the program's pages where it says, both ways. */
static enum breakpoint_stop run_mapped(uint64_t va, uint64_t gpa)
{
    struct kvm_regs regs = *guest.vcpu.regs;
    struct kvm_sregs sregs;

    vcpu_get_sregs(&guest.vcpu, &sregs);
    const uint64_t *root = guest_memory_at(&guest.vm.memory, sregs.cr3, 8);
    const uint64_t *pointers = guest_memory_at(&guest.vm.memory, *root & PTE_ADDRESS, 8);
    uint64_t *directory = guest_memory_at(&guest.vm.memory, *pointers & PTE_ADDRESS, PAGE_BYTES);
    const uint64_t flags = directory[0] & ~PTE_ADDRESS;
    directory[CODE_AT >> 21] = directory[ELSEWHERE >> 21] = 0;
    directory[va >> 21] = gpa | flags;
    vcpu_flush_tlb(&guest.vcpu);
    regs.rip = va;
    vcpu_set_regs(&guest.vcpu, &regs);
    return run();
}

/* Time goes back to when another program had the page, and then to when this one had another; and
 * then it writes itself. */
static void test_found(void)
{
    struct breakpoint b = {.va = ADDRESS(found, found_at), .cpl = 3};

    start(PROGRAM(found), 3, NULL);
    add(&b);
    bool good = run() == BREAKPOINT_HIT && b.gpa == b.va;
    place(PROGRAM(other));
    good &=
        is_done(run_mapped(ELSEWHERE, CODE_AT)) && guest.vcpu.regs->rax == 2 * 0x1122334455667788;
    memcpy(guest_memory_at(&guest.vm.memory, ELSEWHERE, PAGE_BYTES), PROGRAM(found));
    good &= run_mapped(CODE_AT, ELSEWHERE) == BREAKPOINT_HIT && b.gpa == b.va - CODE_AT + ELSEWHERE;
    memset(guest_memory_at(&guest.vm.memory, b.gpa, 16), 0x90, 16);
    good &= run_mapped(CODE_AT, ELSEWHERE) == BREAKPOINT_HIT;
    breakpoints_remove(&set, &b);
    ok(good, "a breakpoint whose page is another's, and then lies elsewhere", 3, NULL);
}

/* A HLT in a program reaches nobody before there is the hook. */
static void test_register_first(void)
{
    static const char what[] = "a debug register as long as a HLT must wait";
    struct breakpoint b = {.va = ADDRESS(passes, passes_at), .cpl = 3, .patient = true};

    start(PROGRAM(passes), 3, NULL);
    if (!debug_registers_work(&guest.vm, 3)) {
        printf("ok %u %s # SKIP no debug registers here (doctor)\n", ++number, what);
        return;
    }
    add(&b);
    const uint64_t rip = hook.rip;
    hook.rip = 0;
    bool good =
        run() == BREAKPOINT_HIT && b.means == &breakpoint_register && guest.vcpu.regs->rax == 1;
    hook.rip = rip;
    good &= breakpoints_leave(&set, &last, &(struct err){0}) == BREAKPOINT_NONE &&
            run() == BREAKPOINT_HIT && b.means == &breakpoint_hlt && guest.vcpu.regs->rax == 2;
    breakpoints_remove(&set, &b);
    ok(good && is_clean(PROGRAM(passes)), what, 3, NULL);
}

GUEST_CODE(resumes, "mov $0x800800, %esp\n"
                    "mov %ss, %eax\n"
                    "push %rax\n"
                    "push $0x800800\n"
                    "pushf\n"
                    "orl $0x10000, (%rsp)\n" /* RF */
                    "mov %cs, %eax\n"
                    "push %rax\n"
                    "lea resumes_at(%rip), %rax\n"
                    "push %rax\n"
                    "iretq\n"
                    "resumes_at: nop\n" GUEST_DONE);
extern const uint8_t resumes_at[];

/* As behind a handler of a fault that moved RIP. A debug register does not stop there. */
static void test_resumes(unsigned cpl)
{
    struct breakpoint b = {.va = ADDRESS(resumes, resumes_at), .cpl = cpl, .patient = true};

    start(PROGRAM(resumes), cpl, NULL);
    add(&b);
    const bool good = run() == BREAKPOINT_HIT && guest.vcpu.regs->rip == b.va;
    breakpoints_remove(&set, &b);
    ok(good && is_done(run()), "a breakpoint where an IRET with RF leads", cpl, NULL);
}

/* ---- watched memory ---- */

#define PLACES 1000u

/* Every second page, one page more than that with a neighbour, and no more than can be. */
static void test_places(void)
{
    static struct watchpoint watched[VM_PROTECTED_MAX + 1];
    struct err e = {0};
    bool good = true;

    start(PROGRAM(counting), 0, NULL);
    memset(watched, 0, sizeof watched);
    for (unsigned i = 0; i < PLACES; i++) {
        watched[i].gpa = watched[i].va = 0x700000 + 2ull * i * PAGE_BYTES;
        watched[i].len = 1;
        good &= breakpoints_watch(&set, &watched[i], &e) == 0;
    }
    const uint64_t before = *(uint64_t *)guest_memory_at(&guest.vm.memory, COUNTING_WORD, 8);
    good &= run() == BREAKPOINT_HIT && watched[(COUNTING_WORD - 0x700000) / PAGE_BYTES / 2].hit &&
            *(uint64_t *)guest_memory_at(&guest.vm.memory, COUNTING_WORD, 8) == before - 1;
    for (unsigned i = 0; i < PLACES; i++)
        breakpoints_unwatch(&set, &watched[i]);
    good &= breakpoints_rest(&set, &e) == 0;
    ok(good, "many watched places", 0, NULL);
}

/* What KVM's emulator cannot do, or shows TF: each changes the first 16 bytes of MICRO_DATA. */
GUEST_CODE(unusual, "fninit\n"
                    "mov $0x3ff00000, %eax\n"
                    "movd %eax, %xmm0\n"
                    "pshufd $0, %xmm0, %xmm0\n"
                    "movss %xmm0, 0x800000\n"
                    "movsd %xmm0, 0x800000\n"
                    "movlps %xmm0, 0x800008\n"
                    "paddb %xmm0, %xmm0\n"
                    "movq %xmm0, 0x800000\n"
                    "movhps %xmm0, 0x800008\n"
                    "paddb %xmm0, %xmm0\n"
                    "movdqa %xmm0, 0x800000\n"
                    "fld1\n"
                    "fstpl 0x800000\n"
                    "mov 0x800000, %rax\n"
                    "mov 0x800008, %rdx\n"
                    "mov $7, %ebx\n"
                    "mov $9, %ecx\n"
                    "lock cmpxchg16b 0x800000\n"
                    "fnstenv 0x800000\n"
                    "mov $0x800008, %esp\n"
                    "pushf\n" GUEST_DONE);
#define UNUSUAL 10u

static void test_unusual_stores(unsigned cpl)
{
    struct watchpoint watched = {.va = MICRO_DATA, .len = 16};
    struct err e = {0};
    unsigned changes = 0;

    start(PROGRAM(unusual), cpl, NULL);
    if (breakpoints_watch(&set, &watched, &e) < 0)
        fail(e.text);
    enum breakpoint_stop stop;
    while ((stop = run()) == BREAKPOINT_HIT && watched.hit)
        changes++;
    const uint64_t *word = guest_memory_at(&guest.vm.memory, MICRO_DATA, 8);
    ok(is_done(stop) && changes == UNUSUAL && !(*word & RFLAGS_TF), "watched unusual stores", cpl,
       NULL);
    if (changes != UNUSUAL)
        printf("# %u changes\n", changes);
    breakpoints_unwatch(&set, &watched);
}

GUEST_CODE(undefined, "nop\n"
                      "undefined_at: ud2\n" GUEST_DONE);
extern const uint8_t undefined_at[];

/* Each pass writes twice to the stack's page, by instructions that are not done in software. */
GUEST_CODE(calls, "mov $0x800800, %esp\n"
                  "mov $2000, %ecx\n"
                  "lea 2f(%rip), %rax\n"
                  "1: call *%rax\n"
                  "calls_at: push %rcx\n"
                  "pop %rdx\n"
                  "dec %ecx\n"
                  "jnz 1b\n" GUEST_DONE "2: ret\n");
extern const uint8_t calls_at[];

/* A breakpoint whose passes are told apart, and counted, in a trace, which is left at each write.
 */
static void test_calls(unsigned cpl, bool counts)
{
    struct watchpoint watched = {.va = MICRO_DATA, .len = 16};
    struct trace_condition condition = reg_is(REGISTER_RCX, 7);
    struct breakpoint b = {.va = ADDRESS(calls, calls_at), .cpl = cpl};
    struct err e = {0};

    start(PROGRAM(calls), cpl, NULL);
    if (counts) {
        b.countdown = 1994;
        b.stops = never_stops;
    } else {
        b.condition = &condition;
        b.conditions = 1;
    }
    if (breakpoints_watch(&set, &watched, &e) < 0)
        fail(e.text);
    add(&b);
    const bool good = run() == BREAKPOINT_HIT && b.hit && guest.vcpu.regs->rcx == 7 &&
                      guest.vcpu.regs->rip == b.va && guest.vcpu.regs->rsp == 0x800800;
    breakpoints_remove(&set, &b);
    const bool ends = is_done(run());
    breakpoints_unwatch(&set, &watched);
    ok(good && ends && is_clean(PROGRAM(calls)),
       counts ? "passes counted beside a watched stack" : "passes compared beside a watched stack",
       cpl, NULL);
}
#define STACK_TOP 0x90000u /* of the kernel: vmm/kvm/micro_guest.c */

/* The frame of what is taken changes watched memory: it is the guest's, and its handler follows. */
static void test_frame(const uint8_t *code, size_t length, unsigned cpl, unsigned inject,
                       unsigned vector, uint64_t rip)
{
    struct watchpoint watched = {.va = STACK_TOP - 64, .len = 64};
    struct err e = {0};
    char what[64];

    start(code, length, cpl, NULL);
    struct kvm_regs regs = *guest.vcpu.regs;
    regs.rflags |= RFLAGS_IF;
    vcpu_set_regs(&guest.vcpu, &regs);
    if (breakpoints_watch(&set, &watched, &e) < 0)
        fail(e.text);
    if (inject == NMI_VECTOR)
        vcpu_inject_nmi(&guest.vcpu);
    else if (inject)
        vcpu_inject(&guest.vcpu, (uint8_t)inject);
    const uint64_t *frame = guest_memory_at(&guest.vm.memory, STACK_TOP - 40, 40);
    bool good = run() == BREAKPOINT_HIT && watched.hit && frame[0] == rip &&
                !(frame[2] & RFLAGS_TF) && (frame[2] & RFLAGS_IF) &&
                guest.vcpu.regs->rsp == STACK_TOP - 40;
    const enum breakpoint_stop then = run();
    good &= then == BREAKPOINT_EXIT && last.kind == EXIT_PIO_OUT && last.at == vector;
    breakpoints_unwatch(&set, &watched);
    snprintf(what, sizeof what, "a frame of vector %u in watched memory", vector);
    ok(good, what, cpl, NULL);
}

static void test_frames(unsigned cpl)
{
    test_frame(PROGRAM(undefined), cpl, 0, 6, ADDRESS(undefined, undefined_at));
    test_frame(PROGRAM(counting), cpl, TIMER_VECTOR, TIMER_VECTOR, CODE_AT);
    test_frame(PROGRAM(counting), cpl, NMI_VECTOR, NMI_VECTOR, CODE_AT);
}

int main(int argc, char **argv)
{
    int status;

    (void)argc;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (runs_elsewhere("breakpoint_ends", argv, &status))
        return status;
    guest.vcpu.fd = guest.vm.fd = -1;
    test_endless();
    test_alike();
    test_counted_code();
    test_lengthy();
    test_32_bits();
    for (unsigned cpl = 0; cpl <= 3; cpl += 3) {
        test_interrupted(cpl);
        test_reads_to_device(cpl, NULL);
        test_reads_to_device(cpl, &breakpoint_step);
    }
    test_loads_ss();
    test_resume_flag();
    test_guest_watch();
    test_guest_step(0);
    test_guest_step(3);
    test_found();
    test_register_first();
    test_resumes(0);
    test_resumes(3);
    test_places();
    for (unsigned cpl = 0; cpl <= 3; cpl += 3) {
        test_unusual_stores(cpl);
        test_frames(cpl);
        test_calls(cpl, false);
        test_calls(cpl, true);
    }
    printf("1..%u\n", number);
    return bad ? 1 : 0;
}
