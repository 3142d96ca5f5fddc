/*
 * The translator of traces (vmm/points/trace/trace_copy.c, vmm/points/trace/trace_emit.c): code of
 * this very process is copied into a trace, and the trace is *executed*. Page tables made by hand
 * map the original's addresses to fake guest memory that holds the same bytes. HLT faults in user
 * mode: the signal handler does what the exit of a vCPU would lead to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "mmu/walk.h"
#include "vmm/points/trace/trace_code.h"

#define CR3        0x1000u
#define MEMORY     (256ull << 20)
#define CODE_BYTES (2 * PAGE_BYTES)
#define FAR        0x100000000000ull /* out of rel32's reach of any code here */

static struct guest_memory memory;
static uint64_t written[MEMORY / PAGE_BYTES / 64]; /* pages of it that may be */
static uint64_t next_table = 0x2000, next_code = 64 << 20;
static struct trace *t;
static uint8_t *area;     /* CODE_BYTES of code, with the trace behind them */
static uint8_t *original; /* the first byte of the code */
static uint8_t *gate;     /* a page that is not part of the guest: calls into the trace */

/* ---- the guest ---- */

static uint64_t *leaf_of(uint64_t va)
{
    uint64_t table = CR3;

    for (unsigned level = 3; level; level--) {
        uint64_t *entry = guest_memory_at(&memory, table + (va >> (12 + 9 * level) & 511) * 8, 8);
        if (!*entry) {
            *entry = next_table | PTE_PRESENT | PTE_WRITE | PTE_USER | PTE_ACCESSED;
            next_table += PAGE_BYTES;
        }
        table = *entry & PTE_ADDRESS;
    }
    return guest_memory_at(&memory, table + (va >> 12 & 511) * 8, 8);
}

/* What the page of this process at va holds becomes code of the guest. */
static void give_page(uint64_t va)
{
    uint64_t *leaf = leaf_of(va);

    if (!*leaf) {
        *leaf = next_code | PTE_PRESENT | PTE_USER | PTE_ACCESSED;
        next_code += PAGE_BYTES;
    }
    memcpy(guest_memory_at(&memory, *leaf & PTE_ADDRESS, PAGE_BYTES), (void *)(uintptr_t)va,
           PAGE_BYTES);
}

/* All code of this process, up to what fits. */
static void give_process(void)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    uint64_t from, to;
    char mode[5];

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &from, &to, mode) == 3 &&
            !strcmp(mode, "r-xp") && from < 1ull << 47 && to - from < MEMORY / 4)
            for (uint64_t va = from; va < to && next_code < MEMORY - PAGE_BYTES; va += PAGE_BYTES)
                give_page(va);
    fclose(maps);
}

