/*
 * vmm/trace_build.c: loops are copied into a trace and the trace is *executed*, as code of this
 * very process. Page tables made by hand map the original's addresses here to fake guest memory
 * that holds the same bytes. HLT faults in user mode: the signal handler notes where, and the
 * registers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "mmu/walk.h"
#include "vmm/trace.h"

#define CR3  0x1000u
#define CODE 0x100000u /* GPA of the original code */

static struct vm vm;
static struct vcpu vcpu = {.vm = &vm};
static struct trace_filter f;
static uint8_t *original, *mapped; /* executable memory of this process, near each other */

static void map_page(uint64_t va, uint64_t gpa)
{
    uint64_t table = CR3, next = 0x2000;

    for (unsigned level = 3; level; level--, next += 0x1000) {
        uint64_t *entry =
            guest_memory_at(&vm.memory, table + (va >> (12 + 9 * level) & 511) * 8, 8);
        *entry = next | PTE_PRESENT | PTE_WRITE | PTE_USER;
        table = next;
    }
    *(uint64_t *)guest_memory_at(&vm.memory, table + (va >> 12 & 511) * 8, 8) =
        gpa | PTE_PRESENT | PTE_USER;
}

static int make(void **state)
{
    struct err e;
    size_t bytes = 4096 + TRACE_MAPPED;

    (void)state;
    if (guest_memory_create(&vm.memory, 16 << 20, &e) < 0)
        return -1;
    original =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (original == MAP_FAILED)
        return -1;
    mapped = original + 4096;
    map_page((uintptr_t)original, CODE);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    munmap(original, 4096 + TRACE_MAPPED);
    guest_memory_destroy(&vm.memory);
    return 0;
}

/* Build a trace of the code (its first byte is at `original`) around the instruction at `site`. */
static void build(const uint8_t *code, size_t len, size_t site,
                  const struct trace_condition *conditions, unsigned count)
{
    memcpy(original, code, len);
    memcpy(guest_memory_at(&vm.memory, CODE, len), code, len);
    memset(mapped, 0, TRACE_MAPPED);
    memset(&f, 0, sizeof f);
    f.vcpu = &vcpu;
    f.site = (uintptr_t)original + site;
    f.base = (uintptr_t)mapped;
    f.cr3 = CR3;
    f.cpl = 3;
    f.map_limit = TRACE_MAX_INSNS;
    assert_true(trace_build(&f, mapped, conditions, count));
}

static sigjmp_buf stopped;
static greg_t at_hlt[NGREG];

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    memcpy(at_hlt, ((ucontext_t *)context)->uc_mcontext.gregs, sizeof at_hlt);
    siglongjmp(stopped, 1);
}

/* Enter at `address` with these registers; returns true when it stopped at a HLT. */
static bool run(uint64_t address, uint64_t rax, uint64_t rcx, uint64_t rdx, uint64_t rbx)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER}, old;

    sigaction(SIGSEGV, &action, &old);
    bool hit = sigsetjmp(stopped, 1);
    if (!hit)
        __asm__ volatile("push %%rbp\n call *%[to]\n pop %%rbp\n"
                         : "+a"(rax), "+c"(rcx), "+d"(rdx), "+b"(rbx)
                         : [to] "r"(address)
                         : "r8", "r9", "r10", "r11", "rsi", "rdi", "memory", "cc");
    sigaction(SIGSEGV, &old, NULL);
    return hit;
}

static uint64_t entry(void)
{
    return f.base + TRACE_CODE_OFFSET + f.map[0].offset;
}

/* 0: dec rcx; 3: jnz 0; 5: ret */
static const uint8_t tight[] = {0x48, 0xff, 0xc9, 0x75, 0xfb, 0xc3};

static void test_counter_in_rcx(void **state)
{
    const struct trace_condition c = {.reg = 2, .value = 123456};

    (void)state;
    build(tight, sizeof tight, 0, &c, 1);
    assert_true(run(entry(), 0, 2000000, 0, 0));
    assert_int_equal(at_hlt[REG_RCX], 123456);
    assert_int_equal(trace_filter_original(&f, (uint64_t)at_hlt[REG_RIP]), f.site);
}

static void test_never_true_runs_to_the_end(void **state)
{
    const struct trace_condition c = {.reg = 2, .value = 0x1234567800000000};

    (void)state;
    build(tight, sizeof tight, 0, &c, 1);
    assert_false(run(entry(), 0, 100000, 0, 0));
}

