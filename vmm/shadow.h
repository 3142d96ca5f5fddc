#ifndef VMM_SHADOW_H
#define VMM_SHADOW_H

#include "replay/player.h"
#include "vmm/pc.h"

/*
 * The devices of a replayed machine. A replay needs none, but a machine that is to go live from it
 * does (vmm/live.h): so here a set of them follows it. They get what the recorded machine's devices
 * got: every access of the guest, the device time that the recording notes, console input, the
 * interrupts that were taken. What they put out goes nowhere: the guest gets the recording's.
 *
 * It also says whether they are the recorded machine's. Everything that the two have in common is
 * compared: each answer to the guest, each transfer to and from memory and, but for entropy, its
 * bytes, each interrupt. Another disk image shows here at the first block that the guest reads.
 */
struct shadow {
    struct player_follower follower;
    struct pc pc;
    struct dma dma;
    struct player *player;
    bool has_disk;
    bool entropy;        /* what a device writes now is not known here */
    uint64_t told_ns;    /* the latest time that the guest has been told, in device time */
    enum end_reason end; /* the guest wanted the machine to end; 0: not yet */
    bool differs;        /* some error, in *e, was found in a transfer; the access is to end */
    struct err *e;
};

/* The devices before the recording's first instruction, following p from there on. disk, with the
 * contents that it had when the recorded machine was made, may be NULL; it stays the caller's. */
int shadow_open(struct shadow *s, struct player *p, struct disk *disk, struct err *e);
void shadow_close(struct shadow *s);

/* Bring device time to where the guest has seen it, and take down the state of the devices. */
void shadow_save(struct shadow *s, struct bytes *devices);

#endif
