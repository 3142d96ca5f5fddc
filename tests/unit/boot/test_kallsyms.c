#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "boot/boot.h"
#include "boot/kallsyms.h"

#define BASE  0xffffffff81000000ull
#define COUNT 600u
#define LONG  599u /* a symbol whose name takes a two-byte length */

enum layout { OFFSETS_FIRST, OFFSETS_LAST, ABSOLUTE, WITH_SEQUENCE, PLACE_RELATIVE };
#define LAYOUTS (PLACE_RELATIVE + 1)
#define IMAGE   (BASE + 0x1000000) /* where a file with offsets of that kind is loaded */

static size_t alignment = 8;

static void align(struct bytes *b)
{
    while (b->len % alignment)
        bytes_put_u8(b, 0);
}

/* Token 1 stands for "Tsys_"; characters stand for themselves; the rest are never used. */
static void put_tokens(struct bytes *b)
{
    uint16_t at[256];
    size_t start = b->len;

    for (unsigned i = 0; i < 256; i++) {
        char text[8];
        int n = i == 1                ? snprintf(text, sizeof(text), "Tsys_")
                : i > ' ' && i < 0x7f ? snprintf(text, sizeof(text), "%c", (char)i)
                                      : snprintf(text, sizeof(text), "t%x", i);

        at[i] = (uint16_t)(b->len - start);
        bytes_put(b, text, (size_t)n + 1);
    }
    align(b);
    for (unsigned i = 0; i < 256; i++)
        bytes_put_u16(b, at[i]);
}

static uint64_t address_of(unsigned i)
{
    /* symbol 0 is per-CPU, for which 7.x has no addresses of its own */
    return i == 0 ? (alignment == 4 ? BASE : 0x1000) : BASE + (uint64_t)(i - 1) * 16;
}

static void put_addresses(struct bytes *b, enum layout layout)
{
    for (unsigned i = 0; i < COUNT; i++) {
        if (layout == ABSOLUTE)
            bytes_put_u64(b, address_of(i));
        else if (layout == PLACE_RELATIVE)
            bytes_put_u32(b, (uint32_t)(address_of(i) - (IMAGE + b->len)));
        else
            bytes_put_u32(b, i == 0 ? 0x1000 : (uint32_t)(BASE - 1 - address_of(i)));
    }
    align(b);
    if (layout != ABSOLUTE && layout != PLACE_RELATIVE)
        bytes_put_u64(b, BASE);
}

static void put_names(struct bytes *b)
{
    uint32_t markers[COUNT / 256 + 1];
    size_t start = b->len;

    for (unsigned i = 0; i < COUNT; i++) {
        char name[16];
        int n = snprintf(name, sizeof(name), "\001call%u", i);

        if (i % 256 == 0)
            markers[i / 256] = (uint32_t)(b->len - start);
        if (i == LONG) {
            bytes_put_u8(b, 0x80 | (200 & 0x7f));
            bytes_put_u8(b, 200 >> 7);
            bytes_put_u8(b, 'b');
            for (unsigned k = 1; k < 200; k++)
                bytes_put_u8(b, 'z');
        } else if (i == 2) {
            bytes_put(b, "\5Talia", 6);
        } else {
            bytes_put_u8(b, (uint8_t)n);
            bytes_put(b, name, (size_t)n);
        }
    }
    align(b);
    for (unsigned i = 0; i < sizeof(markers) / sizeof(*markers); i++)
        bytes_put_u32(b, markers[i]);
    align(b);
}

static struct bytes make_kernel(enum layout layout)
{
    struct bytes b = {0};
    Elf64_Ehdr h = {.e_type = ET_EXEC, .e_machine = EM_X86_64, .e_phentsize = sizeof(Elf64_Phdr)};

    const Elf64_Phdr p = {
        .p_type = PT_LOAD, .p_vaddr = IMAGE, .p_filesz = 1 << 20, .p_memsz = 1 << 20};

    alignment = layout == PLACE_RELATIVE ? 4 : 8;
    memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64;
    h.e_ident[EI_DATA] = ELFDATA2LSB;
    h.e_phoff = sizeof(h);
    h.e_phnum = 1;
    bytes_put(&b, &h, sizeof(h));
    bytes_put(&b, &p, sizeof(p));
    bytes_put(&b, "0\0001\0002", 6); /* a beginning that leads nowhere */
    align(&b);
    if (layout != OFFSETS_LAST && layout != PLACE_RELATIVE)
        put_addresses(&b, layout);
    bytes_put_u32(&b, COUNT);
    align(&b);
    put_names(&b);
    if (layout == WITH_SEQUENCE) {
        for (unsigned i = 0; i < COUNT * 3; i++)
            bytes_put_u8(&b, (uint8_t)(i * 7));
        align(&b);
    }
    put_tokens(&b);
    if (layout == OFFSETS_LAST || layout == PLACE_RELATIVE)
        put_addresses(&b, layout);
    bytes_put_u64(&b, 0x1234);
    return b;
}

