#ifndef REPLAY_PLAYER_H
#define REPLAY_PLAYER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "recording/chunk_source.h"
#include "recording/event.h"
#include "recording/landings.h"
#include "recording/reader.h"
#include "recording/snapshot.h"
#include "recording/places/snapshot_list.h"
#include "recording/stream_reader.h"
#include "recording/streams.h"
#include "vmm/kvm/frame_rf.h"
#include "vmm/kvm/vcpu_state.h"
#include "vmm/kvm/views.h"
#include "vmm/points/breakpoint.h"
#include "vmm/points/clock.h"
#include "vmm/points/gphook.h"
#include "vmm/points/stepper.h"

/*
 * Plays a recording: a machine of CPU and memory only. There is no device model; every input comes
 * from the recording, and every sync point is compared with it.
 */

enum player_status {
    PLAYER_RUNNING,
    PLAYER_ENDED,    /* at the recording's end, everything equal */
    PLAYER_CUT,      /* at the last whole epoch of a recording whose recorder was killed */
    PLAYER_DIVERGED, /* see struct divergence */
    PLAYER_STOPPED,  /* at the sync point that was asked for, by player_interrupt(), or stepped */
    PLAYER_BREAK,    /* at a breakpoint of `stops`: those with `hit` set */
};

enum divergence_kind {
    DIVERGED_SYNC,   /* another exit, other registers or other outputs */
    DIVERGED_MISSED, /* a forced point was not passed before the next sync point */
    DIVERGED_PASSED, /* nor before the next entry into the kernel */
    DIVERGED_LATE,   /* nor within the time that a landing may take */
    DIVERGED_CODE,   /* one cannot be looked for: other code is there, and nothing was run */
    DIVERGED_DIGEST, /* memory or CPU state differs at a digest */
};

/* Where replay and recording part. Everything before sync point `ordinal` was equal. */
struct divergence {
    enum divergence_kind kind;
    uint64_t ordinal;
    struct sync_point expected, got;
    struct sync_point before; /* the last one that was equal */
    uint8_t input[8];         /* what that one read, at most its first 8 bytes */
    unsigned input_len;
    struct state_digest digest_expected, digest_got;
    bool digest_cpu_only;         /* no memory digest was taken */
    struct landing_passes passes; /* of a forced point that was missed */
    /* Code at a forced point, in the recording and here. */
    uint8_t code[LANDMARK_CODE], code_here[LANDMARK_CODE];
    unsigned code_len, code_here_len; /* 0: there is no memory */
};

struct player_stats {
    uint64_t syncs, events, digests;
};

struct player_cpu {
    struct vcpu vcpu;
    struct clock clock;
    struct stepper stepper;      /* open between player_step()s */
    struct sync_point last_sync; /* codec memory */
    struct trap trap;            /* of the exit that it has come to, if that is one */
    /* Of vCPUs that ran at the same time: */
    struct stream_reader *ahead; /* its AHEAD stream */
    struct event_codec ahead_codec;
    struct event next_ahead;
    bool has_ahead;
    uint64_t ahead_bytes;
    uint64_t syncs;        /* its own sync points so far */
    uint64_t known_syncs;  /* ... and in the recording, if that was cut short */
    bool rests;            /* it does not run before its next turn */
    bool may_regain;       /* it was given a page in this turn */
    bool runs;             /* on its thread (player_threads.c), or will when that comes to it */
    bool waits;            /* it has come to an exit, and waits for its next turn */
    struct vcpu_exit exit; /* that one */
};

/*
 * Who follows a replay where the devices would be: is shown what the guest does to them and what
 * they do to the guest, in the order of the recording. All return 0, or -1 with *e filled: then
 * player_run() does, too.
 */
struct player_follower {
    /* An access (PIO or MMIO) or a RDMSR of the guest's, answered from the recording. What happened
     * in it (transfers to and from memory) is still to be applied: it can be taken with
     * player_take(), event by event, or left to the player. */
    int (*access)(struct player_follower *f, const struct vcpu_exit *exit, struct err *e);
    /* An event, before it is applied. */
    int (*event)(struct player_follower *f, const struct event *event, struct err *e);
    /* Behind each: what follows at this sync point can be taken, as in access(). May be NULL. */
    int (*behind)(struct player_follower *f, struct err *e);
};

