#include <assert.h>
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "boot/boot.h"
#include "boot/code_gap.h"
#include "boot/code_sites.h"
#include "boot/kernel_code.h"

#define TEXT_VA 0xffffffff81000000ull

/* A text of harmless instructions of several lengths, for sites to be put into. */
static void fill_text(uint8_t *text, size_t len)
{
    static const uint8_t pattern[] = {
        0x55,                                     /* push %rbp */
        0x48, 0x89, 0xe5,                         /* mov %rsp,%rbp */
        0x48, 0x8b, 0x05, 0x10, 0x20, 0x30, 0x00, /* mov 0x302010(%rip),%rax */
        0x85, 0xc0,                               /* test %eax,%eax */
        0x74, 0x05,                               /* je */
        0x5d,                                     /* pop %rbp */
    };

    for (size_t i = 0; i < len; i++)
        text[i] = pattern[i % sizeof(pattern)];
    static_assert(sizeof(pattern) == 16, "instructions start at multiples of 16");
}

static size_t find(const uint8_t *code, size_t len, uint64_t va, struct code_site *out, size_t max)
{
    unsigned effort = CODE_SITE_EFFORT;

    return code_sites_find(code, len, va, out, max, &effort);
}

static void finds_rdtsc_and_rdtscp(void **state)
{
    uint8_t text[1024];
    struct code_site sites[8];

    (void)state;
    fill_text(text, sizeof(text));
    memcpy(text, "\x0f\x31", 2);               /* the very first instruction */
    memcpy(text + 2, "\x66\x90", 2);           /* so that the pattern's second goes on */
    memcpy(text + 512, "\x0f\x01\xf9\x90", 4); /* push; mov, replaced */
    memcpy(text + 1008 + 13, "\x90\x0f\x31", 3);
    assert_int_equal(find(text, sizeof(text), TEXT_VA, sites, 8), 3);
    assert_int_equal(sites[0].va, TEXT_VA);
    assert_int_equal(sites[0].kind, SITE_RDTSC);
    assert_int_equal(sites[1].va, TEXT_VA + 512);
    assert_int_equal(sites[1].kind, SITE_RDTSCP);
    assert_int_equal(sites[1].offset, 512);
    assert_int_equal(sites[2].offset, 1022);
    assert_int_equal(sites[2].kind, SITE_RDTSC);
    assert_int_equal(find(text, sizeof(text), TEXT_VA, sites, 2), 2);
    assert_int_equal(find(text, 0, TEXT_VA, sites, 2), 0);
    assert_int_equal(find(text, 1, TEXT_VA, sites, 2), 0);
}

static void ignores_the_bytes_inside_other_instructions(void **state)
{
    uint8_t text[1024];
    struct code_site sites[8];

    (void)state;
    fill_text(text, sizeof(text));
    memcpy(text + 512 + 7, "\x0f\x31\x00\x00", 4); /* the displacement of the mov */
    memcpy(text + 768 + 7, "\x0f\x01\xf9\x00", 4);
    assert_int_equal(find(text, sizeof(text), TEXT_VA, sites, 8), 0);
}

/* Out of step, a run of wrmsr decodes as `xor %cl,(%rdi)` until its end. */
static void is_not_fooled_by_a_run_of_wrmsr(void **state)
{
    uint8_t text[1024];
    struct code_site sites[8];

    (void)state;
    fill_text(text, sizeof(text));
    for (size_t i = 512; i < 704; i += 2)
        memcpy(text + i, "\x0f\x30", 2);
    memcpy(text + 704, "\x0f\x31\x66\x90", 4);
    assert_int_equal(find(text, sizeof(text), TEXT_VA, sites, 8), 1);
    assert_int_equal(sites[0].offset, 704);
}

#define FILE_LEN 0x2000u
#define CODE_AT  0x1000u

/* An ELF file with one executable segment at physical 16 MiB and no section table. */
static void make_elf(uint8_t *file)
{
    Elf64_Ehdr h = {.e_type = ET_EXEC,
                    .e_machine = EM_X86_64,
                    .e_phoff = sizeof(h),
                    .e_phnum = 1,
                    .e_phentsize = sizeof(Elf64_Phdr)};
    Elf64_Phdr p = {.p_type = PT_LOAD,
                    .p_flags = PF_R | PF_X,
                    .p_offset = CODE_AT,
                    .p_vaddr = TEXT_VA,
                    .p_paddr = 0x1000000,
                    .p_filesz = FILE_LEN - CODE_AT,
                    .p_memsz = FILE_LEN - CODE_AT};

    memset(file, 0, FILE_LEN);
    memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64;
    h.e_ident[EI_DATA] = ELFDATA2LSB;
    memcpy(file, &h, sizeof(h));
    memcpy(file + sizeof(h), &p, sizeof(p));
    fill_text(file + CODE_AT, FILE_LEN - CODE_AT);
}

