#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "boot/diskimage/diskimage_loader.h"
#include "boot/diskimage/diskimage_unified.h"
#include "tests/unit/random.h"

#define HEADER_AT   0x80u
#define OPTIONAL    240u
#define SECTIONS_AT (HEADER_AT + 24 + OPTIONAL)

struct section {
    const char *name, *content;
    uint32_t len; /* as the table has it; the file has `content` and a zero */
};

static struct disk_boot boot;

/* A program for UEFI that has these sections, in b. */
static void make(struct bytes *b, const struct section *sections, unsigned count)
{
    const size_t data_at = SECTIONS_AT + 40 * count;
    size_t at = data_at;

    bytes_put(b, "MZ", 2);
    while (b->len < 0x3c)
        bytes_put_u8(b, 0);
    bytes_put_u32(b, HEADER_AT);
    while (b->len < HEADER_AT)
        bytes_put_u8(b, 0);
    bytes_put(b, "PE\0\0\x64\x86", 6);
    bytes_put_u16(b, (uint16_t)count);
    bytes_put_u32(b, 0);
    bytes_put_u64(b, 0);
    bytes_put_u16(b, OPTIONAL);
    while (b->len < SECTIONS_AT)
        bytes_put_u8(b, 0);
    for (unsigned i = 0; i < count; i++) {
        char name[8] = {0};

        memcpy(name, sections[i].name, strnlen(sections[i].name, sizeof name));
        bytes_put(b, name, sizeof name);
        bytes_put_u32(b, sections[i].len);
        bytes_put_u32(b, 0x1000);
        bytes_put_u32(b, (uint32_t)strlen(sections[i].content) + 1);
        bytes_put_u32(b, (uint32_t)at);
        bytes_put_u64(b, 0);
        bytes_put_u64(b, 0);
        at += strlen(sections[i].content) + 1;
    }
    for (unsigned i = 0; i < count; i++)
        bytes_put(b, sections[i].content, strlen(sections[i].content) + 1);
}

static bool parse(const struct section *sections, unsigned count)
{
    struct bytes b = {0};

    disk_boot_free(&boot);
    make(&b, sections, count);
    const bool good = unified_parse(b.data, b.len, &boot);
    bytes_free(&b);
    return good;
}

static void kernel_initrd_and_command_line(void **state)
{
    static const struct section sections[] = {
        {".osrel", "ID=debian\n", 10}, {".cmdline", "root=/dev/vda2\tro\n \n", 20},
        {".linux", "the kernel", 10},  {".initrd", "the initrd", 999}, /* as in memory */
        {".profile", "", 0},           {".dtb", "x", 1}};

    (void)state;
    assert_true(parse(sections, 6));
    assert_int_equal(boot.kernel_len, 10);
    assert_memory_equal(boot.kernel, "the kernel", 10);
    assert_int_equal(boot.initrd_len, 11);
    assert_memory_equal(boot.initrd, "the initrd", 11);
    assert_string_equal(boot.command_line, "root=/dev/vda2 ro");
    assert_true(parse(sections + 2, 1));
    assert_null(boot.initrd);
    assert_string_equal(boot.command_line, "");
    disk_boot_free(&boot);
}

static void what_is_none(void **state)
{
    static const struct section other[] = {{".text", "code", 4}, {".linux", "", 0}};
    static const struct section profile[] = {{".profile", "x", 1}, {".linux", "kernel", 6}};
    char line[sizeof(boot.command_line) + 1];
    const struct section long_line[] = {{".cmdline", line, sizeof line - 1},
                                        {".linux", "kernel", 6}};

    (void)state;
    assert_false(parse(other, 0));
    assert_false(parse(other, 1));
    assert_false(parse(other, 2));
    assert_false(parse(profile, 2));
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = 0;
    assert_false(parse(long_line, 2));
    line[sizeof line - 2] = 0;
    assert_true(parse(long_line, 2));
    assert_int_equal(strlen(boot.command_line), sizeof line - 2);
    disk_boot_free(&boot);
    assert_false(unified_parse((const uint8_t *)"MZ", 2, &boot));
}

static void survives_damage(void **state)
{
    static const struct section sections[] = {
        {".cmdline", "a b c", 5}, {".linux", "the kernel", 10}, {".initrd", "the initrd", 10}};
    struct bytes good = {0};

    (void)state;
    make(&good, sections, 3);
    srand(1);
    for (unsigned i = 0; i < rounds(20000); i++) {
        /* Exactly as long as it is, so that the sanitizer sees a step beyond. */
        const size_t len = i % 2 ? good.len : (size_t)rand() % good.len + 1;
        uint8_t *exact = malloc(len);

        assert_non_null(exact);
        memcpy(exact, good.data, len);
        for (unsigned k = 0; k < 3; k++) {
            /* Headers, and the table. */
            const size_t at = rand() % 2 ? SECTIONS_AT + (size_t)rand() % 120
                                         : 0x3c + (size_t)rand() % (HEADER_AT + 24 - 0x3c);
            if (at < len)
                exact[at] = (uint8_t)rand();
        }
        if (unified_parse(exact, len, &boot))
            assert_in_range(boot.kernel_len, 1, len);
        disk_boot_free(&boot);
        free(exact);
    }
    bytes_free(&good);
}

static void default_of_loader_conf(void **state)
{
    static const char conf[] =
        "# default no\ntimeout 3\r\ndefault  debian-6.1*\r\nconsole-mode x\n";
    char pattern[LOADER_PATH_MAX];

    (void)state;
    assert_true(loader_conf_default(conf, strlen(conf), pattern));
    assert_string_equal(pattern, "debian-6.1*");
    assert_false(loader_conf_default("default @saved\n", 15, pattern));
    assert_string_equal(pattern, "");
    assert_false(loader_conf_default("timeout 1", 9, pattern));
    assert_false(loader_conf_default("default", 7, pattern));
}

static void patterns(void **state)
{
    char stars[200], name[200];

    (void)state;
    assert_true(loader_matches("*", "x.conf"));
    assert_true(loader_matches("*", ""));
    assert_true(loader_matches("Debian-?.1*.conf", "debian-6.1.0.CONF"));
    assert_true(loader_matches("*6*b", "a6.6cb"));
    assert_false(loader_matches("debian", "debian-6"));
    assert_false(loader_matches("*.conf", "debian.efi"));
    assert_false(loader_matches("?", ""));
    /* One that would take an age to try in each way. */
    for (size_t i = 0; i < 198; i += 2)
        memcpy(stars + i, "*a", 2);
    strcpy(stars + 198, "b");
    memset(name, 'a', 199);
    name[199] = 0;
    assert_false(loader_matches(stars, name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernel_initrd_and_command_line),
        cmocka_unit_test(what_is_none),
        cmocka_unit_test(survives_damage),
        cmocka_unit_test(default_of_loader_conf),
        cmocka_unit_test(patterns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
