/*
 * Counting entries into the kernel (vmm/points/entry_count.c): functions of this very process are
 * made to count, and called. HLT faults in user mode: the signal handler does what the exit of a
 * vCPU would lead to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <asm/prctl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "mmu/insn.h"
#include "mmu/memory.h"
#include "vmm/points/entry_count.h"

#define CODE_BYTES 4096u
#define GAP_AT     2048u
#define GAP_BYTES  256u
#define GS_OFFSET  0xbff8u

static uint8_t *area, text[CODE_BYTES];
static uint64_t word;
static unsigned exits;

static void on_hlt(int signal, siginfo_t *info, void *context)
{
    greg_t *rip = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

    (void)signal;
    (void)info;
    if (*(uint8_t *)*rip != HLT)
        abort();
    exits++;
    ++*rip;
}

static int set_up(void **state)
{
    (void)state;
    area = mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                -1, 0);
    return area == MAP_FAILED ||
           syscall(SYS_arch_prctl, ARCH_SET_GS, (uint64_t)&word - GS_OFFSET) < 0;
}

/* Put the code there and have it count; false: it cannot. */
static bool make(const void *code, size_t len, struct entry_count *count)
{
    const struct elf_extent extent = {.va = (uint64_t)area, .len = CODE_BYTES};
    struct code_gap gap = {.next = GAP_AT, .end = GAP_AT + GAP_BYTES};

    memset(text, 0xcc, sizeof text);
    memcpy(text, code, len);
    memcpy(area, text, sizeof text);
    word = 0;
    exits = 0;
    *count = (struct entry_count){.gs_offset = GS_OFFSET};
    return entry_sites_count_at(&extent, text, area, 0, &gap, count);
}

static int call(int argument)
{
    int (*function)(int);

    memcpy(&function, &area, sizeof function);
    return function(argument);
}

static void functions_do_what_they_did_and_count(void **state)
{
    static const uint8_t framed[] = {
        0xf3, 0x0f, 0x1e, 0xfa,       /* endbr64 */
        0x55, 0x48, 0x89, 0xe5, 0x53, /* push; mov; push */
        0x8d, 0x47, 0x07,             /* lea 7(%rdi),%eax */
        0x5b, 0x5d, 0xc3,             /* pop; pop; ret */
    };
    static const uint8_t rip_relative[] = {
        0x8b, 0x05, 0x03, 0x00, 0x00, 0x00, /* mov 3(%rip),%eax */
        0x01, 0xf8, 0xc3,                   /* add %edi,%eax; ret */
        0x64, 0x00, 0x00, 0x00,             /* 100 */
    };
    struct entry_count count;

    (void)state;
    assert_true(make(framed, sizeof framed, &count));
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(call(i), i + 7);
        assert_int_equal(-word, i);
    }
    assert_int_equal(count.sites, 1);
    assert_int_equal(count.start, (uint64_t)area + GAP_AT);
    assert_memory_equal(area, framed, 4); /* a tracked jump still finds its mark */

    assert_true(make(rip_relative, sizeof rip_relative, &count));
    assert_int_equal(call(5), 105);
    assert_int_equal(-word, 1);
    assert_int_equal(exits, 0);
}

/* As in Linux before 5.8: ftrace writes there again and again. */
static void what_ftrace_has_stays_in_front(void **state)
{
    static const uint8_t codes[][20] = {
        {0xe8, 0x0b, 0, 0, 0, 0x55, 0x48, 0x89, 0xe5, 0x53, 0x8d, 0x47, 7, 0x5b, 0x5d, 0xc3, 0xc3},
        {0x0f, 0x1f, 0x44, 0, 0, 0x55, 0x48, 0x89, 0xe5, 0x53, 0x8d, 0x47, 7, 0x5b, 0x5d, 0xc3},
        {0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0,    0,    0x55,
         0x48, 0x89, 0xe5, 0x53, 0x8d, 0x47, 7,    0x5b, 0x5d, 0xc3},
    };
    struct entry_count count;

    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        assert_true(make(codes[i], sizeof codes[i], &count));
        assert_memory_equal(area, codes[i], i < 2 ? 5 : 9);
        assert_int_equal(call(1), 8);
        assert_int_equal(-word, 1);
    }
}

