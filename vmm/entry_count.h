#ifndef VMM_ENTRY_COUNT_H
#define VMM_ENTRY_COUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/event.h"
#include "vmm/code_gap.h"
#include "vmm/kallsyms.h"
#include "vmm/vcpu.h"

/*
 * The guest counts how often it enters its kernel from user code, so that a place can be said by
 * that count and found again without looking at one pass after another. A jump leads the functions
 * of Linux that each system call or each exception of user code goes through to this, in a gap of
 * the kernel's text:
 *
 *         decq %gs:WORD
 *         jnz  1f
 *         hlt
 *     1:  (the instructions where the jump is now)
 *         jmp  (behind them)
 *
 * The word belongs to the CPU: it is the last one of the page with its GDT, of which Linux uses the
 * first 128 bytes. It is 0 at first and so counts down from 2^64; the HLT is not reached.
 *
 * An alarm: while the vCPU runs, the word holds how many entries are to pass, and the HLT exits
 * behind the last of them. Afterwards the word is what it would be without.
 */
#define ENTRY_SITES 4u

struct entry_count {
    uint64_t gs_offset;  /* of the word; 0: nothing is counted */
    uint64_t start, end; /* where our code is */
    unsigned sites;      /* functions that count */
};

/* Have a Linux kernel that was loaded and has not run count, as far as this piece of its code has
 * the functions: `text` are the bytes in its file, `loaded` those in memory. */
void entry_count_patch(const struct elf_extent *code, const uint8_t *text, uint8_t *loaded,
                       const struct kallsyms *symbols, struct code_gap *gap,
                       struct entry_count *out);

/* Have the function at offset `at` of that code count, in out->gs_offset. False: its first
 * instructions cannot be moved, or the gap is full; then nothing has changed. */
bool entry_count_at(const struct elf_extent *code, const uint8_t *text, uint8_t *loaded, size_t at,
                    struct code_gap *gap, struct entry_count *out);

/* The vCPU's word; NULL when the kernel that runs is not the one that counts, or its page tables do
 * not show it. *gpa, unless NULL: where it is. */
uint64_t *entry_count_word(struct vcpu *vcpu, const struct entry_count *count, uint64_t *gpa);

/* Have a landmark of where the vCPU stands, which is not in our code, hold how often it has entered
 * its kernel, if that is known. */
void entries_note(struct vcpu *vcpu, const struct entry_count *count, struct landmark *l);
/* Describe the point where an alarm went off. False: it cannot be. */
bool entries_describe(struct vcpu *vcpu, const struct entry_count *count, struct landmark *l);

/* Whether the landmark has a count that can be used: not where each vCPU owns its pages. */
bool entries_known(const struct guest_memory *m, const struct landmark *l);
/* How many entries lie between here and the landmark; negative: it is behind. 0 also where that is
 * not known. */
int64_t entries_between(const struct guest_memory *m, const struct landmark *l);

struct entry_alarm {
    uint64_t *word;
    uint64_t before, entries;
};

/* Put it in place, for the next run of the vCPU: behind so many entries, at least 1. */
void entry_alarm_set(struct entry_alarm *alarm, uint64_t *word, uint64_t entries);
/* Take it away. */
void entry_alarm_clear(struct entry_alarm *alarm);
/* Whether the last entry was counted, or the guest has written to the word. */
bool entry_alarm_is_due(const struct entry_alarm *alarm);
/* Whether that is so and the vCPU stands at our HLT. With an EXIT_HLT the alarm has gone off;
 * otherwise the vCPU is to run on, to that exit, before the alarm is taken away. */
bool entry_alarm_goes_off(const struct entry_alarm *alarm, struct vcpu *vcpu);

#endif