static uint8_t *executable(uint64_t hint, size_t bytes)
{
    uint8_t *at = mmap((void *)(uintptr_t)hint, bytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(at != MAP_FAILED);
    return at;
}

static int make(void **state)
{
    struct err e;

    (void)state;
    t = calloc(1, sizeof *t);
    if (!t || guest_memory_create(&memory, MEMORY, &e) < 0)
        return -1;
    area = original = executable(0, CODE_BYTES + TRACE_BYTES);
    gate = executable(0, PAGE_BYTES);
    give_process();
    return 0;
}

static int drop(void **state)
{
    (void)state;
    munmap(area, CODE_BYTES + TRACE_BYTES);
    munmap(gate, PAGE_BYTES);
    guest_memory_destroy(&memory);
    free(t);
    return 0;
}

/* Begin a trace with its pages at `pages`, for a site with these conditions. */
static void begin(uint8_t *pages, uint64_t site, const struct trace_condition *conditions,
                  unsigned count)
{
    memset(t, 0, sizeof *t);
    t->memory = &memory;
    t->root = CR3;
    t->cpl = 3;
    t->site = site;
    t->base = (uintptr_t)pages;
    t->words = (uint64_t *)(pages + TRACE_WORDS_OFFSET);
    t->table = (uint32_t *)(pages + TRACE_TABLE_OFFSET);
    t->code = pages + TRACE_CODE_OFFSET;
    memset(pages, 0, TRACE_BYTES);
    t->written = written;
    memcpy(t->condition, conditions, count * sizeof *conditions);
    t->conditions = count;
    trace_reset(t);
}

/* The code (its first byte is at `original`) and a trace of the instruction at `site`. */
static void build(const uint8_t *code, size_t len, size_t site,
                  const struct trace_condition *conditions, unsigned count)
{
    memset(area, 0xcc, CODE_BYTES);
    memcpy(original, code, len);
    give_page((uintptr_t)area);
    give_page((uintptr_t)area + PAGE_BYTES);
    begin(area + CODE_BYTES, (uintptr_t)original + site, conditions, count);
}

/* ---- the vCPU ---- */

static sigjmp_buf stopped;
static greg_t at_site[NGREG];
static unsigned exits;
static void (*before_extension)(void);

static void on_fault(int signal, siginfo_t *info, void *context)
{
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    uint64_t offset = (uint64_t)regs[REG_RIP] - (t->base + TRACE_CODE_OFFSET), target;

    (void)signal;
    (void)info;
    exits++;
    memcpy(at_site, regs, sizeof at_site);
    if (offset >= TRACE_CODE_BYTES || offset == t->match_at)
        siglongjmp(stopped, offset == t->match_at ? 1 : 2);
    uint32_t copy;
    if (before_extension)
        before_extension();
    if (!trace_extend(t, (uint32_t)offset, true, &copy, &target))
        siglongjmp(stopped, 2);
    regs[REG_RIP] = (greg_t)(copy ? t->base + TRACE_CODE_OFFSET + copy : target);
}

/* Call the copy of the function at `va`. True when the conditions came true; else it returned
 * *result. */
static bool call_copy(uint64_t va, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t *result)
{
    static const uint8_t call_r11[] = {0x48, 0x83, 0xec, 0x08, 0x41, 0xff,
                                       0xd3, 0x48, 0x83, 0xc4, 0x08, 0xc3};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER}, old;
    uint64_t address = t->base + TRACE_CODE_OFFSET + trace_copy(t, va);
    uint64_t (*enter)(uint64_t, uint64_t, uint64_t, uint64_t);

    gate[0] = 0x49; /* mov r11, address */
    gate[1] = 0xbb;
    memcpy(gate + 2, &address, 8);
    memcpy(gate + 10, call_r11, sizeof call_r11);
    memcpy(&enter, &gate, sizeof enter);
    exits = 0;
    sigaction(SIGSEGV, &action, &old);
    int hit = sigsetjmp(stopped, 1);
    if (!hit)
        *result = enter(a, b, c, d);
    sigaction(SIGSEGV, &old, NULL);
    assert_int_not_equal(hit, 2);
    return hit;
}

/* ---- small pieces of code; their argument is in RDI ---- */

/* 0: mov rcx,rdi; 3: dec rcx; 6: jnz 3; 8: ret */
static const uint8_t tight[] = {0x48, 0x89, 0xf9, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0xc3};

static void test_counter_in_rcx(void **state)
{
    const struct trace_condition c = {.reg = 2, .value = 123456};
    uint64_t result;

    (void)state;
    build(tight, sizeof tight, 3, &c, 1);
    assert_true(call_copy((uintptr_t)original, 2000000, 0, 0, 0, &result));
    assert_int_equal(at_site[REG_RCX], 123456);
}

static void test_high_halves_are_compared(void **state)
{
    const struct trace_condition c = {.reg = 2, .value = 0x1234567800000005};
    uint64_t result;

    (void)state;
    build(tight, sizeof tight, 3, &c, 1);
    assert_false(call_copy((uintptr_t)original, 100000, 0, 0, 0, &result));
}

