#ifndef BOOT_ROOT_ROOT_H
#define BOOT_ROOT_ROOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * A directory of the host's as the root of a machine that runs one command: what is made of it
 * before the machine is. All is in a directory of its own: the disk (devices/disk/disk_tree.h), and
 * the initial ram disk.
 */
struct root_request {
    const char *directory;
    const char *kernel;   /* its path */
    const char *modules;  /* --modules; NULL: found */
    char *const *command; /* NULL-terminated, at least one word */
    bool network;         /* the machine has a NIC, and */
    bool user_net;        /* ... the first is one of --net user */
    bool quiet;           /* nothing is said of what the guest does not get */
    bool terminal;        /* the command gets one; of this size, 0: not known */
    unsigned rows, columns;
};

#define ROOT_MADE_MAX 64u /* of the directory's name */
#define ROOT_RAM_DISK "initrd"

/* The statuses that shells have for a command that cannot be run. */
#define STATUS_CANNOT_RUN 126
#define STATUS_NO_COMMAND 127

/* The newest kernel of a root, else of this machine: "newest" by its version. The path goes to
 * kernel[size]; -1: there is none. */
int root_find_kernel(const char *directory, char *kernel, size_t size, struct err *e);
/* Whether there is such a command there, as far as can be known from outside: else -1, and *e has
 * one of the statuses above. */
int root_check_command(const char *directory, const char *command, struct err *e);
/* -1: nothing stays. Else remove it with root_remove(), once what is in it is open. What is not as
 * it is in the directory is said on stderr. From when there is something to remove, this thread
 * blocks the stop signals (base/stop_signals.h): who calls it lets them in again. */
int root_make(const struct root_request *request, char made[ROOT_MADE_MAX], struct err *e);
void root_remove(const char *made);

#endif
