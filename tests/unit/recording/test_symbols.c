/* The kernel's symbols in a recording (recording/symbol.h, recording/symbol_list.h), and the ELF
 * file that is made of them (cli/symbol_file.h). */
#include <elf.h>

#include "tests/unit/recording/recording_content.h"

#include "cli/symbol_file.h"
#include "recording/streams.h"
#include "recording/symbol_list.h"

#define TEXT 0xffffffff81000000ull
#define DATA 0xffffffff82000000ull
#define INIT 0xffffffff83000000ull

static const struct symbol kernel[] = {
    {0x0, 'A', "fixed_percpu_data"},
    {0x1fb80, 'A', "current_task"},
    {TEXT, 'T', "_text"},
    {TEXT, 'T', "startup_64"},
    {TEXT + 0x100, 't', "do_it"},
    {TEXT + 0x180, 'W', "arch_do_it"},
    {DATA, 'D', "jiffies"},
    {DATA, 'D', "jiffies_64"},
    {DATA + 0x40, 'd', "once.12"},
    {DATA + 0x80, 'V', "weak_table"},
    {INIT, 'D', "end_of_data"}, /* a mark, where code begins */
    {INIT, 't', "setup"},
    {INIT + 0x1000, 'B', "_end"},
};
#define COUNT (sizeof kernel / sizeof *kernel)

static const char *path_of_recording(const void *symbols, size_t len)
{
    static char name[64];
    struct err e;

    snprintf(name, sizeof name, "%s/symbols.ditto", dir);
    struct recording_writer *w = writer_create(name, true, &e);
    assert_non_null(w);
    assert_int_equal(writer_meta(w, META, sizeof META - 1, &e), 0);
    assert_int_equal(writer_put(w, STREAM_SYNCS, "x", 1), 0);
    if (len)
        assert_int_equal(writer_put(w, STREAM_SYMBOLS, symbols, len), 0);
    assert_int_equal(writer_epoch(w, &e), 0);
    assert_int_equal(writer_finish(w, 0, "test", &e), 0);
    return name;
}

static struct recording *recording_of(const void *symbols, size_t len)
{
    struct err e;
    struct recording *r = recording_open(path_of_recording(symbols, len), &e);

    assert_non_null(r);
    return r;
}

static struct bytes encoded(void)
{
    struct bytes out = {0};
    uint64_t last = 0;

    for (size_t i = 0; i < COUNT; i++)
        symbol_encode(&out, &last, kernel[i].address, kernel[i].type, kernel[i].name);
    return out;
}

static void test_stream(void **state)
{
    (void)state;
    struct bytes stream = encoded();
    struct recording *r = recording_of(stream.data, stream.len);
    struct symbol_list list;
    struct err e;
    char text[160];

    assert_int_equal(symbol_list_load(&list, r, &e), 0);
    assert_int_equal(list.count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(list.at[i].address, kernel[i].address);
        assert_int_equal(list.at[i].type, kernel[i].type);
        assert_string_equal(list.names.data + list.at[i].name, kernel[i].name);
    }
    symbol_list_free(&list);
    symbolize(r, TEXT + 0x17f, text, sizeof text);
    assert_string_equal(text, "do_it+0x7f");
    symbolize(r, TEXT + 0x180, text, sizeof text);
    assert_string_equal(text, "arch_do_it+0");
    symbolize(r, INIT + 8, text, sizeof text);
    assert_string_equal(text, "setup+0x8");
    symbolize(r, DATA + 4, text, sizeof text); /* data is no place in a report */
    assert_string_equal(text, "");
    symbolize(r, 0x1fb80, text, sizeof text);
    assert_string_equal(text, "");
    recording_close(r);
    bytes_free(&stream);
}

static void test_no_symbols(void **state)
{
    (void)state;
    struct recording *r = recording_of(NULL, 0);
    struct symbol_list list;
    struct err e;
    char text[32] = "x";

    assert_int_equal(symbol_list_load(&list, r, &e), 0);
    assert_int_equal(list.count, 0);
    symbolize(r, TEXT, text, sizeof text);
    assert_string_equal(text, "");
    symbol_list_free(&list);
    recording_close(r);
}