static void test_several_conditions(void **state)
{
    /* 0: mov rcx,rdi; 3: xor edx,edx; 5: xor esi,esi; 7: inc rdx; 10: cmp rdx,1000; 17: jne 24;
     * 19: inc rsi; 22: xor edx,edx; 24: dec rcx; 27: jnz 7; 29: ret. An inner count in RDX, an
     * outer one in RSI. */
    static const uint8_t nested[] = {0x48, 0x89, 0xf9, 0x31, 0xd2, 0x31, 0xf6, 0x48, 0xff, 0xc2,
                                     0x48, 0x81, 0xfa, 0xe8, 0x03, 0x00, 0x00, 0x75, 0x05, 0x48,
                                     0xff, 0xc6, 0x31, 0xd2, 0x48, 0xff, 0xc9, 0x75, 0xea, 0xc3};
    const struct trace_condition c[] = {
        {.reg = 4, .value = 77}, {.reg = 3, .value = 500}, {.reg = 17, .value = 0x207}};
    uint64_t result;

    (void)state;
    build(nested, sizeof nested, 7, c, 3);
    assert_true(call_copy((uintptr_t)original, 1000000, 0, 0, 0, &result));
    assert_int_equal(at_site[REG_RSI], 77);
    assert_int_equal(at_site[REG_RDX], 500);
    assert_int_equal(at_site[REG_RCX], 1000000 - 77 * 1000 - 500);
    assert_true(exits < 10);
}

static void test_flags_survive(void **state)
{
    /* 0: mov rcx,rdi; 3: cmp rcx,17; 7: nop (the site); 8: je 15; 10: dec rcx; 13: jmp 3; 15: mov
     * rax,rcx; 18: ret */
    static const uint8_t code[] = {0x48, 0x89, 0xf9, 0x48, 0x83, 0xf9, 0x11, 0x90, 0x74, 0x05,
                                   0x48, 0xff, 0xc9, 0xeb, 0xf4, 0x48, 0x89, 0xc8, 0xc3};
    const struct trace_condition c[] = {{.reg = 2, .value = 40}, {.reg = 3, .value = 1}};
    uint64_t result;

    (void)state;
    build(code, sizeof code, 7, c, 2);
    assert_false(call_copy((uintptr_t)original, 5000, 0, 2, 0, &result));
    assert_int_equal(result, 17);
}

static void test_memory_condition(void **state)
{
    /* 0: inc qword [rdi]; 3: dec rsi; 6: jnz 0; 8: ret */
    static const uint8_t code[] = {0x48, 0xff, 0x07, 0x48, 0xff, 0xce, 0x75, 0xf8, 0xc3};
    static uint64_t word;
    const struct trace_condition c = {.memory = true, .va = (uintptr_t)&word, .value = 4242};
    uint64_t result;

    (void)state;
    word = 0;
    build(code, sizeof code, 0, &c, 1);
    assert_true(call_copy((uintptr_t)original, (uintptr_t)&word, 100000, 0, 0, &result));
    assert_int_equal(word, 4242);
    assert_int_equal(at_site[REG_RSI], 100000 - 4242);
}

static uint64_t gpa_of(uint64_t va)
{
    return (*leaf_of(va) & PTE_ADDRESS) + va % PAGE_BYTES;
}

/* What the guest writes to its code is in its memory, without the site's breakpoint. */
static void mirror_code(void)
{
    uint8_t *const site = guest_memory_at(&memory, gpa_of(t->site), 1), own = *site;

    give_page((uintptr_t)area);
    give_page((uintptr_t)area + PAGE_BYTES);
    *site = own;
}

static void rewrite_and_run(unsigned offset, bool is_known, bool hlt_on_site)
{
    /* 0: mov rcx,rdi; 3: xor eax,eax; 5: inc dword [12]; 11: add eax,0; 16: dec rcx (the site);
     * 19: jnz 5; 21: ret */
    static const uint8_t code[] = {0x48, 0x89, 0xf9, 0x31, 0xc0, 0xff, 0x05, 0x01,
                                   0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x00,
                                   0x48, 0xff, 0xc9, 0x75, 0xf0, 0xc3};
    const struct trace_condition c = {.reg = 2, .value = 10};
    uint64_t result;

    original = area + offset;
    build(code, sizeof code, 16, &c, 1);
    for (unsigned page = 0; page < 2; page++)
        bitmap_set(written, gpa_of((uintptr_t)area + page * PAGE_BYTES) / PAGE_BYTES);
    if (!is_known)
        t->written = NULL;
    t->site_gpa = gpa_of(t->site);
    t->hlt_on_site = hlt_on_site;
    if (hlt_on_site)
        original[16] = 0xf4;
    before_extension = mirror_code;
    assert_true(call_copy((uintptr_t)original, 50, 0, 0, 0, &result));
    before_extension = NULL;
    memset(written, 0, sizeof written);
    original = area;
    assert_int_equal(at_site[REG_RAX], 41 * 42 / 2);
    assert_in_range(exits, 41, 2 * 41 + 8); /* of one or two guards around the INC */
}

