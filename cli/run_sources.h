#ifndef CLI_RUN_SOURCES_H
#define CLI_RUN_SOURCES_H

#include <signal.h>
#include <stdbool.h>

#include "boot/diskimage/diskimage.h"
#include "boot/diskimage/diskimage_handed.h"
#include "cli/run_options.h"
#include "devices/disk/disk_set.h"

/* Where a machine comes from: kernel, initrd and command line (from files, or found inside the disk
 * image) and its disks. Everything here is owned. */
struct run_sources {
    uint8_t *kernel, *initrd;
    size_t kernel_len, initrd_len;
    char *command_line;
    char description[512];
    struct disk_set disks;
    struct disk_boot boot; /* found inside the image, as long as it is not one of these */
    char handed[DISKIMAGE_HANDED_MAX]; /* the file that it was put into; "" */
    const struct run_options *options; /* the caller's */
    char root[ROOT_MADE_MAX];          /* what was made of a directory; "" */
    bool holds_signals;                /* ... during which this thread blocks those that stop it */
    sigset_t mask;                     /* what it blocked before */
};

/* Refuse early what cannot work: missing files, an output that exists. Changes nothing. *s begins
 * as zeroes, and keeps what was found on the way. */
int run_sources_check(struct run_sources *s, const struct run_options *o, struct err *e);
/* For the command inside an emulated host: what was found. */
int run_sources_hand_in(struct run_sources *s, struct err *e);
int run_sources_load(struct run_sources *s, const struct run_options *o, struct err *e);
/* Nothing is recorded after all: the seed's image, which would lie beside it, goes. */
void run_sources_drop_seed(const struct run_options *o);
/* Free kernel and initrd. */
void run_sources_drop_boot_files(struct run_sources *s);
void run_sources_free(struct run_sources *s);

#endif
