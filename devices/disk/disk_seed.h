#ifndef DEVICES_DISK_DISK_SEED_H
#define DEVICES_DISK_DISK_SEED_H

#include "base/err.h"

/*
 * What cloud-init finds in a machine that no cloud has made: an ISO 9660 image called "cidata" with
 * its user-data and meta-data (its data source NoCloud).
 */
#define SEED_KEYS_MAX 8u

struct disk_seed {
    const char *user_data;               /* a file; NULL: none is wanted but keys */
    const char *ssh_keys[SEED_KEYS_MAX]; /* files of public keys, for the default user */
    unsigned key_count;
};

/* Whether its files can be read and are what they should be, and there is a program that makes such
 * images. */
int disk_seed_check(const struct disk_seed *seed, struct err *e);
/* Make the image, a new file at `path`. */
int disk_seed_make(const struct disk_seed *seed, const char *path, struct err *e);

#endif
