#include "boot/page_aging.h"

#include <string.h>

#include "boot/code_sites.h"

/* lock btrq $5,(%reg): LOCK, REX.W with or without B, 0F BA, a ModRM of /6 without displacement. */
#define BTR_BYTES    6u
#define ACCESSED_BIT 5
#define NOP          0x90

/* None of them is longer in any kernel. A BTR like it in what lies behind one is flushed for
 * nothing. */
#define FUNCTION_BYTES 160u

static const char *const aging_functions[] = {
    "ptep_test_and_clear_young", "pmdp_test_and_clear_young", "pudp_test_and_clear_young",
    "ptep_clear_flush_young",    "pmdp_clear_flush_young",
};
#define FUNCTIONS (sizeof aging_functions / sizeof aging_functions[0])

static bool clears_accessed(const uint8_t *insn)
{
    const uint8_t base = insn[4] & 7;

    return insn[0] == 0xf0 && (insn[1] & 0xfe) == 0x48 && insn[2] == 0x0f && insn[3] == 0xba &&
           (insn[4] & 0xf8) == 0x30 && base != 4 && base != 5 && insn[5] == ACCESSED_BIT;
}

static bool lead_over_flush(uint64_t va, uint8_t *loaded, size_t at, struct code_gap *gap)
{
    uint8_t *insn = loaded + at;
    uint8_t detour[] = {
        0,    0,    0,    0, 0, 0, /* the BTR */
        0x9c,                      /* pushf */
        0x51,                      /* push %rcx */
        0x0f, 0x20, 0xd9,          /* mov %cr3,%rcx */
        0x0f, 0x22, 0xd9,          /* mov %rcx,%cr3 */
        0x59,                      /* pop %rcx */
        0x9d,                      /* popf */
        0xc3,                      /* ret */
    };

    memcpy(detour, insn, BTR_BYTES);
    const size_t detour_at = code_gap_put(gap, loaded, detour, sizeof detour);
    if (!detour_at)
        return false;
    insn[0] = CODE_CALL;
    code_set_target(insn, va + at, va + detour_at);
    insn[CODE_REL_BYTES] = NOP;
    return true;
}

unsigned page_aging_patch(const struct elf_extent *code, const uint8_t *text, uint8_t *loaded,
                          const struct kallsyms *symbols, struct code_gap *gap)
{
    unsigned patched = 0;

    for (size_t f = 0; f < FUNCTIONS; f++) {
        const uint64_t va = kallsyms_address(symbols, aging_functions[f]);
        if (va < code->va || va - code->va >= code->len)
            continue;
        const size_t start = va - code->va;
        for (size_t i = start; i < start + FUNCTION_BYTES && i + BTR_BYTES <= code->len; i++)
            if (clears_accessed(text + i) && !memcmp(text + i, loaded + i, BTR_BYTES) &&
                code_starts_at(text, code->len, i))
                patched += lead_over_flush(code->va, loaded, i, gap);
    }
    return patched;
}

bool page_aging_is_known(const struct kallsyms *symbols)
{
    return kallsyms_address(symbols, aging_functions[0]) != 0;
}