/* What a reader would refuse is not written. */
static void test_strange_symbols(void **state)
{
    (void)state;
    struct bytes out = {0};
    uint64_t last = 0;
    char name[SYMBOL_NAME_MAX + 2];

    memset(name, 'n', sizeof name);
    name[SYMBOL_NAME_MAX + 1] = 0;
    symbol_encode(&out, &last, TEXT, 'T', name);
    symbol_encode(&out, &last, TEXT, 'T', "");
    symbol_encode(&out, &last, TEXT, 'T', "a b");
    symbol_encode(&out, &last, TEXT, 'T', "\033[2J");
    symbol_encode(&out, &last, TEXT, '\0', "a");
    assert_int_equal(out.len, 0);
    name[SYMBOL_NAME_MAX] = 0;
    symbol_encode(&out, &last, TEXT, 'T', name);
    symbol_encode(&out, &last, TEXT - 1, 'T', "back");
    assert_int_equal(last, TEXT);

    struct recording *r = recording_of(out.data, out.len);
    struct symbol_list list;
    struct err e;
    assert_int_equal(symbol_list_load(&list, r, &e), 0);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.names.data + 1, name);
    symbol_list_free(&list);
    recording_close(r);
    bytes_free(&out);
}

/* Whatever the stream holds: an error or symbols that can be written. */
static void test_damaged_stream(void **state)
{
    (void)state;
    struct bytes stream = encoded();
    unsigned refused = 0;

    srand(1);
    for (unsigned round = 0; round < 200; round++) {
        struct bytes copy = {0}, file = {0};
        struct symbol_list list;
        struct err e = {0};

        bytes_put(&copy, stream.data, round < 100 ? stream.len : (size_t)rand() % stream.len + 1);
        if (round < 100)
            copy.data[(size_t)rand() % copy.len] = (uint8_t)rand();
        struct recording *r = recording_of(copy.data, copy.len);
        if (symbol_list_load(&list, r, &e) < 0) {
            refused++;
            assert_int_equal(e.status, STATUS_BAD_RECORDING);
            assert_non_null(strstr(e.text, "damaged"));
        } else {
            symbol_file_write(&file, &list);
        }
        symbol_list_free(&list);
        recording_close(r);
        bytes_free(&copy);
        bytes_free(&file);
    }
    assert_in_range(refused, 50, 199);
    bytes_free(&stream);
}

/* ---- the ELF file ---- */

static struct bytes file_of(const struct symbol *symbols, size_t count)
{
    struct symbol_list list = {0};
    struct bytes file = {0};

    for (size_t i = 0; i < count; i++)
        assert_int_equal(symbol_list_add(&list, &symbols[i]), 0);
    symbol_file_write(&file, &list);
    symbol_list_free(&list);
    return file;
}

static const Elf64_Shdr *section(const struct bytes *file, unsigned i)
{
    const Elf64_Ehdr *h = (const void *)file->data;

    assert_true(i < h->e_shnum && h->e_shoff + (i + 1) * sizeof(Elf64_Shdr) <= file->len);
    return (const Elf64_Shdr *)(file->data + h->e_shoff) + i;
}

static const char *section_name(const struct bytes *file, unsigned i)
{
    const Elf64_Ehdr *h = (const void *)file->data;

    return (const char *)file->data + section(file, h->e_shstrndx)->sh_offset +
           section(file, i)->sh_name;
}

/* The symbol of this name, and whether it is one of the local ones. */
static const Elf64_Sym *find(const struct bytes *file, const char *name, bool *local)
{
    const Elf64_Ehdr *h = (const void *)file->data;
    const unsigned table = h->e_shnum - 3u;
    const Elf64_Shdr *symtab = section(file, table), *strtab = section(file, table + 1);
    const Elf64_Sym *symbols = (const void *)(file->data + symtab->sh_offset);

    assert_string_equal(section_name(file, table), ".symtab");
    assert_string_equal(section_name(file, table + 1), ".strtab");
    assert_int_equal(symtab->sh_link, table + 1);
    for (size_t i = 1; i < symtab->sh_size / sizeof *symbols; i++) {
        assert_true(symbols[i].st_name < strtab->sh_size);
        if (strcmp((char *)file->data + strtab->sh_offset + symbols[i].st_name, name))
            continue;
        *local = i < symtab->sh_info;
        return &symbols[i];
    }
    fail_msg("no symbol %s", name);
    return NULL;
}

static void check_symbol(const struct bytes *file, const char *name, unsigned info, unsigned index,
                         uint64_t value, uint64_t size)
{
    bool local;
    const Elf64_Sym *s = find(file, name, &local);

    assert_int_equal(s->st_info, info);
    assert_int_equal(local, ELF64_ST_BIND(info) == STB_LOCAL);
    assert_int_equal(s->st_shndx, index);
    assert_int_equal(s->st_value, value);
    assert_int_equal(s->st_size, size);
}

static void check_section(const struct bytes *file, unsigned i, const char *name, uint64_t start,
                          uint64_t size, uint64_t flags)
{
    assert_string_equal(section_name(file, i), name);
    assert_int_equal(section(file, i)->sh_type, SHT_NOBITS);
    assert_int_equal(section(file, i)->sh_addr, start);
    assert_int_equal(section(file, i)->sh_size, size);
    assert_int_equal(section(file, i)->sh_flags, flags);
}

