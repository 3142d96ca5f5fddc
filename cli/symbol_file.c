#include "cli/symbol_file.h"

#include <assert.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Addresses below are no addresses: per-CPU offsets and other constants. */
#define KERNEL_HALF 0xffff800000000000ull

/* A kernel has some ten; what a damaged list asks for beyond goes to the last one. */
#define RUNS_MAX 256u

#define NAME_LEN_MAX 16u

/* A run of addresses with one kind of content: a section. */
struct run {
    uint64_t start, end;
    bool code;
    char name[NAME_LEN_MAX];
};

struct writer {
    struct bytes *out;
    size_t start; /* of the file, in out */
    const struct symbol_list *list;
    size_t first; /* the first symbol that has an address */
    struct run runs[RUNS_MAX];
    unsigned run_count;
    Elf64_Shdr sections[1 + RUNS_MAX + 3];
    unsigned section_count;
    struct bytes section_names;
};

/* ---- runs ---- */

/* The first symbol behind symbol i with another address; the list's count when there is none. */
static size_t next_address(const struct symbol_list *list, size_t i)
{
    size_t next = i + 1;

    while (next < list->count && list->at[next].address == list->at[i].address)
        next++;
    return next;
}

enum content { CONTENT_CODE, CONTENT_DATA, CONTENT_EITHER };

/*
 * What begins at the address of symbols from to to - 1. Where code begins, a mark may say that data
 * ended; so one function is enough.
 */
static enum content content_of(const struct symbol_list *list, size_t from, size_t to)
{
    enum content content = CONTENT_EITHER;

    for (size_t i = from; i < to; i++) {
        if (symbol_is_function(list->at[i].type))
            return CONTENT_CODE;
        if (strchr("dDbBrRgGsSvV", list->at[i].type))
            content = CONTENT_DATA;
    }
    return content;
}

static void begin_run(struct writer *w, uint64_t start, bool code)
{
    unsigned number = 1;

    assert(w->run_count < RUNS_MAX);
    for (unsigned i = 0; i < w->run_count; i++)
        number += w->runs[i].code == code;

    struct run *run = &w->runs[w->run_count++];
    *run = (struct run){.start = start, .code = code};
    snprintf(run->name, sizeof run->name, number > 1 ? "%s.%u" : "%s", code ? ".text" : ".data",
             number);
}

static void find_runs(struct writer *w)
{
    const struct symbol_list *list = w->list;
    size_t next;

    while (w->first < list->count && list->at[w->first].address < KERNEL_HALF)
        w->first++;
    for (size_t i = w->first; i < list->count; i = next) {
        next = next_address(list, i);

        const enum content content = content_of(list, i, next);
        const uint64_t address = list->at[i].address;
        struct run *last = w->run_count ? &w->runs[w->run_count - 1] : NULL;

        if (!last || (content != CONTENT_EITHER && (content == CONTENT_CODE) != last->code &&
                      w->run_count < RUNS_MAX)) {
            if (last)
                last->end = address;
            begin_run(w, address, content == CONTENT_CODE);
        }
        /* The end of the kernel is a symbol too; it belongs to its last section. */
        w->runs[w->run_count - 1].end = address == UINT64_MAX ? address : address + 1;
    }
}

/* ---- sections ---- */

static unsigned add_section(struct writer *w, const char *name, Elf64_Shdr section)
{
    assert(w->section_count < sizeof w->sections / sizeof *w->sections);
    section.sh_name = (Elf64_Word)w->section_names.len;
    bytes_put(&w->section_names, name, strlen(name) + 1);
    w->sections[w->section_count] = section;
    return w->section_count++;
}

static void add_runs(struct writer *w)
{
    for (unsigned i = 0; i < w->run_count; i++) {
        const struct run *run = &w->runs[i];
        add_section(w, run->name,
                    (Elf64_Shdr){.sh_type = SHT_NOBITS,
                                 .sh_flags = SHF_ALLOC | (run->code ? SHF_EXECINSTR : SHF_WRITE),
                                 .sh_addr = run->start,
                                 .sh_offset = sizeof(Elf64_Ehdr),
                                 .sh_size = run->end - run->start,
                                 .sh_addralign = 1});
    }
}