/* The page is not writable where the code runs: it is written by another mapping. */
static void test_code_that_is_rewritten(void **state)
{
    (void)state;
    for (unsigned hlt_on_site = 0; hlt_on_site < 2; hlt_on_site++) { /* or a debug register */
        rewrite_and_run(0, true, hlt_on_site);
        rewrite_and_run(0, false, hlt_on_site);
        for (unsigned before_end = 1; before_end < 22; before_end++)
            rewrite_and_run(PAGE_BYTES - before_end, true, hlt_on_site);
    }
}

/* A return first compares with the target that it had first: all but the last of a recursion's. */
static void test_returns(void **state)
{
    /* 0: xor eax,eax; 2: mov rdi,rsi; 5: call 20; 10: mov rdi,rsi; 13: call 20; 18: ret; 19: nop;
     * 20: dec rdi; 23: jz 30; 25: call 20; 30: inc rax (the site); 33: ret */
    static const uint8_t code[] = {0x31, 0xc0, 0x48, 0x89, 0xf7, 0xe8, 10,   0,    0,
                                   0,    0x48, 0x89, 0xf7, 0xe8, 2,    0,    0,    0,
                                   0xc3, 0x90, 0x48, 0xff, 0xcf, 0x74, 0x05, 0xe8, 0xf6,
                                   0xff, 0xff, 0xff, 0x48, 0xff, 0xc0, 0xc3};
    const struct trace_condition never = {.reg = 3, .value = 12345};
    uint64_t result;

    (void)state;
    build(code, sizeof code, 30, &never, 1);
    assert_false(call_copy((uintptr_t)original, 0, 1000, 0, 0, &result));
    assert_int_equal(result, 2000);
    assert_in_range(exits, 3, 12);
    const uint64_t predicted = (uintptr_t)original + 30;
    const uint8_t lea[] = {0x8d, 0x89, (uint8_t)-predicted, (uint8_t)(-predicted >> 8)};
    assert_non_null(memmem(t->code, t->len, lea, sizeof lea));
    /* As the guest could leave it: no place of the code, or none of a return. */
    trace_predict_return(t, UINT32_MAX - 8, predicted, 0);
    trace_predict_return(t, t->dispatch, predicted, 0);
    assert_false(call_copy((uintptr_t)original, 0, 1000, 0, 0, &result));
    assert_int_equal(result, 2000);
}

static void test_changed_code_is_noticed(void **state)
{
    const struct trace_condition c = {.reg = 2, .value = 1};

    (void)state;
    build(tight, sizeof tight, 3, &c, 1);
    assert_int_not_equal(trace_copy(t, (uintptr_t)original), 0);
    assert_true(trace_is_current(t));
    *(uint8_t *)guest_memory_at(&memory, *leaf_of((uintptr_t)original) & PTE_ADDRESS, 1) ^= 1;
    assert_false(trace_is_current(t));
}

