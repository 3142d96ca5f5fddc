#ifndef REPLAY_PLAYER_INSIDE_H
#define REPLAY_PLAYER_INSIDE_H

#include "replay/player.h"

/* Inside of the player: player.c, player_open.c, player_crew.c, player_threads.c, player_step.c,
 * player_mark.c and player_output.c. */

/* Have the next event in p->next, if there is one (p->has_next). */
int player_fetch(struct player *p, struct err *e);
int player_apply(struct player *p, const struct event *event, struct err *e);
void player_consume(struct player *p);
/* Compare a sync point with the recording's next one. */
int player_check(struct player *p, const struct vcpu_exit *exit, struct err *e);
/* An exit of the guest's: compare it, and give the guest what it asked for. */
int player_take_exit(struct player *p, struct vcpu_exit *exit, struct err *e);
/* The guest writes to a port, or to a device's memory: what a user saw of that goes to p->console.
 */
void player_watch_output(struct player *p, const struct vcpu_exit *exit);
/* To the next exit of the guest's own; or the status becomes another one. */
int player_run_to_exit(struct player *p, struct vcpu_exit *exit, struct err *e);
/* To a forced point, which is still to be compared: 1. 0: the status is another one. */
int player_land(struct player *p, const struct landmark *landmark, struct err *e);
/* "... is damaged"; returns -1. */
int player_bad(const struct player *p, struct err *e, const char *what);
/* Of a recording of vCPUs that ran at the same time: when everything is loaded; the rest of
 * player_run(). */
int player_crew_open(struct player *p, struct err *e);
int player_crew_run(struct player *p, uint64_t until, struct err *e);
/* A part of that: what is next on the timeline, of the vCPU whose turn it is. */
int player_crew_step(struct player *p, uint64_t until, struct err *e);
/* The page that the vCPU whose turn it is has come to comes back as it was, or all do. */
int player_crew_regain(struct player *p, bool all, struct err *e);
/* player_crew_run() where vCPUs run at the same time, each on a thread of its own. */
int player_threads_run(struct player *p, uint64_t until, struct err *e);
/*
 * Within player_crew_step(): wait until no other vCPU runs; or none that has to give up something
 * before the one whose turn it is can have this. False: the status has become another one
 * meanwhile. Where vCPUs run one after another that is so in any case.
 */
bool player_all_stand(struct player *p);
bool player_losers_stand(struct player *p, const struct page_fault *wanted);
/* Async-signal-safe: have all vCPUs that run at the same time leave the guest. */
void player_threads_kick(struct player *p);
/* The machine boots again (EVENT_BOOT): its CPUs begin anew. */
int player_boot(struct player *p, const struct boot *boot, struct err *e);
/* The CPU that runs from here on. */
void player_set_cpu(struct player *p, unsigned index);
/* The end of stepping, before anything else is done with the vCPU. */
static inline void player_settle(struct player *p)
{
    stepper_close(&p->cpu->stepper);
}

/* Where to look for a forced point: where a user has changed something, memory need not be the
 * recording's. */
static inline struct landmark player_place(const struct player *p, const struct landmark *landmark)
{
    struct landmark place = *landmark;

    place.exact &= !p->changed;
    if (p->changed)
        place.entry = ENTRY_UNKNOWN;
    return place;
}

#endif
