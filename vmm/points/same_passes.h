#ifndef VMM_POINTS_SAME_PASSES_H
#define VMM_POINTS_SAME_PASSES_H

#include "vmm/points/clock.h"

/*
 * A loop whose progress shows only in memory that its code does not name (of a function that it
 * calls, or behind two pointers) has passes that look all the same, or the same every few passes,
 * and replay would look at all of them from outside the guest; or, where a landmark is not exact,
 * land in the first. So recording looks at one pass of the loop:
 * which words it changes, and which it reads or writes at all.
 *
 * The latter are for loops of which only the first passes change anything, as one that waits for
 * another CPU. Where registers, stack and all words that a pass reads or writes are equal, the pass
 * from there goes the same way and leaves the same behind. If it leaves behind what it found, so do
 * all that follow, in which nothing changes any more: so the first pass in which all of this is
 * equal to the landmark is the landmark's, or one that no word of the machine tells from it.
 */
struct loop_pass {
    /* It was followed, all of its words are known, and it changes nothing: the CPU waits. */
    bool waits;
    unsigned changed, words; /* how many; words 0: too many, or not all of them are known */
    /* Linear addresses of 64-bit words, these in ascending order. */
    uint64_t changed_va[LANDMARK_PROBES];
    uint64_t word[LANDMARK_WORDS];
};

/*
 * c's vCPU stands at the point that l describes. CLOCK_CHOSEN: it stands at a later pass of the
 * same instruction, and *pass is what is known of the one before, as far as it could be followed.
 * CLOCK_LATER: no next pass came soon, and it stands elsewhere. by_steps: without breakpoints, for
 * code that must not meet breakpoints.
 */
enum clock_choice same_passes_look(struct clock *c, const struct clock_host *host,
                                   const struct landmark *l, bool by_steps, struct loop_pass *pass,
                                   struct vcpu_exit *exit, struct err *e);

#endif
