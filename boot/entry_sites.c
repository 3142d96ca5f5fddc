#include "boot/entry_sites.h"

#include <string.h>

#include "base/x86.h"
#include "mmu/insn.h"

/* Where system calls of 64 and of 32 bits go through, and where exceptions do. Each
 * is of use without the others. */
static const char *const entry_functions[] = {
    "do_syscall_64",
    "do_fast_syscall_32",
    "do_int80_syscall_32",
    "sync_regs",
};
_Static_assert(sizeof entry_functions / sizeof entry_functions[0] == ENTRY_SITES, "all of them");

#define ENDBR_BYTES 4u
static const uint8_t endbr64[ENDBR_BYTES] = {0xf3, 0x0f, 0x1e, 0xfa};

#define WORD_AT   5u /* of the 32-bit displacement in the code that counts */
#define MOVED_MAX (CODE_REL_BYTES - 1 + INSN_MAX)

/* Whether Linux patches such an instruction while it runs (static keys, alternatives), or it does
 * not mean the same elsewhere. */
static bool must_stay(const struct insn *insn)
{
    return insn->info.mnemonic == ZYDIS_MNEMONIC_NOP ||
           insn->info.meta.category == ZYDIS_CATEGORY_WIDENOP ||
           insn->info.meta.branch_type != ZYDIS_BRANCH_TYPE_NONE || insn_leaves(insn);
}

/*
 * What a function begins with that stays as it is: ENDBR64, where jumps that the CPU tracks end,
 * and ftrace's five bytes (-mfentry), a CALL or a NOP, which these functions have before Linux 5.8.
 * Another CALL is as good a place to be behind: an entry is counted once it has returned.
 */
static size_t stays_at_start(const uint8_t *code, size_t len)
{
    static const uint8_t nop[CODE_REL_BYTES] = {0x0f, 0x1f, 0x44, 0x00, 0x00};
    size_t at = 0;

    if (len > ENDBR_BYTES && !memcmp(code, endbr64, ENDBR_BYTES))
        at = ENDBR_BYTES;
    if (len - at > CODE_REL_BYTES &&
        (code[at] == CODE_CALL || !memcmp(code + at, nop, CODE_REL_BYTES)))
        at += CODE_REL_BYTES;
    return at;
}

/* Copy the whole instructions at va that a jump there takes the place of, to run at `to`. Returns
 * how many bytes they have, 0: they cannot be moved. */
static size_t move_instructions(const uint8_t *code, size_t len, uint64_t va, uint64_t to,
                                uint8_t out[MOVED_MAX])
{
    size_t done = 0;

    while (done < CODE_REL_BYTES) {
        struct insn insn;
        int32_t distance;
        if (!insn_decode_bytes(va + done, code + done,
                               len - done < INSN_MAX ? len - done : INSN_MAX, &insn) ||
            must_stay(&insn))
            return 0;
        memcpy(out + done, code + done, insn.info.length);
        if (insn.info.attributes & ZYDIS_ATTRIB_IS_RELATIVE) { /* to RIP */
            if (insn.info.raw.disp.size != 32)
                return 0;
            const int64_t moved = (int64_t)insn.info.raw.disp.value + (int64_t)(va - to);
            distance = (int32_t)moved;
            if (distance != moved)
                return 0;
            memcpy(out + done + insn.info.raw.disp.offset, &distance, sizeof distance);
        }
        done += insn.info.length;
    }
    return done;
}

void entry_sites_code(uint64_t gs_offset, uint8_t out[ENTRY_COUNT_BYTES])
{
    static const uint8_t code[ENTRY_COUNT_BYTES] = {0x65, 0x48, 0xff, 0x0c, 0x25, 0,
                                                    0,    0,    0,    0x75, 1,    HLT};
    const uint32_t displacement = (uint32_t)gs_offset;

    memcpy(out, code, ENTRY_COUNT_BYTES);
    memcpy(out + WORD_AT, &displacement, sizeof displacement);
}

bool entry_sites_count_at(const struct elf_extent *code, const uint8_t *text, uint8_t *loaded,
                          size_t at, struct code_gap *gap, struct entry_count *out)
{
    uint8_t detour[ENTRY_COUNT_BYTES + MOVED_MAX + CODE_REL_BYTES];
    const uint64_t detour_va = code->va + gap->next;

    at += stays_at_start(text + at, code->len - at);
    entry_sites_code(out->gs_offset, detour);
    const size_t moved =
        move_instructions(text + at, code->len - at, code->va + at, detour_va + ENTRY_COUNT_BYTES,
                          detour + ENTRY_COUNT_BYTES);
    if (!moved || memcmp(text + at, loaded + at, moved) != 0)
        return false;
    const size_t back = ENTRY_COUNT_BYTES + moved;
    detour[back] = CODE_JMP;
    code_set_target(detour + back, detour_va + back, code->va + at + moved);
    if (!code_gap_put(gap, loaded, detour, back + CODE_REL_BYTES))
        return false;
    loaded[at] = CODE_JMP;
    code_set_target(loaded + at, code->va + at, detour_va);
    if (!out->sites++)
        out->start = detour_va;
    out->end = code->va + gap->next;
    return true;
}

/* The word's place relative to GS; 0 when no page is the GDT's alone. */
static uint64_t find_word(const struct kallsyms *symbols)
{
    const uint64_t page = kallsyms_address(symbols, "gdt_page");
    uint64_t address, next = UINT64_MAX;
    char type;

    for (size_t i = 0; i < kallsyms_count(symbols); i++) {
        kallsyms_symbol(symbols, i, &address, &type);
        if (address > page && address < next)
            next = address;
    }
    return page && page % PAGE_BYTES == 0 && next - page >= PAGE_BYTES ? page + PAGE_BYTES - 8 : 0;
}

void entry_sites_patch(const struct elf_extent *code, const uint8_t *text, uint8_t *loaded,
                       const struct kallsyms *symbols, struct code_gap *gap,
                       struct entry_count *out)
{
    if (out->sites)
        return;
    *out = (struct entry_count){.gs_offset = find_word(symbols)};
    for (unsigned i = 0; i < ENTRY_SITES && out->gs_offset; i++) {
        const uint64_t va = kallsyms_address(symbols, entry_functions[i]);
        if (va - code->va < code->len)
            (void)entry_sites_count_at(code, text, loaded, va - code->va, gap, out);
    }
    if (!out->sites)
        out->gs_offset = 0;
}
