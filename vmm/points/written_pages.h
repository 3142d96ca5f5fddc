#ifndef VMM_POINTS_WRITTEN_PAGES_H
#define VMM_POINTS_WRITTEN_PAGES_H

#include "recording/event.h"
#include "vmm/kvm/vm.h"

/*
 * What is in the pages that a landmark lists: all that may have been written since the sync point
 * before. Where these and the registers are equal, so is the whole machine.
 *
 * `frame`: where the CPU pushes the frame of an exception of user code, by its GPA; 0 at CPL0. It
 * is no part of a page, since landing may leave one there. Nor are the bytes by which a trace is
 * left for the kernel.
 */

/* Have the landmark, which has its list, hold what is in its pages now; a byte of each goes to
 * `checks`, room for l->pages of them, which must last as long as it. */
void written_pages_note(const struct vm *vm, uint64_t frame, struct landmark *l, uint8_t *checks);

/* In which of the landmark's pages the last pass that was compared with it differed; zeroed before
 * the first. It saves reading them all, and changes no answer. */
struct page_hint {
    bool known;
    unsigned index; /* in the landmark's list */
    struct landmark_page page;
};

/* Whether they are all as they were there. */
bool written_pages_equal(const struct vm *vm, uint64_t frame, const struct landmark *l,
                         struct page_hint *hint);

/* A page that is to be written before a landmark is come to: it has other bytes than there. */
struct page_to_come {
    struct landmark_page page;
    uint64_t gpa;
    uint8_t check; /* of its digest at the landmark */
};
/* Those of the landmark, as far as its page_checks tell, but for page tables, which the CPU writes
 * by itself, and the first page, which cannot be watched. There is room for l->pages. Returns how
 * many. */
unsigned written_pages_to_come(const struct vm *vm, uint64_t frame, const struct landmark *l,
                               struct page_to_come *out);
/* Whether it still is one. */
bool written_page_is_to_come(const struct vm *vm, uint64_t frame, const struct page_to_come *p);

/* Whether a page, by its number in memory.host, has these bytes now, but for so many frames. Of
 * what looks like a page table Accessed and Dirty bits do not count. */
bool written_page_is(const struct vm *vm, const uint64_t *frame, unsigned frames, uint64_t page,
                     const uint8_t *then);

#endif