/* ---- symbols ---- */

static unsigned char binding(char type)
{
    if (strchr("wWvV", type))
        return STB_WEAK;
    return type >= 'A' && type <= 'Z' ? STB_GLOBAL : STB_LOCAL;
}

static void put_symbol(struct writer *w, const struct symbol_entry *s, unsigned run, uint64_t end)
{
    const bool absolute = s->address < KERNEL_HALF;
    const bool code = !absolute && symbol_is_function(s->type);
    const Elf64_Sym sym = {
        .st_name = s->name,
        .st_info = ELF64_ST_INFO(binding(s->type), code ? STT_FUNC : STT_OBJECT),
        .st_shndx = absolute ? SHN_ABS : (Elf64_Section)(1 + run), /* section 0 is none */
        .st_value = s->address,
        .st_size = end - s->address,
    };

    bytes_put(w->out, &sym, sizeof sym);
}

/* The local ones or the others; a symbol ends where the next one begins, or its section does. */
static void put_symbols(struct writer *w, bool local)
{
    const struct symbol_list *list = w->list;
    unsigned run = 0;
    size_t next;

    for (size_t i = 0; i < list->count; i = next) {
        const uint64_t address = list->at[i].address;
        uint64_t end;

        next = next_address(list, i);
        while (i >= w->first && run + 1 < w->run_count && w->runs[run + 1].start <= address)
            run++;
        end = next < list->count ? list->at[next].address : address;
        if (i < w->first && next == w->first)
            end = address; /* the last absolute one */
        for (size_t j = i; j < next; j++)
            if ((binding(list->at[j].type) == STB_LOCAL) == local)
                put_symbol(w, &list->at[j], run, end);
    }
}

static uint64_t offset_here(const struct writer *w)
{
    return w->out->len - w->start;
}

static void put_tables(struct writer *w)
{
    static const Elf64_Sym none;
    Elf64_Shdr symtab = {.sh_type = SHT_SYMTAB,
                         .sh_offset = offset_here(w),
                         .sh_link = w->section_count + 1,
                         .sh_addralign = 8,
                         .sh_entsize = sizeof(Elf64_Sym)};

    bytes_put(w->out, &none, sizeof none);
    put_symbols(w, true);
    symtab.sh_info = (Elf64_Word)((offset_here(w) - symtab.sh_offset) / sizeof(Elf64_Sym));
    put_symbols(w, false);
    symtab.sh_size = offset_here(w) - symtab.sh_offset;
    add_section(w, ".symtab", symtab);

    const struct bytes *names = &w->list->names;
    Elf64_Shdr strings = {.sh_type = SHT_STRTAB, .sh_addralign = 1};

    strings.sh_offset = offset_here(w);
    strings.sh_size = names->len;
    bytes_put(w->out, names->data, names->len);
    add_section(w, ".strtab", strings);

    unsigned last = add_section(w, ".shstrtab", strings);
    w->sections[last].sh_offset = offset_here(w);
    w->sections[last].sh_size = w->section_names.len;
    bytes_put(w->out, w->section_names.data, w->section_names.len);
    while (offset_here(w) % 8)
        bytes_put_u8(w->out, 0);
}

void symbol_file_write(struct bytes *out, const struct symbol_list *list)
{
    struct writer *w = calloc(1, sizeof *w);
    Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_EXEC,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_ehsize = sizeof(Elf64_Ehdr),
        .e_shentsize = sizeof(Elf64_Shdr),
    };

    assert(w && list->count);
    w->out = out;
    w->start = out->len;
    w->list = list;
    find_runs(w);
    bytes_put(out, &header, sizeof header);
    add_section(w, "", (Elf64_Shdr){0});
    add_runs(w);
    put_tables(w);
    header.e_shoff = offset_here(w);
    header.e_shnum = (Elf64_Half)w->section_count;
    header.e_shstrndx = (Elf64_Half)(w->section_count - 1);
    bytes_put(out, w->sections, w->section_count * sizeof *w->sections);
    memcpy(out->data + w->start, &header, sizeof header);
    bytes_free(&w->section_names);
    free(w);
}
