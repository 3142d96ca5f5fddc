#ifndef RECORDER_RECORDER_H
#define RECORDER_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "devices/disk/disk.h"
#include "devices/virtio/net_link.h"
#include "mmu/dma.h"
#include "recording/event.h"
#include "recording/order/access.h"
#include "vmm/kvm/vcpu_state.h"

/*
 * The funnel. Nothing from the host reaches the guest except through these calls: what a read
 * returns, what a device writes into memory, every interrupt. `grep -rE
 * 'recorder_|dma(->|\.)write'` finds them all.
 *
 * A recorder may be NULL: then the machine runs plainly and every call does nothing, so that a
 * machine behaves the same whether it is recorded or not. Calls about snapshots need one.
 *
 * Errors of the file (disk full) are remembered and come out of recorder_epoch().
 */
struct recorder;

/* How much has been recorded, for the report at the end. */
struct recorder_stats {
    uint64_t syncs, events, inputs, forced, snapshots, marks;
    struct state_digest end; /* of recorder_end() */
};

/* Make the recording file; meta is the JSON description of the machine. */
struct recorder *recorder_create(const char *path, bool overwrite, const char *meta, struct err *e);

/* Be ready for recorder_snapshot(), of this machine, which must outlive the recorder. Call before
 * recorder_initial(). */
int recorder_follow_memory(struct recorder *r, struct vm *vm, struct err *e);

/* What a machine is before its first instruction: as it boots, or where it goes on from. */
struct initial_vcpu {
    struct vcpu_state state;
    struct vcpu_pending pending;
};
struct initial_state {
    const struct guest_memory *memory;
    const struct initial_vcpu *cpus; /* each, in order */
    unsigned cpu_count;
    struct bytes devices; /* of pc_save() (devices/pc.h); the recording does not look into it */
    struct disk *disk;    /* what was changed in its overlay is recorded, then and with each
                             snapshot; NULL: there is none. It must outlive the recorder */
    bool dlab, loopback;  /* of the console's UART: they tell output from settings */
};
/* Call once, before anything runs. Memory is copied, and stored behind the machine: until then what
 * there is of the recording cannot be replayed. It must outlive the recorder. */
int recorder_initial(struct recorder *r, const struct initial_state *initial, struct err *e);

/* The bytes of STREAM_SYMBOLS (recording/streams.h). */
void recorder_symbols(struct recorder *r, const struct bytes *symbols);

/* What may make a replay diverge from here on, as it could not be made exact: at most DOUBT_MAX
 * bytes of text (recording/doubts.h). */
void recorder_doubt(struct recorder *r, const char *text);

/* ---- the guest's side: in the order in which things happen ---- */

/* The guest stopped at a sync point. For outputs, data is folded into the digest. */
void recorder_sync(struct recorder *r, struct vcpu *vcpu, const struct vcpu_exit *exit);
/* What the guest reads at the sync point it stands at: PIO, MMIO and MSR values. */
void recorder_input(struct recorder *r, const void *data, size_t len);
/* The value an emulated RDTSC returns. */
void recorder_tsc(struct recorder *r, uint64_t value);
void recorder_interrupt(struct recorder *r, uint8_t vector);
void recorder_window(struct recorder *r, bool want);
/* From here on this vCPU runs. */
void recorder_schedule(struct recorder *r, unsigned vcpu);
/* The vCPU that runs starts anew, see vcpu_start(); gets an NMI; has another CR8. */
void recorder_start(struct recorder *r, uint8_t vector);
void recorder_nmi(struct recorder *r);
void recorder_cr8(struct recorder *r, uint8_t cr8);
/* The CPU's TSD was clear, and is set again. */
void recorder_tsd_set(struct recorder *r);
void recorder_hook(struct recorder *r, const struct gp_hook *hook);
/* What only the devices get to see, so that others can follow them (replay/live/shadow.h): the
 * device time, of an access that asked for it or of a pc_poll(), and console input that the UART
 * took. */
void recorder_time(struct recorder *r, uint64_t now_ns);
void recorder_received(struct recorder *r, const uint8_t *data, size_t len);
/* A NIC is about to touch memory for a frame of len bytes, at this device time: of one that is sent
 * the segments where it lies with its header, in `count` pieces; else NULL. */
void recorder_frame(struct recorder *r, unsigned nic, uint64_t now_ns, uint32_t len,
                    const struct net_segment *segment, unsigned count);
/* One that was to be sent stays where it is for now; or, where the guest rings no doorbell, it is
 * now gone on with what waits. */