static void reads_every_layout(void **state)
{
    (void)state;
    for (int layout = OFFSETS_FIRST; layout < LAYOUTS; layout++) {
        struct bytes file = make_kernel((enum layout)layout);
        struct err e = {0};
        struct kallsyms *k = kallsyms_from_elf(file.data, file.len, &e);
        uint64_t value;
        char type;

        assert_string_equal(e.text, "");
        assert_non_null(k);
        bytes_free(&file);
        assert_int_equal(kallsyms_count(k), COUNT);
        assert_int_equal(kallsyms_address(k, "sys_call0"), address_of(0));
        assert_int_equal(kallsyms_address(k, "sys_call1"), BASE);
        assert_int_equal(kallsyms_address(k, "sys_call598"), address_of(598));
        assert_int_equal(kallsyms_address(k, "sys_call"), 0);
        assert_int_equal(kallsyms_address(k, "Tsys_call1"), 0);

        const char *name = kallsyms_symbol(k, LONG, &value, &type);

        assert_int_equal(strlen(name), 199);
        assert_int_equal(value, address_of(LONG));
        assert_int_equal(type, 'b');
        assert_string_equal(kallsyms_symbol(k, 2, NULL, &type), "alia");
        assert_int_equal(type, 'T');
        kallsyms_free(k);
    }
}

static void names_the_symbol_that_holds_an_address(void **state)
{
    struct bytes file = make_kernel(OFFSETS_LAST);
    struct err e;
    struct kallsyms *k = kallsyms_from_elf(file.data, file.len, &e);
    uint64_t offset = 99;

    (void)state;
    assert_non_null(k);
    assert_string_equal(kallsyms_name(k, address_of(7), &offset), "sys_call7");
    assert_int_equal(offset, 0);
    assert_string_equal(kallsyms_name(k, address_of(7) + 15, &offset), "sys_call7");
    assert_int_equal(offset, 15);
    assert_string_equal(kallsyms_name(k, address_of(8), NULL), "sys_call8");
    assert_non_null(kallsyms_name(k, address_of(LONG), NULL));
    assert_null(kallsyms_name(k, address_of(LONG) + 1, NULL));
    assert_null(kallsyms_name(k, BASE - 1, NULL));
    assert_null(kallsyms_name(k, 0x1000, NULL));
    assert_null(kallsyms_name(k, 0x401000, NULL));
    kallsyms_free(k);
    bytes_free(&file);
}

static void refuses_files_without_a_table(void **state)
{
    struct bytes file = make_kernel(OFFSETS_LAST);
    struct err e;

    (void)state;
    assert_null(kallsyms_from_elf(file.data, 10, &e));
    assert_non_null(strstr(e.text, "no kernel symbols"));
    assert_null(kallsyms_from_elf(file.data, file.len / 2, &e));
    assert_non_null(strstr(e.text, "kallsyms"));
    /* The offsets are cut off: everything else is found, the addresses are not. */
    assert_null(kallsyms_from_elf(file.data, file.len - 16, &e));
    bytes_free(&file);
}

static void survives_damaged_files(void **state)
{
    (void)state;
    srand(1);
    for (unsigned i = 0; i < 2000; i++) {
        struct bytes file = make_kernel((enum layout)(i % LAYOUTS));
        struct err e;

        for (unsigned k = 0; k < 3; k++)
            file.data[(size_t)rand() % file.len] ^= (uint8_t)(1 << rand() % 8);
        if (i % 5 == 0)
            file.len = (size_t)rand() % file.len;

        struct kallsyms *symbols = kallsyms_from_elf(file.data, file.len, &e);

        if (symbols)
            kallsyms_name(symbols, BASE + (uint64_t)(rand() % 20000), NULL);
        kallsyms_free(symbols);
        bytes_free(&file);
    }
}

/* DITTO_TEST_VMLINUZ: a distribution kernel, as /boot/vmlinuz. */
static void reads_a_real_kernel(void **state)
{
    const char *path = getenv("DITTO_TEST_VMLINUZ");
    static uint8_t kernel[64 << 20];
    struct guest_memory m;
    struct boot_state boot;
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

    struct kallsyms *k = kallsyms_from_elf(boot.vmlinux, boot.vmlinux_len, &e);

    assert_non_null(k);
    print_message("%zu symbols\n", kallsyms_count(k));
    assert_true(kallsyms_count(k) > 30000);
    assert_int_equal(kallsyms_address(k, "_text"), BASE);
    assert_int_equal(kallsyms_address(k, "startup_64") - 0xffffffff80000000ull, boot.rip);

    /* SYSCALL's entry begins with swapgs, perhaps behind endbr64. */
    uint64_t entry = kallsyms_address(k, "entry_SYSCALL_64");
    const uint8_t *code = guest_memory_at(&m, entry - 0xffffffff80000000ull, 8);

    assert_non_null(code);
    if (memcmp(code, "\xf3\x0f\x1e\xfa", 4) == 0)
        code += 4;
    assert_memory_equal(code, "\x0f\x01\xf8", 3);
    assert_string_equal(kallsyms_name(k, entry + 1, NULL), "entry_SYSCALL_64");
    assert_int_not_equal(kallsyms_address(k, "asm_exc_general_protection"), 0);
    assert_int_not_equal(kallsyms_address(k, "do_init_module"), 0);
    kallsyms_free(k);
    free(boot.vmlinux);
    guest_memory_destroy(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_layout),
        cmocka_unit_test(names_the_symbol_that_holds_an_address),
        cmocka_unit_test(refuses_files_without_a_table),
        cmocka_unit_test(survives_damaged_files),
        cmocka_unit_test(reads_a_real_kernel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
