#include "vmm/points/entry_count.h"

#include <assert.h>
#include <string.h>

#include "mmu/insn.h"
#include "mmu/walk.h"
#include "vmm/points/fingerprint.h"

/* The JNZ and the HLT of what counts. */
#define STEPS_TO_HLT 2

/* ---- the word ---- */

uint64_t *entry_count_word(struct vcpu *vcpu, const struct entry_count *count, uint64_t *gpa)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    uint8_t expected[ENTRY_COUNT_BYTES], here[ENTRY_COUNT_BYTES];
    struct kvm_sregs sregs;
    struct translation gdt;

    if (!count->gs_offset)
        return NULL;
    entry_sites_code(count->gs_offset, expected);
    vcpu_get_sregs(vcpu, &sregs);
    if (walk_read(m, sregs.cr3, count->start, here, sizeof here) != sizeof here ||
        memcmp(here, expected, sizeof here) != 0 || !walk(m, sregs.cr3, sregs.gdt.base, &gdt) ||
        gdt.gpa % PAGE_BYTES != 0 || sregs.gdt.limit >= PAGE_BYTES - 8)
        return NULL;
    if (gpa)
        *gpa = gdt.gpa + PAGE_BYTES - 8;
    uint64_t *word = guest_memory_at(m, gdt.gpa + PAGE_BYTES - 8, sizeof(uint64_t));
    return word && *word ? word : NULL;
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
    return l->entry == ENTRY_UNKNOWN || !l->entries || m->readable
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

int entry_alarm_reach(const struct entry_alarm *alarm, struct vcpu *vcpu, entry_step *step,
                      void *of, struct vcpu_exit *exit, struct err *e)
{
    unsigned steps = 0;

    while (steps < STEPS_TO_HLT && (exit->kind == EXIT_KICK || exit->kind == EXIT_STEP) &&
           entry_alarm_goes_off(alarm, vcpu)) {
        if (step(of, exit, e) < 0)
            return -1;
        steps += exit->kind != EXIT_KICK; /* that came before the instruction */
    }
    if (exit->kind == EXIT_STEP)
        exit->kind = EXIT_KICK;
    return 0;
}

void entry_alarm_clear(struct entry_alarm *alarm)
{
    *alarm->word = alarm->before - (alarm->entries - *alarm->word);
}
