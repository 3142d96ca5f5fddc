#ifndef VMM_POINTS_WRITTEN_H
#define VMM_POINTS_WRITTEN_H

#include "recording/event.h"
#include "vmm/kvm/vm.h"

/*
 * Which pages the guest may have written since its last sync point, while it is recorded. All other
 * memory is, at each instruction since then, as it is now. So where registers and these pages are
 * as they were at a forced point, the whole machine is, and going on from there is going on from
 * the point: a landmark with all of them is exact.
 *
 * KVM logs writes. Its log is read at forced points and begun anew only now and then, because that
 * costs a fault for each page that is written again: so there may be pages among these that were
 * written before the sync point only.
 */
struct written;

/* Follow the guest's writes in a VM from now on; vm->written is that, until vm_destroy(). -1, with
 * the reason: KVM cannot. */
int written_follow(struct vm *vm, struct err *e);

/* Those since the last sync point of the vCPU, which stands, as a landmark with this CR3 has them:
 * good until the next one. False, and none, where there are more than LANDMARK_PAGES, or nobody
 * follows. */
bool written_list(struct vm *vm, struct landmark *l);
/* Room for the page_checks of that landmark, good as long. vm->written is not NULL. */
uint8_t *written_checks(struct vm *vm);

/* We have written to the page where `at`, of vm->memory.host, lies on behalf of an instruction of
 * the guest's, which KVM does not log. Marks it, too. */
void written_also(struct vm *vm, const uint8_t *at);

/* Whether a page of guest memory may have been written since then; true where it is not known. */
bool written_maybe(struct vm *vm, uint64_t gpa);

/* The vCPU stands at the forced point that the landmark describes: what was written before need not
 * be known any more. The same at any other sync point, at the time `now` (the host's). */
void written_forced(struct vm *vm, const struct landmark *l);
void written_forget(struct vm *vm, uint64_t now);

/*
 * Words that change while code at this CPL runs on for a moment: those of the pages as they are
 * now, written_look(), that are others a moment later, written_changed(). At most WRITTEN_CHANGED,
 * first of pages where few have changed: the progress of an outer loop rather than the work of an
 * inner one. Of a page those that look like counts rather than addresses come first. Where the log
 * has just been begun anew, each write costs a fault, and in a moment nothing may change: then
 * those that changed since the choice before this one. written_look_away() begins a choice: none
 * have changed until it is looked. Of too many pages it looks at those that the vCPU's registers
 * and stack point to; it says at how many. written_any_changed(): one of them is another by now.
 * written_is_as_it_was(): all memory is as it was at the look; false where this cannot be said,
 * true where nobody follows.
 */
#define WRITTEN_CHANGED 4u
unsigned written_look(struct vcpu *vcpu);
bool written_any_changed(const struct vm *vm);
bool written_is_as_it_was(struct vm *vm);
void written_look_away(struct vm *vm);
unsigned written_changed(struct vm *vm, uint64_t cr3, unsigned cpl, uint64_t va[WRITTEN_CHANGED]);

#endif
