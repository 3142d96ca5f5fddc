#ifndef REPLAY_TIMELINE_H
#define REPLAY_TIMELINE_H

#include <stdatomic.h>

#include "recording/places/snapshot_list.h"
#include "replay/page_history.h"
#include "replay/player.h"

/*
 * Time travel in a replay: go to any place of it, forwards or backwards, by checkpoints.
 *
 * A place is a checkpoint and a number of single steps from it. Where a replay stops, a checkpoint
 * is made; that is cheap, and needs no name for the place. Going back is: restore a checkpoint from
 * before, and play on to where one wants to be (rr's way). How far that is, in steps, is found out
 * where it is not known, by coming closer with checkpoints at places that are passed on the way.
 *
 * The snapshots that the recording has are checkpoints too, each from when it is first of use on.
 */
#define STEPS_UNKNOWN UINT64_MAX

struct checkpoint {
    struct moment moment; /* its first member: memory */
    struct player_mark mark;
    /* Exact steps from the checkpoint before it, or STEPS_UNKNOWN. */
    uint64_t steps;
    /* What the vCPU looks like there, when that is not at a sync point (mark.at_sync). */
    struct landmark here;
    bool repeating;    /* it is between two iterations of a REP */
    uint64_t number;   /* for users; 0: made by ourselves */
    uint64_t at_ns;    /* of replaying, from the beginning to here; of a snapshot, what is known */
    uint64_t taken_ns; /* how long taking it stopped the replay */
    struct snapshot snapshot; /* that it is; the moment's image. Else empty */
};

enum timeline_stop {
    TIMELINE_THERE,       /* where it was to go */
    TIMELINE_BREAKPOINT,  /* at the breakpoints, or watchpoints, that have `hit` set */
    TIMELINE_INTERRUPTED, /* by timeline_interrupt() */
    TIMELINE_BEGIN,       /* the beginning of the recording */
    TIMELINE_END,         /* its end */
    TIMELINE_DIVERGED,    /* player.divergence says how */
    TIMELINE_UNDONE,      /* where something was changed, before that: timeline_change() */
    TIMELINE_FAILED,
};

struct timeline {
    struct player *player;
    struct page_source source;
    struct page_history history;
    uint32_t *image;                /* the chunk of each page before the first instruction */
    struct snapshot_list snapshots; /* of the recording */
    struct checkpoint first, *here;
    uint64_t steps;                  /* from *here to where we are, or STEPS_UNKNOWN */
    uint64_t checkpoints;            /* how many there are, the first not among them */
    uint64_t budget;                 /* bytes that checkpoints may take */
    uint64_t spacing_ns;             /* between those that are made on the way */
    uint64_t at_ns;                  /* of replaying, to where we are */
    uint64_t ran_ns;                 /* when at_ns was last added to */
    const struct checkpoint *target; /* where timeline_run() is to stop, if it comes there */
    bool changed;                    /* at *here, and the player is that which came of it */
    bool moved;                      /* since then */
    bool left_hit;         /* the last step began at a sync point, and with a breakpoint there */
    bool keep_all;         /* checkpoints are being used: none is dropped for the budget */
    bool counts_passes;    /* of the target's place, its own included, on the way to it */
    uint64_t passes;       /* that were counted */
    uint64_t numbered;     /* checkpoints that the user asked for */
    uint64_t pause_max_ns; /* the longest time that taking one took */
    atomic_bool interrupted;
};

/* The player stands at its beginning, and stays the caller's. budget: bytes of memory for
 * checkpoints, besides one copy of each page that the guest changes. */
int timeline_open(struct timeline *t, struct player *p, uint64_t budget, struct err *e);
void timeline_close(struct timeline *t);

/*
 * All of these leave the replay at a well-defined place, also when they are interrupted.
 * Breakpoints are those of player->stops. Going on forwards, one where the replay stands counts
 * only once that instruction was left.
 */
/* To a sync point, before the events there. */
enum timeline_stop timeline_seek(struct timeline *t, uint64_t ordinal, struct err *e);
/* To the next breakpoint, or the end. */
enum timeline_stop timeline_continue(struct timeline *t, struct err *e);
/* To the last breakpoint before this place, or before the last instruction that changed what is
 * watched, or to the beginning. */
