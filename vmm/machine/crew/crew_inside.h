#ifndef VMM_MACHINE_CREW_CREW_INSIDE_H
#define VMM_MACHINE_CREW_CREW_INSIDE_H

#include <pthread.h>
#include <time.h>

#include "vmm/machine/crew/crew.h"

/* Inside of the crew: crew.c (threads and turns), crew_pages.c (who gets which page when),
 * crew_stop.c (stopping who runs). All of this is protected by crew->lock. */

struct member {
    struct crew *crew;
    struct machine_cpu *cpu;
    unsigned index;
    pthread_t thread;
    bool has_thread, done;
    struct kick_target kick_target;
    timer_t timer; /* kicks it, while a forced point is being chosen */
    pthread_cond_t may_go_on;

    bool runs;           /* in the guest, or on its way to or from it */
    bool arrived, rests; /* else: it stands at `exit`, to be served; or it waits to be woken */
    struct vcpu_exit exit;
    struct page_fault fault; /* of an exit that is one */
    uint64_t root;           /* of its page tables then */
    bool for_all;            /* what it stands at is served where all others stand */
    uint64_t served;         /* its exits so far: its sync points */
    uint64_t waits_ns;       /* since when it waits for that page */
    uint64_t lost_token_ns;  /* when it lost the token that it has not needed since; or 0 */
    uint64_t entered_ns;     /* when it began to run */
    /* Since when something wants it to stop; 0: nothing does. */
    uint64_t wanted_ns;  /* ... a page of its */
    uint64_t pending_ns; /* ... an interrupt to be taken */
    uint64_t retry_ns;   /* when a forced point is next tried */
    uint64_t retry_after_ns;
    uint64_t look_ns; /* when to look whether it only waits, while it has the token */
    uint64_t look_after_ns;
    uint64_t kicked_ns; /* when it was last kicked; 0: it has come out since */
    bool forcing;       /* a forced point is being chosen */
};

struct crew {
    struct machine *machine;
    pthread_mutex_t lock;
    struct member member[MAX_VCPUS];
    unsigned count;
    struct member *turn;     /* whose turn it is, or was last */
    struct member *token;    /* who has it; NULL: nobody needed it yet */
    uint64_t token_since_ns; /* since when; how long it has run with it, */
    uint64_t token_used_ns;  /* and how long it has waited for pages */
    uint64_t token_waited_ns;
    uint64_t token_random_ns; /* how long it may run with it, where that is random */
    uint64_t apart_ns;        /* how long one that has lost it runs until it needs it, on average */
    uint64_t paid_ns;         /* how long one that has it waits for pages, on average */
    uint64_t random;          /* state of the generator; 0: it is not */
    int bell;                 /* eventfd that wakes the thread that watches over all this */
    uint64_t sleeps_until;    /* that thread */
    uint64_t ended_ns;        /* when the machine ended; 0: not yet */
    bool given_up;            /* not all of them could be stopped */
    bool failed;
    struct err error;
};

/* It cannot go on: everybody leaves the guest. The first error counts. */
void crew_fail(struct crew *crew, const struct err *e);

/* ---- pages ---- */

/* Whether it stands at an exit for which others may have to stand: a page fault, or one at which
 * memory is used that may be anybody's. */
bool crew_needs_others(const struct member *c);
/* Whether those others stand, and it has the token if it needs that. */
bool crew_may_be_served(const struct member *c);
/* Whether the one with the token wants something that this one has: so it comes first. */
bool crew_gives_way(const struct member *c);
/* Who needs the token and does not have it; of several the one that has waited longest. NULL: none.
 */
struct member *crew_next_for_token(struct crew *crew);
/* It is passed on, if it is free and somebody needs it. Returns when to look again. */
uint64_t crew_pass_token(struct crew *crew, uint64_t now);
/* How long a CPU may keep it: of its own time in the guest. */
uint64_t crew_quantum(const struct crew *crew);
/* What comes back with a page that was lost to another CPU (mmu/lost_pages.h): the right to write
 * it, and where CPUs do not share little, all that was lost to that one. With --chaos it is random.
 */
enum crew_return { RETURN_NOTHING, RETURN_AS_IT_WAS, RETURN_ALL };
enum crew_return crew_what_comes_back(struct crew *crew);
/* It was given the page that it waited for: if it has the token, its quantum is longer by the time
 * it waited. */
void crew_pay_for_page(struct member *c, uint64_t now);
/* This one has come to an exit: if it needs the token again, that says how long it did without. */
void crew_needs_token_again(struct member *c, uint64_t now);
/* This one has run so long; it only waits, so it needs the token no more. */
void crew_spend_token(struct member *c, uint64_t ns);
void crew_give_up_token(struct member *c);

/* ---- stopping; times are the host's that has elapsed, NEVER if there is none ---- */

/* When one that runs must be stopped, if it does not stop before. */
uint64_t crew_stop_due(struct member *c, uint64_t now);
/* When to look whether it only waits. */
uint64_t crew_look_due(struct member *c, uint64_t now);
/* When it is to be kicked for one of these; NEVER also where that is done. */
uint64_t crew_kick_due(struct member *c, uint64_t now);
/* It has come to an exit. */
void crew_arrive(struct member *c, const struct vcpu_exit *exit);
/* Behind a turn for which all stood: it may have made something else of what others stand at, as a
 * jump to another kernel is ready then (kexec). */
void crew_look_again(struct crew *crew);
/* It was kicked: stop it at a forced point, something having waited for that since then, or only if
 * it waits itself. It has arrived then, or is to run on. The lock is not held meanwhile. */
int crew_force(struct member *c, uint64_t since, bool only_waiting, struct err *e);

#endif