static void test_several_conditions(void **state)
{
    /* 0: inc rdx; 3: cmp rdx,1000; 10: jne 17; 12: inc rbx; 15: xor edx,edx; 17: dec rcx; 20: jnz
     * 0; 22: ret. An inner count in RDX, an outer one in RBX. */
    static const uint8_t nested[] = {0x48, 0xff, 0xc2, 0x48, 0x81, 0xfa, 0xe8, 0x03,
                                     0x00, 0x00, 0x75, 0x05, 0x48, 0xff, 0xc3, 0x31,
                                     0xd2, 0x48, 0xff, 0xc9, 0x75, 0xea, 0xc3};
    const struct trace_condition c[] = {{.reg = 1, .value = 77}, {.reg = 3, .value = 500}};

    (void)state;
    build(nested, sizeof nested, 0, c, 2);
    assert_true(run(entry(), 0, 1000000, 0, 0));
    assert_int_equal(at_hlt[REG_RBX], 77);
    assert_int_equal(at_hlt[REG_RDX], 500);
    assert_int_equal(at_hlt[REG_RCX], 1000000 - 77 * 1000 - 500);
}

static void test_flags_survive(void **state)
{
    /* 0: cmp rcx,rdx (sets flags); 3: nop (the site); 4: je 11; 6: dec rcx; 9: jmp 0; 11: ret */
    static const uint8_t code[] = {0x48, 0x39, 0xd1, 0x90, 0x74, 0x05,
                                   0x48, 0xff, 0xc9, 0xeb, 0xf5, 0xc3};
    const struct trace_condition c = {.reg = 0, .value = 99};

    (void)state;
    build(code, sizeof code, 3, &c, 1);
    /* Entered at the copy of the first instruction, it must find rcx == rdx and return. */
    for (unsigned i = 0; i < f.map_count; i++)
        if (f.map[i].original == (uintptr_t)original)
            assert_false(run(f.base + TRACE_CODE_OFFSET + f.map[i].offset, 1, 5000, 17, 0));
}

static void test_memory_condition(void **state)
{
    /* 0: inc qword [rdx]; 3: dec rcx; 6: jnz 0; 8: ret */
    static const uint8_t code[] = {0x48, 0xff, 0x02, 0x48, 0xff, 0xc9, 0x75, 0xf8, 0xc3};
    static uint64_t word;
    const struct trace_condition c = {.memory = true, .va = (uintptr_t)&word, .value = 4242};

    (void)state;
    word = 0;
    build(code, sizeof code, 0, &c, 1);
    assert_true(run(entry(), 0, 100000, (uintptr_t)&word, 0));
    assert_int_equal(word, 4242);
    assert_int_equal(at_hlt[REG_RCX], 100000 - 4242);
}

static void test_calls_and_rip_relative_operands(void **state)
{
    /* 0: call 16; 5: dec rcx; 8: jnz 0; 10: ret; 16: add rax,[rip+1]; 23: ret; 24: 3 (data) */
    static const uint8_t code[32] = {
        0xe8, 11,   0,    0,    0,    0x48, 0xff, 0xc9, 0x75, 0xf6, 0xc3, 0x90, 0x90,
        0x90, 0x90, 0x90, 0x48, 0x03, 0x05, 1,    0,    0,    0,    0xc3, 3,
    };
    const struct trace_condition c = {.reg = 0, .value = 3000};

    (void)state;
    build(code, sizeof code, 5, &c, 1);
    assert_true(run(entry(), 0, 100000, 0, 0));
    assert_int_equal(at_hlt[REG_RAX], 3000);
    assert_int_equal(at_hlt[REG_RCX], 100000 - 1000);
}

static void test_code_that_user_mode_can_write_is_refused(void **state)
{
    const struct trace_condition c = {.reg = 2, .value = 1};
    uint64_t *leaf = guest_memory_at(&vm.memory, 0x4000 + ((uintptr_t)original >> 12 & 511) * 8, 8);

    (void)state;
    *leaf |= PTE_WRITE;
    memset(&f, 0, sizeof f);
    f.vcpu = &vcpu;
    f.site = (uintptr_t)original;
    f.base = (uintptr_t)mapped;
    f.cr3 = CR3;
    f.cpl = 3;
    f.map_limit = TRACE_MAX_INSNS;
    assert_false(trace_build(&f, mapped, &c, 1));
    *leaf &= ~PTE_WRITE;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counter_in_rcx),
        cmocka_unit_test(test_never_true_runs_to_the_end),
        cmocka_unit_test(test_several_conditions),
        cmocka_unit_test(test_flags_survive),
        cmocka_unit_test(test_memory_condition),
        cmocka_unit_test(test_calls_and_rip_relative_operands),
        cmocka_unit_test(test_code_that_user_mode_can_write_is_refused),
    };

    return cmocka_run_group_tests(tests, make, drop);
}
