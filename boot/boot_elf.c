#include "boot/boot_elf.h"

#include <assert.h>
#include <string.h>

/* Positions of elf_next_code() from here on walk segments instead of sections. */
#define SEGMENT_POSITIONS 0x10000u

/* Who looks through the code looks through no more than there is of the file. */
static int check_code(const struct elf_view *elf, const char *what, struct err *e)
{
    struct elf_extent code;
    unsigned position = 0;
    size_t total = 0;

    while (elf_next_code(elf, &position, &code)) {
        if (code.len > elf->len - total)
            return err_set(e, STATUS_ERROR, "%s: parts of the ELF file's code overlap", what);
        total += code.len;
    }
    return 0;
}

int elf_open(struct elf_view *elf, const void *bytes, size_t len, const char *what, struct err *e)
{
    memset(elf, 0, sizeof(*elf));
    if (len < sizeof(elf->header) || memcmp(bytes, ELFMAG, SELFMAG) != 0)
        return err_set(e, STATUS_ERROR, "%s: no ELF header", what);
    memcpy(&elf->header, bytes, sizeof(elf->header));

    const Elf64_Ehdr *h = &elf->header;

    if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB ||
        h->e_machine != EM_X86_64)
        return err_set(e, STATUS_ERROR, "%s: the ELF file is not for 64-bit x86", what);
    if (h->e_type != ET_EXEC && h->e_type != ET_DYN)
        return err_set(e, STATUS_ERROR, "%s: the ELF file is not an executable", what);
    if (h->e_phentsize != sizeof(Elf64_Phdr) || h->e_phoff > len ||
        h->e_phnum > (len - h->e_phoff) / sizeof(Elf64_Phdr))
        return err_set(e, STATUS_ERROR, "%s: the ELF program headers lie outside the file", what);
    if (h->e_phnum > ELF_SEGMENTS_MAX)
        return err_set(e, STATUS_ERROR, "%s: the ELF file has %u program headers; %u are possible",
                       what, h->e_phnum, ELF_SEGMENTS_MAX);
    elf->bytes = bytes;
    elf->len = len;
    return check_code(elf, what, e);
}

unsigned elf_segment_count(const struct elf_view *elf)
{
    return elf->header.e_phnum;
}

Elf64_Phdr elf_segment(const struct elf_view *elf, unsigned i)
{
    Elf64_Phdr segment;

    assert(i < elf->header.e_phnum);
    memcpy(&segment, elf->bytes + elf->header.e_phoff + i * sizeof(segment), sizeof(segment));
    return segment;
}

static unsigned section_count(const struct elf_view *elf)
{
    const Elf64_Ehdr *h = &elf->header;

    if (h->e_shoff == 0 || h->e_shoff > elf->len || h->e_shentsize != sizeof(Elf64_Shdr) ||
        h->e_shnum > (elf->len - h->e_shoff) / sizeof(Elf64_Shdr))
        return 0;
    return h->e_shnum;
}

static bool in_file(const struct elf_view *elf, uint64_t offset, uint64_t len)
{
    return len > 0 && offset < elf->len && len <= elf->len - offset;
}

static bool code_section(const struct elf_view *elf, unsigned i, struct elf_extent *out)
{
    Elf64_Shdr s;

    memcpy(&s, elf->bytes + elf->header.e_shoff + i * sizeof(s), sizeof(s));
    /* Of what can be written, too, only little is code (.data of Linux 7.2, for relocate_kernel).
     */
    if (s.sh_type != SHT_PROGBITS || (s.sh_flags & (SHF_EXECINSTR | SHF_WRITE)) != SHF_EXECINSTR ||
        !in_file(elf, s.sh_offset, s.sh_size))
        return false;
    *out = (struct elf_extent){.va = s.sh_addr, .offset = s.sh_offset, .len = s.sh_size};
    for (unsigned k = 0; k < elf->header.e_phnum; k++) {
        Elf64_Phdr p = elf_segment(elf, k);

        if (p.p_type == PT_LOAD && s.sh_offset >= p.p_offset &&
            s.sh_offset - p.p_offset < p.p_filesz) {
            out->pa = p.p_paddr + (s.sh_offset - p.p_offset);
            break;
        }
    }
    return true;
}

static bool code_segment(const struct elf_view *elf, unsigned i, struct elf_extent *out)
{
    Elf64_Phdr p = elf_segment(elf, i);

    if (p.p_type != PT_LOAD || !(p.p_flags & PF_X) || !in_file(elf, p.p_offset, p.p_filesz))
        return false;
    *out = (struct elf_extent){
        .va = p.p_vaddr, .pa = p.p_paddr, .offset = p.p_offset, .len = p.p_filesz};
    return true;
}

bool elf_next_code(const struct elf_view *elf, unsigned *position, struct elf_extent *out)
{
    unsigned sections = section_count(elf);

    if (*position == 0) {
        bool any = false;

        for (unsigned i = 0; i < sections && !any; i++)
            any = code_section(elf, i, out);
        if (!any)
            *position = SEGMENT_POSITIONS;
    }
    while (*position < SEGMENT_POSITIONS) {
        if (*position >= sections)
            return false;
        if (code_section(elf, (*position)++, out))
            return true;
    }
    while (*position - SEGMENT_POSITIONS < elf->header.e_phnum)
        if (code_segment(elf, (*position)++ - SEGMENT_POSITIONS, out))
            return true;
    return false;
}