/* Sites with prefixes and with registers, and what they are replaced by. */
static const struct {
    const char *code, *patch;
    size_t len;
    enum code_site_kind kind;
} encodings[] = {
    {"\x2e\x0f\x31", "\xe5\xe1\x90", 3, SITE_RDTSC},         /* cs rdtsc */
    {"\x66\x48\x0f\x31", "\xe5\xe1\x90\x90", 4, SITE_RDTSC}, /* data16 rex.W rdtsc */
    {"\xf3\x0f\x31", "\xe5\xe1\x90", 3, SITE_RDTSC},         /* rep rdtsc */
    {"\x48\x66\x0f\x31", "\xe5\xe1\x90\x90", 4, SITE_RDTSC}, /* REX that does not stand last */
    {"\x48\x48\x0f\x31", "\xe5\xe1\x90\x90", 4, SITE_RDTSC}, /* two of them */
    {"\x44\x66\x0f\x20\xe1", "\x41\xe7\xe3\x90\x90", 5, SITE_CR4_READ}, /* REX.R is void */
    {"\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x2e\x0f\x31",
     "\xe5\xe1\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90", 15, SITE_RDTSC},
    {"\x66\x0f\x20\xe1", "\x41\xe7\xe3\x90", 4, SITE_CR4_READ},  /* data16 mov %cr4,%rcx */
    {"\x0f\x22\x67", "\x47\xe7\xe2", 3, SITE_CR4_WRITE},         /* mod is 1, not 3 */
    {"\x0f\x22\xe7", "\x47\xe7\xe2", 3, SITE_CR4_WRITE},         /* mov %rdi,%cr4 */
    {"\x0f\x20\xe0", "\x40\xe7\xe3", 3, SITE_CR4_READ},          /* mov %cr4,%rax */
    {"\x41\x0f\x20\xe2", "\x4a\xe7\xe3\x90", 4, SITE_CR4_READ},  /* mov %cr4,%r10 */
    {"\x41\x0f\x22\xe5", "\x4d\xe7\xe2\x90", 4, SITE_CR4_WRITE}, /* mov %r13,%cr4 */
    {"\x48\x0f\x20\xe3", "\x43\xe7\xe3\x90", 4, SITE_CR4_READ},  /* the same with REX.W */
};

static void finds_and_replaces_every_encoding(void **state)
{
    uint8_t text[1024], patch[CODE_SITE_BYTES];
    struct code_site sites[8];

    (void)state;
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
        const size_t len = encodings[i].len;
        fill_text(text, sizeof text);
        memset(text + 512, 0x90, 16); /* in place of the whole pattern */
        memcpy(text + 528 - len, encodings[i].code, len);
        assert_int_equal(find(text, sizeof text, TEXT_VA, sites, 8), 1);
        assert_int_equal(sites[0].kind, encodings[i].kind);
        assert_int_equal(sites[0].len, len);
        assert_int_equal(sites[0].offset, 528 - len);
        assert_int_equal(code_site_patch(&sites[0], text + sites[0].offset, patch), len);
        assert_memory_equal(patch, encodings[i].patch, len);
        /* Where the code has changed since, nothing is replaced. */
        text[sites[0].offset + len - 1] ^= 0x48;
        assert_int_equal(code_site_patch(&sites[0], text + sites[0].offset, patch), 0);
    }
    /* CR3 and CR8 are others. */
    fill_text(text, sizeof text);
    memcpy(text + 512, "\x90\x0f\x22\xdf", 4);
    assert_int_equal(find(text, sizeof text, TEXT_VA, sites, 8), 0);
    memcpy(text + 512, "\x44\x0f\x20\xc0", 4);
    assert_int_equal(find(text, sizeof text, TEXT_VA, sites, 8), 0);
}

/* What is made up to cost time is given up, and said to be. */
static void gives_up_on_too_many_candidates(void **state)
{
    static const uint8_t mov[] = {0x48, 0x8b, 0x05, 0x0f, 0x31, 0x0f, 0x31}; /* none in it */
    const size_t len = sizeof mov * CODE_SITE_EFFORT;
    uint8_t *text = malloc(len);
    struct code_site site;
    unsigned effort = 1000;

    (void)state;
    for (size_t i = 0; i < len; i += sizeof mov)
        memcpy(text + i, mov, sizeof mov);
    assert_int_equal(code_sites_find(text, len, TEXT_VA, &site, 1, &effort), 0);
    assert_int_equal(effort, 0);
    effort = 1000;
    assert_int_equal(code_sites_find(text, sizeof mov * 100, TEXT_VA, &site, 1, &effort), 0);
    assert_int_equal(effort, 800);
    for (size_t i = 0; i < len; i += sizeof mov) /* each may begin at three places */
        text[i + 3] = text[i + 4] = 0x66;
    assert_int_equal(code_sites_find(text, sizeof mov * 100, TEXT_VA, &site, 1, &effort), 0);
    assert_int_equal(effort, 500);
    free(text);
}

