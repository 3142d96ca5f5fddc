#ifndef VMM_SAME_PASSES_H
#define VMM_SAME_PASSES_H

#include "vmm/clock.h"

/*
 * A loop whose progress shows only in memory that a landmark says nothing about (of a function that
 * it calls, or behind two pointers) has passes that look all the same, or the same every few
 * passes, and replay would land in the first of them. So recording looks at what one pass of the
 * loop writes.
 */
#define SAME_PASSES_WORDS LANDMARK_PROBES

/* Linear addresses of 64-bit words that differ from one pass to the next. */
struct changed_words {
    unsigned count;
    uint64_t va[SAME_PASSES_WORDS];
};

/*
 * c's vCPU stands at the point that l describes. CLOCK_CHOSEN: it stands at a later pass of the
 * same instruction, and *words are those that the pass before changed, as far as it could be
 * followed. CLOCK_LATER: no next pass came soon, and it stands elsewhere. quietly: by steps only,
 * for code that must not meet breakpoints.
 */
enum clock_choice same_passes_look(struct clock *c, const struct clock_host *host,
                                   const struct landmark *l, bool quietly,
                                   struct changed_words *words, struct vcpu_exit *exit,
                                   struct err *e);

#endif
