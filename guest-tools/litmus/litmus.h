#ifndef GUEST_TOOLS_LITMUS_H
#define GUEST_TOOLS_LITMUS_H

#include "tests/guests/guest.h"

/*
 * Litmus guests: small programs for several CPUs whose outcome is the doing of the schedule. Each
 * is one file with one `struct litmus`; the runner (litmus.c) starts the CPUs, has each of them do
 * the program's work at CPL3 ("user=0" on the command line: at CPL0), and says on one line what
 * came of it (docs/litmus.md):
 *
 *   litmus NAME passed|failed: COUNT=N ... order=CHECKSUM
 *
 * What CPUs share, and what each has of its own, lies on pages of its own; page tables are static.
 * Programs make no assumption on whose turn it is, and whoever waits executes PAUSE.
 */

/* What a CPU has of its own. */
struct worker {
    OWN_PAGE unsigned number; /* from 0 on */
    unsigned barriers;        /* passed */
    uint64_t random;          /* state */
    uint64_t seen;            /* checksum of what it has read of others, in order */
    /* For the program: counts to be added up at the end (sum()). */
    uint64_t count[8];
};

struct litmus {
    const char *name;
    /* Before the other CPUs run, on the first one at CPL0: take parameters, prepare the data. */
    void (*prepare)(void);
    /* On every CPU that takes part. */
    void (*work)(struct worker *w);
    /* In the end, on the first CPU at CPL0: count() what came of it; whether it is as it should be
     * in a program without bugs. */
    bool (*check)(void);
};

/* The program's. */
extern struct litmus litmus;

/* How many CPUs take part: "cpus=", but prepare() may make it less. */
extern unsigned workers;
extern struct worker worker[CPUS_MAX];

/* ---- for prepare() and check() ---- */

/* The machine is not one for this program. */
_Noreturn void refuse(const char *why);
/* " NAME=VALUE" in the outcome. */
void count(const char *name, uint64_t value);
/* Of worker.count[i] of all. */
uint64_t sum(unsigned i);

/* ---- for work() ---- */

/* xorshift64 (Marsaglia 2003), a sequence for each worker. */
static inline uint64_t next_random(struct worker *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random;
}

/* 0 to n - 1; n less than 2^32. */
static inline unsigned random_below(struct worker *w, unsigned n)
{
    return (unsigned)((next_random(w) >> 32) * n >> 32);
}

/* Work of no interest, which touches nothing: n passes of a loop of two instructions on average, at
 * most twice as many. It begins with a PAUSE, by which a schedule of turns takes it for waiting: so
 * turns often end in it, and soon. */
void dawdle(struct worker *w, unsigned n);

/* What w has read is part of the order of accesses. */
static inline void note(struct worker *w, uint64_t value)
{
    w->seen = mix(w->seen, value);
}

/* Until all workers have come here. */
void barrier(struct worker *w);

/* Monitors as Java's: one lock and one queue of who waits, who is woken competes for the lock with
 * everybody else, and waiting may be ended by notify only. Zero is one that is free. When all
 * workers wait so that nobody can end it, the runner ends the machine: the program has failed, with
 * stuck= that many. */
struct monitor {
    OWN_PAGE volatile unsigned owner; /* number + 1; 0: nobody */
    unsigned waiting;
    unsigned char queue[CPUS_MAX]; /* numbers, the first to be woken first */
};

void monitor_enter(struct worker *w, struct monitor *m);
void monitor_exit(struct worker *w, struct monitor *m);
/* w is in the monitor for all of these. */
void monitor_wait(struct worker *w, struct monitor *m);
void monitor_notify(struct worker *w, struct monitor *m);
void monitor_notify_all(struct worker *w, struct monitor *m);

/* ---- of the runner ---- */

/* A worker's end, from wherever it is. */
_Noreturn void worker_leaves(void);
/* The worker will do nothing any more that ends another one's waiting. */
void monitors_leave(struct worker *w);
/* How many wait for ever; and a checksum of who entered monitors in which order. */
unsigned monitors_stuck(void);
uint64_t monitors_order(void);

#endif