static void test_file(void **state)
{
    (void)state;
    enum {
        CODE = SHF_ALLOC | SHF_EXECINSTR,
        VARIABLES = SHF_ALLOC | SHF_WRITE,
        GLOBAL_FUNCTION = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
        LOCAL_FUNCTION = ELF64_ST_INFO(STB_LOCAL, STT_FUNC),
        WEAK_FUNCTION = ELF64_ST_INFO(STB_WEAK, STT_FUNC),
        GLOBAL_OBJECT = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
        LOCAL_OBJECT = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT),
        WEAK_OBJECT = ELF64_ST_INFO(STB_WEAK, STT_OBJECT),
    };
    struct bytes file = file_of(kernel, COUNT);
    const Elf64_Ehdr *h = (const void *)file.data;

    assert_memory_equal(h->e_ident, ELFMAG, SELFMAG);
    assert_int_equal(h->e_machine, EM_X86_64);
    assert_int_equal(h->e_type, ET_EXEC);
    assert_int_equal(h->e_shnum, 8);
    assert_int_equal(section(&file, 0)->sh_type, SHT_NULL);
    check_section(&file, 1, ".text", TEXT, DATA - TEXT, CODE);
    check_section(&file, 2, ".data", DATA, INIT - DATA, VARIABLES);
    check_section(&file, 3, ".text.2", INIT, 0x1000, CODE);
    check_section(&file, 4, ".data.2", INIT + 0x1000, 1, VARIABLES);
    check_symbol(&file, "_text", GLOBAL_FUNCTION, 1, TEXT, 0x100);
    check_symbol(&file, "startup_64", GLOBAL_FUNCTION, 1, TEXT, 0x100);
    check_symbol(&file, "do_it", LOCAL_FUNCTION, 1, TEXT + 0x100, 0x80);
    check_symbol(&file, "arch_do_it", WEAK_FUNCTION, 1, TEXT + 0x180, DATA - TEXT - 0x180);
    check_symbol(&file, "jiffies_64", GLOBAL_OBJECT, 2, DATA, 0x40);
    check_symbol(&file, "once.12", LOCAL_OBJECT, 2, DATA + 0x40, 0x40);
    check_symbol(&file, "weak_table", WEAK_OBJECT, 2, DATA + 0x80, INIT - DATA - 0x80);
    check_symbol(&file, "end_of_data", GLOBAL_OBJECT, 3, INIT, 0x1000);
    check_symbol(&file, "setup", LOCAL_FUNCTION, 3, INIT, 0x1000);
    check_symbol(&file, "_end", GLOBAL_OBJECT, 4, INIT + 0x1000, 0);
    check_symbol(&file, "fixed_percpu_data", GLOBAL_OBJECT, SHN_ABS, 0, 0x1fb80);
    check_symbol(&file, "current_task", GLOBAL_OBJECT, SHN_ABS, 0x1fb80, 0);
    bytes_free(&file);
}

/* Lists that no kernel has. */
static void test_odd_lists(void **state)
{
    (void)state;
    struct symbol *many = calloc(2000, sizeof *many);
    struct bytes file;

    assert_non_null(many);
    for (unsigned i = 0; i < 2000; i++) {
        many[i] = (struct symbol){.address = TEXT + i, .type = i % 2 ? 'd' : 't'};
        snprintf(many[i].name, sizeof many[i].name, "s%u", i);
    }
    file = file_of(many, 2000);
    assert_in_range(((const Elf64_Ehdr *)file.data)->e_shnum, 100, 1000);
    check_symbol(&file, "s1999", ELF64_ST_INFO(STB_LOCAL, STT_OBJECT),
                 ((const Elf64_Ehdr *)file.data)->e_shnum - 4u, TEXT + 1999, 0);
    bytes_free(&file);
    free(many);

    const struct symbol absolute = {1, 'A', "one"}, last = {UINT64_MAX, 'D', "last"};
    file = file_of(&absolute, 1);
    assert_int_equal(((const Elf64_Ehdr *)file.data)->e_shnum, 4);
    check_symbol(&file, "one", ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), SHN_ABS, 1, 0);
    bytes_free(&file);
    file = file_of(&last, 1);
    check_symbol(&file, "last", ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), 1, UINT64_MAX, 0);
    bytes_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_no_symbols),
        cmocka_unit_test(test_strange_symbols),
        cmocka_unit_test(test_damaged_stream),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_odd_lists),
    };

    if (!mkdtemp(dir))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char file[96];
    snprintf(file, sizeof file, "%s/symbols.ditto", dir);
    unlink(file);
    rmdir(dir);
    return failed;
}