void recorder_frame_waits(struct recorder *r, unsigned nic, uint64_t now_ns);
/* A disk is about to complete so many of its oldest requests. */
void recorder_disk_done(struct recorder *r, unsigned disk, unsigned count);
/* This place is named so (one harmless line of 1 to MARK_MAX bytes; a longer one is cut): by the
 * guest, or from outside. False: the recording has as many marks as it may have, or there is none.
 */
bool recorder_mark(struct recorder *r, const char *text, bool by_guest, uint64_t now_ns);
/* The machine boots again, at this device time: these are the states of its CPUs, of which the
 * first one runs from here on. What memory has otherwise was written before. */
void recorder_boot(struct recorder *r, const struct initial_vcpu *cpus, unsigned count,
                   uint64_t now_ns);
/* vCPUs that run at the same time: this one has got the right to access an object. Each one's
 * points never fall. Like all calls, under a lock of the caller's where several threads record. */
void recorder_access(struct recorder *r, const struct access *access);
/* The vCPU was stopped at an arbitrary instruction; the recorder_sync() of it follows. */
void recorder_forced(struct recorder *r, const struct landmark *landmark);
/* ---- vCPUs that run at the same time (recording/event.h) ---- */

/* The same of this one of them, whose turn it is. */
void recorder_forced_ahead(struct recorder *r, unsigned vcpu, const struct landmark *landmark);
/* The one whose turn it is does not run on at its end. */
void recorder_rest(struct recorder *r);
/* The page that it has come to comes back as it was, and with `all` others, too (views_regain()).
 */
void recorder_regain(struct recorder *r, bool all);
/* The recording ends while this one runs. */
void recorder_endless(struct recorder *r, unsigned vcpu);

/* Have replay compare all memory and every vCPU's state here. */
int recorder_digest(struct recorder *r, struct vm *vm, struct err *e);

/* What a replay knows of the machine at a sync point besides memory and the vCPUs. */
struct recorder_state {
    const char *name; /* that is free; "": a number */
    struct gp_hook hook;
    bool dlab, loopback;         /* of the UART at the console port */
    const struct bytes *devices; /* of pc_save(): nothing that a replay needs, but going live does;
                                    NULL: nobody is to go live from there */
};
/*
 * A snapshot at the sync point where the machine stands, before the events there. Memory and what
 * was written to the disk are copied, and stored behind the machine; the snapshot is in the
 * recording at the first recorder_epoch() after that, or recorder_finish(). A recorder that is
 * killed before loses it. Returns 1; 0 when there was an event here already (a device has written
 * to memory), so that the next sync point is to be tried, when what was there before is not stored
 * yet, or when the recording can have no more of them.
 */
int recorder_snapshot(struct recorder *r, struct vm *vm, const struct recorder_state *state,
                      struct err *e);
/* Whether there is any use in trying. */
bool recorder_can_snapshot(const struct recorder *r);
/* Whether one can be called so; without a name they are 1, 2, ... and so no name is a number. */
bool recorder_snapshot_name_is_free(const struct recorder *r, const char *name);
/* Sync points so far. */
uint64_t recorder_syncs(const struct recorder *r);
/* The last one's. */
const char *recorder_snapshot_name(const struct recorder *r);

/* ---- the devices' side ---- */

/* A device has read these bytes of memory, or written them: r is not NULL. */
void recorder_dma(struct recorder *r, bool write, uint64_t gpa, const uint8_t *data, size_t len);
/* Guest memory as devices see it (mmu/dma.h), with a recorder or without. */
struct recorded_dma {
    struct dma dma;
    const struct guest_memory *memory;
    struct recorder *recorder;
};
void recorded_dma_init(struct recorded_dma *d, const struct guest_memory *m, struct recorder *r);

/* ---- the file ---- */

/* Make everything so far durable against a kill, when it is time to. Call between two events. */
int recorder_epoch(struct recorder *r, uint64_t now_ns, struct err *e);
/* When that is at the latest, for who sleeps or stays in the guest; NEVER: all is durable. */
uint64_t recorder_epoch_due(const struct recorder *r);
/* Why the machine ended; with_digest: its state is at a sync point and can be compared. */
int recorder_end(struct recorder *r, struct vm *vm, enum end_reason reason, bool with_digest,
                 struct err *e);
void recorder_stats(const struct recorder *r, struct recorder_stats *stats);
/* Finish the file (after recorder_end) or give it up, and free the recorder. */
int recorder_finish(struct recorder *r, enum end_reason reason, const char *text, struct err *e);
void recorder_abort(struct recorder *r);

#endif