enum timeline_stop timeline_reverse_continue(struct timeline *t, struct err *e);
/* One instruction, or the entry of one interrupt or exception handler. */
enum timeline_stop timeline_step(struct timeline *t, struct err *e);
/* If it undoes a change of memory that is watched, TIMELINE_BREAKPOINT. */
enum timeline_stop timeline_reverse_step(struct timeline *t, struct err *e);

/*
 * Before registers or memory are changed where we stand (memory: see guest_memory_mark()). From
 * then on it is a "what if": going forwards, the recording's events are played on until it fits no
 * more, which is TIMELINE_DIVERGED, where it stays. No checkpoint is made in it. Going back or
 * seeking undoes the change first; to reverse steps from where it has gone on to, that is all there
 * is (TIMELINE_UNDONE): what is before the change is the recording's.
 */
int timeline_change(struct timeline *t, struct err *e);
/* Back to before the change, if there is one; TIMELINE_UNDONE when it had gone on. */
enum timeline_stop timeline_undo(struct timeline *t, struct err *e);

/* Remember this place, which is one of the recording; NULL when that failed. It stays the
 * timeline's. */
struct checkpoint *timeline_checkpoint(struct timeline *t, struct err *e);

/* Async-signal-safe, from any thread; one that is in the guest needs a signal besides: nothing else
 * may ever bring it out. */
void timeline_interrupt(struct timeline *t);

/* ---- inside: timeline.c, timeline_forward.c, timeline_back.c and what_if.c ---- */

/* What passes are counted down from. */
#define COUNT_MAX (1ull << 62)

/* Do without the user's breakpoints and watchpoints for a while. */
struct timeline_stops {
    struct breakpoint *first;
    struct watchpoint *watched;
};
int timeline_detach(struct timeline *t, struct timeline_stops *stops, struct err *e);
void timeline_attach(struct timeline *t, const struct timeline_stops *stops);

/* Why the player has stopped, which is not in the guest. */
enum timeline_stop timeline_stop_of(const struct timeline *t);
/* Whether there are breakpoints where the vCPU stands, which have `hit` set then. */
bool timeline_at_breakpoint(struct timeline *t);
/* Forwards, one step or to the next breakpoint, after timeline_change(). */
enum timeline_stop timeline_go_changed(struct timeline *t, bool once, struct err *e);
/* One step, or within a REP several, at most so many, or none if t->target was reached before; if
 * the last one, of *done, changed memory that is watched, TIMELINE_BREAKPOINT. */
enum timeline_stop timeline_step_watching(struct timeline *t, uint64_t most, uint64_t *done,
                                          struct err *e);
/* The time since this was last asked is that of replaying, too. */
void timeline_add_time(struct timeline *t);
/* The last checkpoint at or before a sync point, before the events there. */
struct checkpoint *timeline_last_before(const struct timeline *t, uint64_t ordinal);
/* Do without a checkpoint: not the first one, t->here or t->target. */
void timeline_drop(struct timeline *t, struct checkpoint *c);
/* A checkpoint here. steps: as in struct checkpoint. */
struct checkpoint *timeline_mark(struct timeline *t, uint64_t steps, struct err *e);
int timeline_restore(struct timeline *t, struct checkpoint *c, struct err *e);
/* Have the recording's last snapshot at or before a sync point among the checkpoints. We stand at a
 * place that can be told. */
int timeline_bring_in(struct timeline *t, uint64_t ordinal, struct err *e);
/* Checkpoints stay, whatever the budget, until it is false again. */
void timeline_keep_all(struct timeline *t, bool on);
/* Step on, n times, from t->here + t->steps; with a checkpoint now and then. TIMELINE_THERE, also
 * when t->target was reached before. */
enum timeline_stop timeline_steps(struct timeline *t, uint64_t n, struct err *e);
/*
 * From a sync point to before the next instruction, which is no step, but a place of its own: there
 * may be a breakpoint (t->left_hit), or a checkpoint, where we stand then. It is none if an
 * interrupt or exception is taken first.
 */
enum timeline_stop timeline_leave_sync(struct timeline *t, struct err *e);
/* Run to a sync point, t->target, a breakpoint or the end; with a checkpoint now and then. */
enum timeline_stop timeline_run(struct timeline *t, uint64_t until, struct err *e);

static inline struct checkpoint *checkpoint_of(struct moment *m)
{
    return (struct checkpoint *)m;
}

#endif