static void finds_sites_of_an_elf_file(void **state)
{
    uint8_t *file = malloc(FILE_LEN);
    struct code_site sites[8];
    size_t count;
    bool all;
    struct err e;

    (void)state;
    make_elf(file);
    memcpy(file + CODE_AT + 0x200, "\x0f\x31\x66\x90", 4);
    memcpy(file + CODE_AT + 0x400, "\x90\x0f\x22\xe7", 4);
    assert_int_equal(code_sites_in_elf(file, FILE_LEN, sites, 8, &count, &all, &e), 0);
    assert_int_equal(count, 2);
    assert_true(all);
    assert_int_equal(sites[1].kind, SITE_CR4_WRITE);
    assert_int_equal(sites[1].pa, 0x1000401);
    assert_int_equal(sites[0].va, TEXT_VA + 0x200);
    assert_int_equal(sites[0].pa, 0x1000200);
    assert_int_equal(sites[0].offset, CODE_AT + 0x200);

    assert_int_equal(code_sites_in_elf("ELF", 3, sites, 8, &count, &all, &e), -1);
    assert_non_null(strstr(e.text, "ELF"));
    free(file);
}

static void survives_damaged_files(void **state)
{
    uint8_t *good = malloc(FILE_LEN), *bad = malloc(FILE_LEN);
    struct code_site sites[8];
    size_t count;
    bool all;
    struct err e;

    (void)state;
    make_elf(good);
    memcpy(good + CODE_AT + 0x200, "\x0f\x31\x66\x90", 4);
    memcpy(good + CODE_AT + 0x400, "\x90\x0f\x22\xe7", 4);
    srand(1);
    for (unsigned i = 0; i < 2000; i++) {
        memcpy(bad, good, FILE_LEN);
        for (unsigned k = 0; k < 4; k++)
            bad[(size_t)rand() % (k < 2 ? 128 : FILE_LEN)] ^= (uint8_t)(1 << rand() % 8);
        code_sites_in_elf(bad, FILE_LEN, sites, 8, &count, &all, &e);
        assert_true(count <= 8);
    }
    free(good);
    free(bad);
}

/* Where that va of the kernel's file was loaded. */
static const uint8_t *loaded_at(const struct guest_memory *m, const void *vmlinux, size_t len,
                                uint64_t va)
{
    struct elf_view elf;
    struct elf_extent code;
    unsigned position = 0;
    struct err e;

    assert_int_equal(elf_open(&elf, vmlinux, len, "test", &e), 0);
    while (elf_next_code(&elf, &position, &code))
        if (va >= code.va && va - code.va < code.len)
            return guest_memory_at(m, code.pa + (va - code.va), code.len - (va - code.va));
    return NULL;
}

/* In ptep_test_and_clear_young(), the one BTR of the Accessed bit is a call of it, behind which CR3
 * is written. */
static void check_aging_is_led_over_a_flush(const struct guest_memory *m, const void *vmlinux,
                                            size_t len, const struct kallsyms *k)
{
    static const uint8_t btr[] = {0xf0, 0x48, 0x0f, 0xba};
    static const uint8_t flush[] = {5,    0x9c, 0x51, 0x0f, 0x20, 0xd9,
                                    0x0f, 0x22, 0xd9, 0x59, 0x9d, 0xc3};
    const uint64_t va = kallsyms_address(k, "ptep_test_and_clear_young");
    const uint8_t *function = loaded_at(m, vmlinux, len, va);
    unsigned calls = 0;

    assert_non_null(function);
    assert_null(memmem(function, 48, btr, sizeof btr));
    for (size_t i = 5; i < 48; i++) { /* behind the call of __fentry__ */
        const uint8_t *detour = function[i] == CODE_CALL
                                    ? loaded_at(m, vmlinux, len, code_target(function + i, va + i))
                                    : NULL;
        if (!detour || memcmp(detour, btr, sizeof btr))
            continue;
        assert_memory_equal(detour + 5, flush, sizeof flush);
        calls++;
    }
    assert_int_equal(calls, 1);
}