/* User code may lie there; behind it addresses begin at 0 again. */
static void test_top_of_the_address_space(void **state)
{
    const struct trace_condition c = {.reg = 2, .value = 1};
    const uint64_t top = UINT64_MAX - (PAGE_BYTES - 1);
    uint64_t *leaf = leaf_of(top);

    (void)state;
    *leaf = next_code | PTE_PRESENT | PTE_USER | PTE_ACCESSED | PTE_WRITE;
    next_code += PAGE_BYTES;
    memset(guest_memory_at(&memory, gpa_of(top), PAGE_BYTES), 0x90, PAGE_BYTES);
    written[gpa_of(top) / PAGE_BYTES / 64] |= 1ull << gpa_of(top) / PAGE_BYTES % 64;
    for (uint64_t back = 1; back <= 64; back++) {
        build(tight, sizeof tight, 3, &c, 1);
        const uint32_t copy = trace_copy(t, 0 - back);
        assert_true(back < 2 * INSN_MAX ? !copy : back < 3 * INSN_MAX || copy);
    }
    written[gpa_of(top) / PAGE_BYTES / 64] &= ~(1ull << gpa_of(top) / PAGE_BYTES % 64);
    *leaf = 0;
}

static void test_every_copy_has_its_original(void **state)
{
    const struct trace_condition c = {.reg = 2, .value = 1};

    (void)state;
    build(tight, sizeof tight, 3, &c, 1);
    trace_copy(t, (uintptr_t)original);
    for (unsigned i = 0; i < t->map_count; i++)
        assert_int_equal(trace_find(t, t->map[i].offset)->original, t->map[i].original);
    assert_int_equal(t->map[0].original, (uintptr_t)original);
}

/* A jump to address 0 is the guest's own affair, and a HLT that asks for nothing is not ours. */
static void test_what_asks_for_nothing(void **state)
{
    const struct trace_condition c = {.reg = 2, .value = 1};
    uint64_t target = 1;
    uint32_t copy = 1;

    (void)state;
    build(tight, sizeof tight, 3, &c, 1);
    t->words[WORD_TARGET] = 0;
    assert_true(trace_extend(t, t->miss_at, true, &copy, &target));
    assert_int_equal(copy, 0);
    assert_int_equal(target, 0);
    assert_false(trace_extend(t, t->miss_at + 1, true, &copy, &target));
}

/* Where nothing more may be copied, what asks is told where to go on, and the trace stays as it is.
 */
static void test_nothing_more_may_be_copied(void **state)
{
    const struct trace_condition c = {.reg = 2, .value = 1};
    uint64_t target = 0;
    uint32_t copy = 1;

    (void)state;
    build(tight, sizeof tight, 3, &c, 1);
    const uint32_t len = t->len;
    t->words[WORD_TARGET] = t->site + 1;
    assert_true(trace_extend(t, t->miss_at, false, &copy, &target));
    assert_int_equal(copy, 0);
    assert_int_equal(target, t->site + 1);
    assert_int_equal(t->len, len);
    assert_true(trace_extend(t, t->miss_at, true, &copy, &target));
    assert_true(t->len > len);
}

/* The trace is left, for good, in front of what behaves differently at another address. */
static void test_what_is_not_copied(void **state)
{
    static const uint8_t code[][8] = {
        {0x0f, 0x05},                   /* syscall */
        {0x9d},                         /* popfq */
        {0xda, 0xc1},                   /* fcmovb st, st(1) */
        {0xd8, 0xc1},                   /* fadd st, st(1) */
        {0xff, 0x28},                   /* jmp far [rax] */
        {0xff, 0x18},                   /* call far [rax] */
        {0xc7, 0xf8, 0, 0, 0, 0},       /* xbegin */
        {0x8e, 0xd0},                   /* mov ss, eax */
        {0x4a, 0x8b, 0x05, 0, 0, 0, 0}, /* mov rax, [rip], with REX.X, far away */
        {0x0f, 0x31},                   /* rdtsc */
    };
    static const struct trace_condition c = {.reg = 2, .value = 1};
    uint8_t *low = executable(0x20000000, PAGE_BYTES), *pages = executable(FAR, TRACE_BYTES);

    (void)state;
    for (unsigned i = 0; i < sizeof code / sizeof *code; i++) {
        memset(low, 0x90, PAGE_BYTES);
        memcpy(low, code[i], sizeof *code);
        give_page((uintptr_t)low);
        begin(pages, (uintptr_t)low + 64, &c, 1);
        uint32_t copy = trace_copy(t, (uintptr_t)low);
        uint64_t target;
        memcpy(&target, t->code + copy + 6, 8);
        assert_int_equal(t->code[copy], 0xff); /* jmp [rip], the original address behind it */
        assert_int_equal(t->code[copy + 1], 0x25);
        assert_int_equal(target, (uintptr_t)low);
    }
    munmap(low, PAGE_BYTES);
    munmap(pages, TRACE_BYTES);
}

