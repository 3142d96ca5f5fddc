#ifndef VMM_RUN_LOOP_H
#define VMM_RUN_LOOP_H

#include "vmm/machine.h"

/*
 * What the two loops of a live machine have in common: run_loop.c, whose vCPUs take turns on one
 * thread, and crew.c, where each has a thread. `m->cpu` is the one that all of this is about.
 */
#define KICK_SIGNAL SIGUSR1
/* An interrupt, or another vCPU, that has waited so long stops the vCPU wherever it is. */
#define HURRY_NS 1500000000ull
/* The same while Linux patches itself: it works for seconds there on a busy host, nobody waits for
 * the interrupt, and what it works on tells places of its code apart so late that a replay looks at
 * tens of thousands of passes. */
#define HURRY_PATCHING_NS (8 * HURRY_NS)
/* How long a vCPU runs on when no forced point could be chosen where it stood: next_retry(). */
#define RETRY_FIRST_NS 250000ull
#define RETRY_LAST_NS  8000000ull

static inline uint64_t device_now(const struct machine *m)
{
    return host_now_ns() - m->start_ns;
}

static inline uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Twice as long as the last time (0: there was none), so that a guest that stands in a long REP
 * MOVS gets on even where an exit is expensive. */
static inline uint64_t next_retry(uint64_t last_ns)
{
    return last_ns < RETRY_FIRST_NS / 2 ? RETRY_FIRST_NS : earlier(2 * last_ns, RETRY_LAST_NS);
}

/* Whether the user wants the machine to end. */
bool machine_stop_wanted(void);
/* Everything the outside world does to the devices by now. Returns their next deadline. */
uint64_t update_devices(struct machine *m, uint64_t now);
/* Record a sync point, and do what the guest wants there. */
void handle_sync(struct machine *m, struct vcpu_exit *exit);
/* What waits for the CPU at the sync point where it stands, before it runs on. */
void deliver(struct machine *m);
/* A prompt has no line end: what is held back is shown after a moment. Returns the earlier of
 * `wake` and that moment. */
uint64_t show_output(struct machine *m, uint64_t now, uint64_t wake);

#endif
