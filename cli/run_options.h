#ifndef CLI_RUN_OPTIONS_H
#define CLI_RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/options.h"
#include "base/err.h"
#include "base/limits.h"
#include "cli/command_unit/command_unit.h"
#include "devices/disk/disk_seed.h"
#include "devices/disk/disk_set.h"
#include "host/domain/domain.h"
#include "host/net/net_spec.h"
#include "recording/places/snapshot_list.h"
#include "vmm/points/clock.h"

/* The command line of `dittovm run`, and what is to be run: whether a command line says so or a
 * domain. Strings belong to argv, or to `domain`. To be released with run_options_free(). */
struct run_options {
    bool record, force, unsure, write_through, check_disk, quiet, json;
    char recording[4096]; /* -o, or made from the image's name */
    const char *kernel, *initrd, *append;
    const char *domain_name, *connect; /* --domain; libvirt's URI, or NULL */
    struct domain domain;              /* what that is; zeroes: none */
    char *joined;                      /* what `append` is then, where both say something */
    struct disk_wish disks[MAX_DISKS];
    unsigned disk_count;
    struct disk_seed seed; /* of cloud-init; its image becomes the last disk */
    bool wants_seed;
    struct net_spec nets[MAX_NICS]; /* of the machine's NICs; each has an address */
    unsigned net_count;
    /* --from: the recording, and the snapshot or number of a sync point in it to go on from ("":
     * the last sync point). No path: boot. */
    struct snapshot_place from;
    uint64_t memory;          /* bytes */
    uint64_t cpus, chaos;     /* chaos: seed, 0: none */
    bool crew;                /* several CPUs run at the same time */
    bool loose;               /* ... and nothing orders what they do to memory */
    struct command_unit unit; /* --root: its disk becomes the last one */
    uint64_t grace_ms, digest_s, checkpoint_s;
    bool reboots;    /* --on-reboot boot */
    bool rtc_now;    /* --rtc now; */
    uint64_t rtc_ns; /* or what the RTC is to say, ns since 1970 UTC; neither: as it is without */
    uint64_t slow;   /* how many times slower the machine's clock runs than the host's */
    const struct clock_ops *clock; /* NULL: the best one that this host has */
    /* Not an option: found out once it is clear that the machine runs here. May be NULL. */
    const char *cpu_doubt;
    const char *cpu_executes; /* doctor_hidden_instructions(), of one that is recorded; or NULL */
};

extern const struct option_entry run_entries[];
/* After an error nothing is to be released. */
int run_options_parse(struct run_options *o, int argc, char **argv, struct err *e);
void run_options_free(struct run_options *o);

/* With --domain (cmd_domain.c). Fill in what the command line does not say; libvirt is asked on
 * the user's host. */
int run_options_take_domain(struct run_options *o, struct err *e);
/* Say on stderr what was made of it. */
void run_options_show_domain(const struct run_options *o);
/* For the command inside an emulated host, which cannot ask: the domain. */
int run_options_hand_in(const struct run_options *o, struct err *e);

#endif
