#ifndef REPLAY_LIVE_RECORDED_MACHINE_H
#define REPLAY_LIVE_RECORDED_MACHINE_H

#include "devices/disk/disk_set.h"
#include "recording/meta.h"
#include "vmm/machine/machine.h"

/* What a recording says of its machine that only a machine which goes on from there needs. */

/* Size and samples of a disk's contents in hexadecimal: its first 64 KiB and 4 KiB at each of 255
 * places spread over it. "" when it cannot be read. */
#define RECORDED_DISK_DIGEST 17
void recorded_disk_digest(struct disk *disk, char text[RECORDED_DISK_DIGEST]);
/*
 * The recorded machine's disks as they were at the beginning, under an overlay: from where they
 * were, or from where `count` of them are now, which must be all. That they are the same is checked
 * by the digest above; all that the recorded machine has read is compared by replay/live/shadow.h.
 * *set is the caller's to close. 0, or -1 with *e.
 */
int recorded_disks_open(const json_t *meta, const struct disk_wish *now, unsigned count,
                        const char *recording, struct disk_set *set, struct err *e);

/* What was made of the kernel's code: all zeroes when it does not say. */
void recorded_kernel_code(const json_t *meta, struct kernel_code *code);
/* The kernel's code, for forced points: machine_trust_code() with what the recording says. */
void recorded_trust_code(const json_t *meta, struct machine *m);

#endif