/* As kernels begin with SSE (FNINIT), and programs that round as C has it (FLDCW). */
static void test_x87_control_is_copied(void **state)
{
    static const uint8_t code[] = {
        0x48, 0x89, 0xf9,       /* mov rcx,rdi */
        0xdb, 0xe3,             /* 3: fninit */
        0xdb, 0xe2,             /* fnclex */
        0xd9, 0x7c, 0x24, 0xf0, /* fnstcw [rsp-16] */
        0xdf, 0xe0,             /* fnstsw ax */
        0xd9, 0x6c, 0x24, 0xf0, /* fldcw [rsp-16] */
        0x48, 0xff, 0xc9,       /* 17: dec rcx */
        0x75, 0xec,             /* jnz 3 */
        0xc3,
    };
    const struct trace_condition c = {.reg = 2, .value = 777};
    uint64_t result;

    (void)state;
    build(code, sizeof code, 17, &c, 1);
    assert_true(call_copy((uintptr_t)original, 5000, 0, 0, 0, &result));
    assert_int_equal(at_site[REG_RCX], 777);
    assert_int_equal(exits, 1); /* it was never left */
}

/* ---- real code: functions of the C library, near and far from the trace ---- */

static int by_value(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void sort_and_print(uint8_t *pages, uint64_t limit)
{
    static const struct trace_condition never = {.reg = 0, .value = 0x123456789};
    static uint32_t numbers[500], sorted[500];
    char text[200], expected[200];
    uint64_t result;

    for (unsigned i = 0; i < 500; i++)
        sorted[i] = numbers[i] = i * 2654435761u;
    qsort(sorted, 500, 4, by_value);
    begin(pages, (uintptr_t)by_value, &never, 1);
    assert_false(
        call_copy((uintptr_t)&qsort, (uintptr_t)numbers, 500, 4, (uintptr_t)by_value, &result));
    assert_memory_equal(numbers, sorted, sizeof numbers);
    assert_true(exits < limit);

    unsigned n = (unsigned)snprintf(expected, sizeof expected, "%s %x", "a string", 0xbeef);
    begin(pages, (uintptr_t)by_value, &never, 1);
    union {
        int (*function)(char *, size_t, const char *, va_list);
        uintptr_t address;
    } print = {vsnprintf};
    va_list arguments;
    struct {
        uint32_t gp, fp;
        const void *overflow, *saved;
    } list = {48, 304, (const uint64_t[]){(uintptr_t) "a string", 0xbeef}, NULL};
    memcpy(arguments, &list, sizeof list);
    assert_false(call_copy(print.address, (uintptr_t)text, sizeof text, (uintptr_t) "%s %x",
                           (uintptr_t)arguments, &result));
    assert_int_equal(result, n);
    assert_string_equal(text, expected);
}

static void compare_strings(uint8_t *pages)
{
    static const struct trace_condition never = {.reg = 0, .value = 0x123456789};
    static _Alignas(64) char a[192], b[192];
    union {
        int (*function)(const char *, const char *);
        uintptr_t address;
    } compare = {strcmp};
    uint64_t result;

    begin(pages, (uintptr_t)by_value, &never, 1);
    for (unsigned at = 0; at < 64; at++)
        for (unsigned len = 0; len < 70; len += 3) {
            unsigned other = (at * 7 + len) % 64;
            memset(a + at, 'x', len);
            memset(b + other, 'x', len);
            strcpy(a + at + len, "tail");
            strcpy(b + other + len, len & 1 ? "tail" : "tall");
            assert_false(
                call_copy(compare.address, (uintptr_t)a + at, (uintptr_t)b + other, 0, 0, &result));
            assert_int_equal((int)result < 0, strcmp(a + at, b + other) < 0);
            assert_int_equal((int)result == 0, strcmp(a + at, b + other) == 0);
        }
}

static void test_library_code_near(void **state)
{
    (void)state;
    sort_and_print(area + CODE_BYTES, 400);
    compare_strings(area + CODE_BYTES);
}

static void test_library_code_far(void **state)
{
    uint8_t *pages = executable(FAR, TRACE_BYTES);

    (void)state;
    sort_and_print(pages, 400);
    compare_strings(pages);
    munmap(pages, TRACE_BYTES);
}

/* RIP-relative operands: near, of low addresses (which 32 bits can hold), and far from the trace.
 */
static void add_by_rip(uint8_t *page, uint8_t *pages)
{
    /* 0: xor eax,eax; 2: add rax,[rip+19]; 9: jmp [rip+21]; 15: int3; 16: dec rdi; 19: jnz 2;
     * 21: ret; 28: 3; 36: address of 16 */
    static const uint8_t code[64] = {
        0x31, 0xc0, 0x48, 0x03, 0x05, 19,   0,    0,    0,    0xff, 0x25, 21,   0,    0, 0,
        0xcc, 0x48, 0xff, 0xcf, 0x75, 0xed, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 3,
    };
    static const struct trace_condition c = {.reg = 0, .value = 3000};
    uint64_t result, back = (uintptr_t)page + 16;

    memcpy(page, code, sizeof code);
    memcpy(page + 36, &back, 8);
    give_page((uintptr_t)page);
    begin(pages, (uintptr_t)page + 16, &c, 1);
    assert_true(call_copy((uintptr_t)page, 100000, 0, 0, 0, &result));
    assert_int_equal(at_site[REG_RAX], 3000);
    assert_int_equal(at_site[REG_RDI], 100000 - 999);
}

static void test_rip_relative_operands(void **state)
{
    uint8_t *low = executable(0x20000000, PAGE_BYTES), *pages = executable(FAR, TRACE_BYTES);

    (void)state;
    assert_true((uintptr_t)low < 1u << 31);
    add_by_rip(original, area + CODE_BYTES);
    add_by_rip(original, pages);
    add_by_rip(low, pages);
    munmap(low, PAGE_BYTES);
    munmap(pages, TRACE_BYTES);
}

/* When nothing more fits the translation begins again, and the guest does not notice. */
static void test_full_trace_begins_again(void **state)
{
    static const struct trace_condition never = {.reg = 0, .value = 0x123456789};
    static uint32_t numbers[200];
    uint64_t result;

    (void)state;
    for (unsigned i = 0; i < 200; i++)
        numbers[i] = i * 2654435761u;
    begin(area + CODE_BYTES, (uintptr_t)by_value, &never, 1);
    t->len = TRACE_CODE_BYTES - TRACE_TAIL_BYTES - 600;
    assert_false(
        call_copy((uintptr_t)&qsort, (uintptr_t)numbers, 200, 4, (uintptr_t)by_value, &result));
    for (unsigned i = 1; i < 200; i++)
        assert_true(numbers[i - 1] < numbers[i]);
    assert_true(t->len < TRACE_CODE_BYTES / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counter_in_rcx),
        cmocka_unit_test(test_high_halves_are_compared),
        cmocka_unit_test(test_several_conditions),
        cmocka_unit_test(test_flags_survive),
        cmocka_unit_test(test_memory_condition),
        cmocka_unit_test(test_code_that_is_rewritten),
        cmocka_unit_test(test_returns),
        cmocka_unit_test(test_changed_code_is_noticed),
        cmocka_unit_test(test_top_of_the_address_space),
        cmocka_unit_test(test_every_copy_has_its_original),
        cmocka_unit_test(test_what_asks_for_nothing),
        cmocka_unit_test(test_nothing_more_may_be_copied),
        cmocka_unit_test(test_what_is_not_copied),
        cmocka_unit_test(test_x87_control_is_copied),
        cmocka_unit_test(test_rip_relative_operands),
        cmocka_unit_test(test_library_code_near),
        cmocka_unit_test(test_library_code_far),
        cmocka_unit_test(test_full_trace_begins_again),
    };

    return cmocka_run_group_tests(tests, make, drop);
}
