#ifndef MMU_LOST_PAGES_H
#define MMU_LOST_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

/*
 * Pages that vCPUs have taken from each other (mmu/ownership.h), so that they can come back
 * together: a vCPU that comes to a page which another one has taken will soon come to the next one,
 * and each would cost an exit of its own, and a stop of the other.
 *
 * That is a guess, and one that two vCPUs could make for ever about pages which only one of them
 * uses. So a page comes back to a vCPU only so often without its having come to it itself.
 *
 * All of this is a function of who asked for what, took what from whom and got it back, in this
 * order, and so the same when a recording is replayed.
 */
#define LOST_PAGES_MAX 16u
#define GUESSES_MAX    4u

struct lost_pages;

/* Of memory of so many pages. NULL: out of memory. */
struct lost_pages *lost_pages_create(uint64_t pages);
/* NULL is fine. */
void lost_pages_destroy(struct lost_pages *l);

/* A vCPU has come to that page itself. */
void lost_pages_asked(struct lost_pages *l, unsigned vcpu, uint64_t page);

/* `winner` takes a page that `loser` could write. Of more than LOST_PAGES_MAX the last ones count.
 */
void lost_pages_note(struct lost_pages *l, unsigned loser, unsigned winner, uint64_t page);

/* Whether that one is among them, or any is; and which: those that `winner` has taken, whether or
 * not it still has them. Taken, they are not lost any more. Returns how many. */
bool lost_pages_has(const struct lost_pages *l, unsigned loser, unsigned winner, uint64_t page);
bool lost_pages_any(const struct lost_pages *l, unsigned loser, unsigned winner);
unsigned lost_pages_take(struct lost_pages *l, unsigned loser, unsigned winner,
                         uint64_t page[LOST_PAGES_MAX]);

/* This one came back to it by a guess. */
void lost_pages_guessed(struct lost_pages *l, unsigned vcpu, uint64_t page);

#endif