/* DITTO_TEST_VMLINUZ: a distribution kernel, as /boot/vmlinuz. */
static void finds_the_sites_of_a_real_kernel(void **state)
{
    const char *path = getenv("DITTO_TEST_VMLINUZ");
    static uint8_t kernel[64 << 20];
    static struct code_site sites[1000];
    struct guest_memory m;
    struct boot_state boot;
    size_t count, of_kind[SITE_CR4_WRITE + 1] = {0};
    bool all;
    struct err e;

    (void)state;
    if (!path) {
        print_message("skipped: DITTO_TEST_VMLINUZ names no kernel\n");
        skip();
    }

    FILE *f = fopen(path, "r");

    assert_non_null(f);

    struct boot_config config = {.kernel = kernel,
                                 .kernel_len = fread(kernel, 1, sizeof(kernel), f)};

    fclose(f);
    assert_int_equal(guest_memory_create(&m, 512ull << 20, &e), 0);
    assert_int_equal(boot_load(&config, &m, &boot, &e), 0);
    assert_int_equal(
        code_sites_in_elf(boot.vmlinux, boot.vmlinux_len, sites, 1000, &count, &all, &e), 0);
    for (size_t i = 0; i < count; i++) {
        of_kind[sites[i].kind]++;
        assert_memory_equal(guest_memory_at(&m, sites[i].pa, sites[i].len),
                            boot.vmlinux + sites[i].offset, sites[i].len);
    }
    print_message("%zu rdtsc, %zu rdtscp, CR4: %zu reads, %zu writes\n", of_kind[SITE_RDTSC],
                  of_kind[SITE_RDTSCP], of_kind[SITE_CR4_READ], of_kind[SITE_CR4_WRITE]);
    assert_in_range(of_kind[SITE_RDTSC], 50, 500);
    assert_in_range(of_kind[SITE_CR4_READ], 5, 50);
    assert_in_range(of_kind[SITE_CR4_WRITE], 5, 50);

    struct kallsyms *k = kallsyms_from_elf(boot.vmlinux, boot.vmlinux_len, &e);
    struct kernel_code code;

    assert_non_null(k);
    assert_int_equal(kernel_code_patch(&m, boot.vmlinux, boot.vmlinux_len, k, true, &code, &e), 0);
    assert_string_equal(code.doubt, "");
    assert_int_equal(code.patched, count - of_kind[SITE_RDTSCP]);
    assert_in_range(code.module_hook, code.start, code.end - 1);
    assert_in_range(code.aging_flushes, 4, 8);
    assert_in_range(code.entries.sites, 3,
                    ENTRY_SITES); /* newer kernels lack do_int80_syscall_32 */
    assert_in_range(code.entries.start, code.start, code.entries.end - 1);
    assert_in_range(code.entries.end, code.entries.start, code.end - 1);
    check_aging_is_led_over_a_flush(&m, boot.vmlinux, boot.vmlinux_len, k);
    kallsyms_free(k);
    free(boot.vmlinux);
    guest_memory_destroy(&m);
}

/* A kernel is a guest's: what looks like a call of the function everywhere, and is none, costs no
 * hours.
 */
static void gives_up_on_what_looks_like_calls(void **state)
{
    enum { LEN = 16 << 20, STEP = 10 };
    uint8_t *code = malloc(LEN);
    unsigned effort = CODE_SITE_EFFORT;
    size_t found[4];

    (void)state;
    assert_non_null(code);
    memset(code, 0x90, LEN);
    for (uint32_t i = 0; i + STEP < LEN; i += STEP) {
        const uint32_t distance = 0x10000000u - (i + 3 + 5);
        code[i] = 0x48; /* movabs $..., %rax, in whose constant a call is */
        code[i + 1] = 0xb8;
        code[i + 3] = 0xe8;
        memcpy(code + i + 4, &distance, sizeof distance);
    }
    alarm(60);
    assert_int_equal(code_calls_find(code, LEN, 0, 0x10000000, found, 4, &effort), 0);
    alarm(0);
    assert_int_equal(effort, 0);
    /* One that is a call is found, and with what effort. */
    effort = 10;
    memset(code, 0x90, 1000);
    const uint32_t distance = 0x10000000u - 505;
    code[500] = 0xe8;
    memcpy(code + 501, &distance, sizeof distance);
    assert_int_equal(code_calls_find(code, 1000, 0, 0x10000000, found, 4, &effort), 1);
    assert_int_equal(found[0], 500);
    assert_int_equal(effort, 9);
    free(code);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_rdtsc_and_rdtscp),
        cmocka_unit_test(ignores_the_bytes_inside_other_instructions),
        cmocka_unit_test(is_not_fooled_by_a_run_of_wrmsr),
        cmocka_unit_test(finds_and_replaces_every_encoding),
        cmocka_unit_test(gives_up_on_too_many_candidates),
        cmocka_unit_test(gives_up_on_what_looks_like_calls),
        cmocka_unit_test(finds_sites_of_an_elf_file),
        cmocka_unit_test(survives_damaged_files),
        cmocka_unit_test(finds_the_sites_of_a_real_kernel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
