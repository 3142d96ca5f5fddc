/*
 * Runs to a breakpoint, and landings, that the guest's own code would never end, or that a landmark
 * makes impossible (a recording is hostile input): each ends as it is to. Writes TAP.
 */
#include <sys/ioctl.h>

#include "base/now.h"
#include "tests/tools/breakpoint_guest.h"
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

/* ---- watched memory ---- */

#define PLACES 128u

/* Two neighbours of a page are two places when it is taken away. */
static void test_places(void)
{
    static struct watchpoint watched[PLACES + 2];
    struct err e = {0};
    bool good = true;

    start(PROGRAM(counting), 0, NULL);
    memset(watched, 0, sizeof watched);
    for (unsigned i = 0; i < PLACES + 2; i++) {
        watched[i].gpa = watched[i].va = 0x900000 + (i < PLACES ? 2ull * i : i + PLACES - 1) * 4096;
        watched[i].len = 1;
        good &= breakpoints_watch(&set, &watched[i], &e) == 0;
    }
    breakpoints_unwatch(&set, &watched[PLACES]);
    good &= breakpoints_run(&set, &last, &e) == BREAKPOINT_FAILED && strstr(e.text, "places");
    for (unsigned i = 0; i < PLACES + 2; i++)
        if (i != PLACES)
            breakpoints_unwatch(&set, &watched[i]);
    ok(good, "more watched places than can be, as one was taken away", 0, NULL);
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
    test_resume_flag();
    test_guest_watch();
    test_places();
    printf("1..%u\n", number);
    return bad ? 1 : 0;
}
