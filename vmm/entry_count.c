#include "vmm/entry_count.h"

#include <assert.h>
#include <string.h>

#include "mmu/walk.h"
#include "vmm/fingerprint.h"
#include "vmm/insn.h"

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

/* decq %gs:WORD; jnz over the hlt; hlt */
#define COUNT_BYTES 12u
#define WORD_AT     5u /* of the 32-bit displacement */
#define MOVED_MAX   (CODE_REL_BYTES - 1 + INSN_MAX)

/* ---- the kernel's code ---- */

/* Whether Linux patches such an instruction while it runs (static keys, alternatives), or it does
 * not mean the same elsewhere. */
static bool must_stay(const struct insn *insn)
{
    return insn->info.mnemonic == ZYDIS_MNEMONIC_NOP ||
           insn->info.meta.category == ZYDIS_CATEGORY_WIDENOP ||
           insn->info.meta.branch_type != ZYDIS_BRANCH_TYPE_NONE || insn_leaves(insn);
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

static void count_code(uint64_t gs_offset, uint8_t out[COUNT_BYTES])
{
    static const uint8_t code[COUNT_BYTES] = {0x65, 0x48, 0xff, 0x0c, 0x25, 0,
                                              0,    0,    0,    0x75, 1,    HLT};
    const uint32_t displacement = (uint32_t)gs_offset;

    memcpy(out, code, COUNT_BYTES);
    memcpy(out + WORD_AT, &displacement, sizeof displacement);
}

bool entry_count_at(const struct elf_extent *code, const uint8_t *text, uint8_t *loaded, size_t at,
                    struct code_gap *gap, struct entry_count *out)
{
    uint8_t detour[COUNT_BYTES + MOVED_MAX + CODE_REL_BYTES];
    const uint64_t detour_va = code->va + gap->next;

    if (code->len - at > ENDBR_BYTES && !memcmp(text + at, endbr64, ENDBR_BYTES))
        at += ENDBR_BYTES; /* jumps that the CPU tracks end there */
    count_code(out->gs_offset, detour);
    const size_t moved = move_instructions(text + at, code->len - at, code->va + at,
                                           detour_va + COUNT_BYTES, detour + COUNT_BYTES);
    if (!moved || memcmp(text + at, loaded + at, moved) != 0)
        return false;
    const size_t back = COUNT_BYTES + moved;
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

void entry_count_patch(const struct elf_extent *code, const uint8_t *text, uint8_t *loaded,
                       const struct kallsyms *symbols, struct code_gap *gap,
                       struct entry_count *out)
{
    if (out->sites)
        return;
    *out = (struct entry_count){.gs_offset = find_word(symbols)};
    for (unsigned i = 0; i < ENTRY_SITES && out->gs_offset; i++) {
        const uint64_t va = kallsyms_address(symbols, entry_functions[i]);
        if (va - code->va < code->len)
            (void)entry_count_at(code, text, loaded, va - code->va, gap, out);
    }
    if (!out->sites)
        out->gs_offset = 0;
}

/* ---- the word ---- */

uint64_t *entry_count_word(struct vcpu *vcpu, const struct entry_count *count, uint64_t *gpa)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    uint8_t expected[COUNT_BYTES], here[COUNT_BYTES];
    struct kvm_sregs sregs;
    struct translation gdt;

    if (!count->gs_offset)
        return NULL;
    count_code(count->gs_offset, expected);
    vcpu_get_sregs(vcpu, &sregs);
    if (walk_read(m, sregs.cr3, count->start, here, sizeof here) != sizeof here ||
        memcmp(here, expected, sizeof here) != 0 || !walk(m, sregs.cr3, sregs.gdt.base, &gdt) ||
        gdt.gpa % PAGE_BYTES != 0 || sregs.gdt.limit >= PAGE_BYTES - 8)
        return NULL;
    if (gpa)
        *gpa = gdt.gpa + PAGE_BYTES - 8;
    return guest_memory_at(m, gdt.gpa + PAGE_BYTES - 8, sizeof(uint64_t));
}

void entries_note(struct vcpu *vcpu, const struct entry_count *count, struct landmark *l)
{
    const bool ours = vcpu->regs->rip - count->start < count->end - count->start;
    uint64_t *word = ours ? NULL : entry_count_word(vcpu, count, &l->entries_gpa);

    if (!word)
        return;
    l->entry = ENTRY_NEAR;
    l->entries = -*word;
}

bool entries_describe(struct vcpu *vcpu, const struct entry_count *count, struct landmark *l)
{
    uint64_t gpa, *word = entry_count_word(vcpu, count, &gpa);

    if (!word || !fingerprint_describe(vcpu, l))
        return false;
    l->entry = ENTRY_HERE;
    l->entries = -*word;
    l->entries_gpa = gpa;
    return true;
}

static const uint64_t *word_of(const struct guest_memory *m, const struct landmark *l)
{
    return l->entry == ENTRY_UNKNOWN || m->readable
               ? NULL
               : guest_memory_at(m, l->entries_gpa, sizeof(uint64_t));
}

bool entries_known(const struct guest_memory *m, const struct landmark *l)
{
    return word_of(m, l) != NULL;
}

int64_t entries_between(const struct guest_memory *m, const struct landmark *l)
{
    const uint64_t *word = word_of(m, l);

    return word ? (int64_t)(l->entries + *word) : 0;
}

/* ---- alarms ---- */

void entry_alarm_set(struct entry_alarm *alarm, uint64_t *word, uint64_t entries)
{
    assert(entries);
    *alarm = (struct entry_alarm){word, *word, entries};
    *word = entries;
}

bool entry_alarm_is_due(const struct entry_alarm *alarm)
{
    return *alarm->word == 0;
}

bool entry_alarm_goes_off(const struct entry_alarm *alarm, struct vcpu *vcpu)
{
    static const uint8_t end[] = {0x75, 1, HLT};
    const uint64_t rip = vcpu->regs->rip;
    uint8_t code[2 * sizeof end];
    struct kvm_sregs sregs;

    if (!entry_alarm_is_due(alarm))
        return false;
    vcpu_get_sregs(vcpu, &sregs);
    if (walk_read(&vcpu->vm->memory, sregs.cr3, rip - sizeof end, code, sizeof code) != sizeof code)
        return false;
    /* In front of the JNZ, in front of the HLT, behind it. */
    return !memcmp(code + 3, end, sizeof end) || !memcmp(code + 1, end, sizeof end) ||
           !memcmp(code, end, sizeof end);
}

void entry_alarm_clear(struct entry_alarm *alarm)
{
    *alarm->word = alarm->before - (alarm->entries - *alarm->word);
}
