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
/* The files of which an image consists, for the recording; NULL: a name is not valid UTF-8. */
json_t *recorded_disk_files(const char *path, const char *format);

/* One line: what may be wrong with disks, although nothing says so. "": nothing. */
struct disk_doubt {
    char text[1024];
};

/*
 * The recorded machine's disks as they were at the beginning, under an overlay: from where they
 * were, or from where `count` of them are now, which must be all. That they are the same is checked
 * by the digest above and by size and time of the files they consist of, backing files included;
 * all that the recorded machine has read is compared by replay/live/shadow.h. Copies have other
 * times, and what is named in `now` is taken to be right if its samples are: *doubt says so, for
 * the command to print it. *set is the caller's to close. 0, or -1 with *e.
 */
int recorded_disks_open(const json_t *meta, const struct disk_wish *now, unsigned count,
                        const char *recording, struct disk_set *set, struct disk_doubt *doubt,
                        struct err *e);

/* What was made of the kernel's code: all zeroes when it does not say. */
void recorded_kernel_code(const json_t *meta, struct kernel_code *code);
/* The kernel's code, for forced points: machine_trust_code() with what the recording says. */
void recorded_trust_code(const json_t *meta, struct machine *m);

#endif