struct player {
    struct recording *recording;
    struct vm vm;
    bool owns_tsd;          /* CR4.TSD was the recorder's (vmm/kvm/cr4.h) */
    uint32_t mxcsr_mask;    /* of the CPU that it was recorded on; 0: not known */
    enum frame_rf frame_rf; /* of that CPU */
    bool parallel; /* its vCPUs ran at the same time (player_crew.c): they have VMs of their own */
    bool at_once;  /* ... and are to do so here, too; may be set before player_run() */
    struct player_threads *threads; /* that do it; NULL: they run one after another */
    bool turn_begins;               /* of `cpu`, with what it has come to */
    struct views views;
    struct player_cpu cpus[MAX_VCPUS];
    unsigned cpu_count;
    struct player_cpu *cpu;   /* the one that runs now; the others stand at sync points of theirs */
    struct breakpoints stops; /* of who debugs the replay */
    /* Where these stop before the next forced point, for sure; NULL: that is not known. If it is at
     * the same instruction, that point is not looked for meanwhile: of two breakpoints that compare
     * there, passes could not be told apart inside the guest. */
    const struct landmark *stops_before;
    struct chunk_source *chunks;
    struct gp_hook hook;
    /* The decoded timeline. */
    struct stream_reader *stream[STREAM_KINDS]; /* by enum stream_kind */
    struct event_codec codec, codec_before;     /* codec_before: without `next` */
    struct event next;
    size_t next_bytes;
    bool has_next;
    bool at_sync; /* at sync point `ordinal`, whose events are still to come */
    uint64_t ordinal, tsc;
    uint64_t outputs; /* running digest */
    enum player_status status;
    enum end_reason reason;  /* when ended */
    bool end_not_compared;   /* the recording has no digest there: see struct event, EVENT_END */
    struct state_digest end; /* of the last digest that was equal */
    struct divergence divergence;
    struct player_stats stats;
    struct landing_log landings;
    /* What the guest puts out on its console, and by its command if it runs one; NULL: nobody
     * looks. */
    void (*console)(void *opaque, uint8_t byte);
    void *console_opaque;
    /* Told every second for how many the landing on the point before sync point `ordinal` has
     * lasted, by its vCPU's thread. NULL: nobody is. */
    void (*landing_lasts)(const struct player *p, uint64_t ordinal, uint64_t rip, unsigned seconds,
                          void *opaque);
    void *landing_opaque;
    struct player_follower *follower; /* NULL: nobody */
    bool runs_command;                /* base/command_protocol.h */
    bool dlab, loopback; /* of the UART at the console port: they tell data from divisor */
    bool changed;        /* memory or registers, by a user: digests are not compared */
    atomic_bool interrupted;
    const atomic_bool *pause; /* stops at the next sync point when set; NULL: nobody will */
};

/* Build the machine of a recording and bring it to its first instruction. The recording stays the
 * caller's. clock: how forced points are found; NULL: the best way that this host and the recording
 * have. */
int player_open(struct player *p, struct recording *recording, const struct clock_ops *clock,
                struct err *e);
void player_close(struct player *p);

/* Play until the end, a divergence, a breakpoint, or sync point `until` (UINT64_MAX: none), before
 * the events there. Returns 0 and a status, or -1 when the host or the file failed. */
int player_run(struct player *p, uint64_t until, struct err *e);
/* The same, but in the middle of an instruction on to behind that: a place to stand. */
int player_run_to_place(struct player *p, uint64_t until, struct err *e);

/*
 * Execute one instruction, or enter one interrupt or exception handler: then the status is
 * PLAYER_STOPPED. A sync point on the way is compared as ever. Slow (vmm/points/stepper.h), some 40
 * us in the emulated host.
 */
int player_step(struct player *p, struct err *e);
/* The same; where the vCPU stands within a REP (stops.repeating), several iterations may be done at
 * once: at most so many, up to one that changes what stops.watched watches. *done: how many. */
int player_steps(struct player *p, uint64_t most, uint64_t *done, struct err *e);
/* At a sync point: have everything happen that does there, and stand before the next instruction
 * (PLAYER_STOPPED), not at the sync point. */
int player_leave_sync(struct player *p, struct err *e);

/* Complete the instruction that exited last. */
int player_finish_exit(struct player *p, struct err *e);
/* The same before memory and state become others: vcpu_abandon(). */
int player_abandon_exit(struct player *p, struct err *e);
/* After completing it: 1 where the instruction has another access to make (vcpu_is_halfway()). Such
 * a place cannot be marked; steps do not stop there. -1 on error. */
int player_is_halfway(struct player *p, struct err *e);
/* Take down the state but for memory (recording/snapshot.h), and bring it back. */
int player_mark(struct player *p, struct player_mark *mark, struct err *e);
int player_restore(struct player *p, const struct player_mark *mark, struct err *e);
/* Bring a replay to a snapshot from its beginning (player_open()), the only place whose memory it
 * fits to. */
int player_enter(struct player *p, const struct snapshot_entry *entry, struct err *e);
/* What landing on forced points has cost so far, on all CPUs. */
struct landing_stats player_landing_stats(const struct player *p);
/* Of the CPU that runs there. */
static inline const struct kvm_regs *player_mark_regs(const struct player_mark *mark)
{
    return &mark->cpus[mark->cpu].state.regs;
}

/*
 * For a follower, within access() and behind(): have the recording's next event if it happens at
 * this sync point, else NULL (or -1). player_take() applies it and goes on behind it.
 */
int player_next(struct player *p, const struct event **next, struct err *e);
int player_take(struct player *p, struct err *e);
/* The same without applying it. */
void player_pass(struct player *p);

/* The chunk number of every page before the first instruction, 0 for the zero page; the caller
 * frees it. */
uint32_t *player_image(struct player *p, struct err *e);

/* How much of the recording has been played, in percent. */
unsigned player_progress(const struct player *p);

/* Async-signal-safe: player_run() returns PLAYER_STOPPED soon. */
void player_interrupt(struct player *p);

#endif
