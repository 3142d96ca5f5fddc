#ifndef REPLAY_LIVE_SHADOW_H
#define REPLAY_LIVE_SHADOW_H

#include "devices/pc.h"
#include "recording/places/snapshot_list.h"
#include "replay/player.h"

/*
 * The devices of a replayed machine. A replay needs none, but a machine that is to go live from it
 * does (replay/live/live.h): so here a set of them follows it. They get what the recorded machine's
 * devices got: every access of the guest, the device time that the recording notes, console input,
 * the moments when frames were moved and requests of disks completed, the interrupts that were
 * taken. What they put out goes nowhere: the guest gets the recording's.
 *
 * It also says whether they are the recorded machine's. Everything that the two have in common is
 * compared: each answer to the guest, each transfer to and from memory and, but for entropy and
 * frames that are received, its bytes, each interrupt. Another disk image shows here at the first
 * block that the guest reads.
 *
 * Nobody goes live from behind a kexec: where the second kernel's code was changed, and where it
 * says that it has put together a module, is not in the recording. So a snapshot there has nothing
 * for it, and who replays so far sees it here.
 */
#define PIO_MAX_BYTES 4096 /* of one exit: KVM's page of PIO data */

struct shadow {
    struct player_follower follower;
    struct pc pc;
    struct dma dma;
    struct player *player;
    bool has_disk;
    uint64_t hold;         /* the access at this sync point is not served; 0: all are */
    struct vcpu_exit held; /* it, until shadow_go_on(); its data is held_data. Else of kind 0 */
    uint8_t held_data[PIO_MAX_BYTES];
    uint64_t kexec_hook; /* the kernel's code there says that it is about to start another one */
    uint64_t kexec_at;   /* the sync point where it has; 0: it has not */
    struct shadow_link {
        struct net_link link;
        struct shadow *shadow;
        unsigned nic;
    } links[MAX_NICS];
    struct shadow_disk {
        struct block_link link;
        struct shadow *shadow;
        unsigned disk;
    } disks[MAX_DISKS];
    unsigned completing; /* at no access of the guest's, this disk completes so many requests: */
    unsigned completes;
    bool unknown;        /* what a device writes now is not known here */
    bool has_frame;      /* at no access of the guest's, this frame is moved: */
    struct frame frame;  /* (its list of places is gone) */
    uint64_t told_ns;    /* the latest time that the guest has been told, in device time */
    enum end_reason end; /* the guest wanted the machine to end; 0: not yet */
    bool differs;        /* some error, in *e, was found in a transfer; the access is to end */
    struct err *e;
};

/*
 * The devices where p stands, following it from there on: before the recording's first instruction,
 * or where a snapshot is (`from`, which has what is wanted for it: from->live). The disks, with the
 * contents that they had when the recorded machine was made, may be NULL; they stay the caller's,
 * also when this fails, and what the machine had written to them by then is written to them. A
 * machine with several CPUs is refused: its APICs, and whose turn it is, are not followed.
 * kexec_hook: of struct kernel_code. Before p goes on, call shadow_go_on().
 */
int shadow_open(struct shadow *s, struct player *p, const struct disk_set *disks,
                uint64_t kexec_hook, const struct snapshot_entry *from, struct err *e);
void shadow_close(struct shadow *s);
/* Nobody can go live from where the player stands, -1, if the machine has started another kernel.
 */
int shadow_check_kernel(const struct shadow *s, struct err *e);

/*
 * The devices serve a sync point's access when the player comes to it, and with that take events of
 * the recording. A replay without them that stops there has taken none yet. So where a snapshot is
 * to be taken, set s->hold before: the devices are then those before the access, until this call.
 */
int shadow_go_on(struct shadow *s, struct err *e);

/* Bring device time to where the guest has seen it, and take down the state of the devices. */
void shadow_save(struct shadow *s, struct bytes *devices);
/* The data of the access that is held, if one is. */
void shadow_save_access(const struct shadow *s, struct bytes *access);

#endif
