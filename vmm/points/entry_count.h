#ifndef VMM_POINTS_ENTRY_COUNT_H
#define VMM_POINTS_ENTRY_COUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "boot/entry_sites.h"
#include "recording/event.h"
#include "vmm/kvm/vcpu.h"

/*
 * How often a vCPU has entered its kernel from user code, as the guest counts it by itself
 * (boot/entry_sites.h).
 *
 * An alarm: while the vCPU runs, the word holds how many entries are to pass, and the HLT exits
 * behind the last of them. Afterwards the word is what it would be without. The guest must not copy
 * it meanwhile, so there is none before the first entry: until then Linux copies the page that the
 * word is in, to where each CPU has its own.
 */

/* The vCPU's word; NULL when the kernel that runs is not the one that counts, or has not counted any
 * yet, or its page tables do not show it. *gpa, unless NULL: where it is. */
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
 * otherwise see entry_alarm_reach(). */
bool entry_alarm_goes_off(const struct entry_alarm *alarm, struct vcpu *vcpu);

/* One instruction, as vcpu_run_step() does it. */
typedef int entry_step(void *of, struct vcpu_exit *exit, struct err *e);

/*
 * The vCPU was kicked. Where the alarm is about to go off, it is to do that before it is taken
 * away: *exit becomes the HLT's, which is two steps ahead at most. *exit stays EXIT_KICK anywhere
 * else, also in code of the guest's that only looks like ours. -1: a step failed.
 */
int entry_alarm_reach(const struct entry_alarm *alarm, struct vcpu *vcpu, entry_step *step,
                      void *of, struct vcpu_exit *exit, struct err *e);

#endif