static void what_linux_patches_or_cannot_be_moved_stays(void **state)
{
    static const uint8_t codes[][8] = {
        {0x55, 0x0f, 0x1f, 0x44, 0, 0, 0x5d, 0xc3}, /* a NOP of a static key, behind a PUSH */
        {0x55, 0x66, 0x90, 0x5d, 0xc3},             /* a short one */
        {0x55, 0xeb, 0x00, 0x5d, 0xc3},             /* a jump */
        {0x55, 0xe8, 0x00, 0x00, 0x00, 0x00, 0xc3}, /* a call */
        {0x31, 0xc0, 0xc3},                         /* too short */
        {0x06, 0x06, 0x06, 0x06, 0x06},             /* no instruction */
    };
    struct entry_count count;

    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        assert_false(make(codes[i], sizeof codes[i], &count));
        assert_memory_equal(area, text, CODE_BYTES);
        assert_int_equal(count.sites, 0);
    }
}

static void a_full_gap_is_no_place(void **state)
{
    static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0x53, 0x5b, 0x5d, 0xc3};
    const struct elf_extent extent = {.va = (uint64_t)area, .len = CODE_BYTES};
    struct code_gap gap = {.next = GAP_AT, .end = GAP_AT + 21};
    struct entry_count count = {.gs_offset = GS_OFFSET};

    (void)state;
    memcpy(text, code, sizeof code);
    memcpy(area, text, sizeof text);
    assert_false(entry_sites_count_at(&extent, text, area, 0, &gap, &count));
    assert_memory_equal(area, text, CODE_BYTES);
    gap.end++;
    assert_true(entry_sites_count_at(&extent, text, area, 0, &gap, &count));
}

static void an_alarm_goes_off_behind_so_many_and_leaves_the_count(void **state)
{
    static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0x53, 0x8d,
                                   0x47, 0x07, 0x5b, 0x5d, 0xc3};
    const struct sigaction action = {.sa_sigaction = on_hlt, .sa_flags = SA_SIGINFO};
    struct entry_count count;
    struct entry_alarm alarm;

    (void)state;
    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0); /* cmocka has one for each test */
    assert_true(make(code, sizeof code, &count));
    (void)call(0);
    (void)call(0);
    entry_alarm_set(&alarm, &word, 3);
    (void)call(0);
    (void)call(0);
    assert_int_equal(exits, 0);
    assert_false(entry_alarm_is_due(&alarm));
    assert_int_equal(call(1), 8);
    assert_int_equal(exits, 1);
    assert_true(entry_alarm_is_due(&alarm));
    entry_alarm_clear(&alarm);
    assert_int_equal(-word, 5);

    entry_alarm_set(&alarm, &word, 1000); /* taken away before */
    (void)call(0);
    entry_alarm_clear(&alarm);
    assert_int_equal(-word, 6);
    assert_int_equal(exits, 1);
}

static void entries_between_here_and_a_landmark(void **state)
{
    struct landmark l = {.entry = ENTRY_NEAR, .entries = 12, .entries_gpa = 0x1ff8};
    struct guest_memory m;
    struct err e;

    (void)state;
    assert_int_equal(guest_memory_create(&m, 16 << 20, &e), 0);
    *(uint64_t *)(m.host + 0x1ff8) = (uint64_t)-10;
    assert_int_equal(entries_between(&m, &l), 2);
    l.entries = 7;
    assert_int_equal(entries_between(&m, &l), -3);
    l.entries_gpa = 1ull << 40; /* a hostile recording's */
    assert_int_equal(entries_between(&m, &l), 0);
    l.entries_gpa = 0x1ff8;
    l.entry = ENTRY_UNKNOWN;
    assert_int_equal(entries_between(&m, &l), 0);
    guest_memory_destroy(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_do_what_they_did_and_count),
        cmocka_unit_test(what_ftrace_has_stays_in_front),
        cmocka_unit_test(what_linux_patches_or_cannot_be_moved_stays),
        cmocka_unit_test(a_full_gap_is_no_place),
        cmocka_unit_test(an_alarm_goes_off_behind_so_many_and_leaves_the_count),
        cmocka_unit_test(entries_between_here_and_a_landmark),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
