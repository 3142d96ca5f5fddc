#ifndef HOST_HOST_H
#define HOST_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "host/net/net_spec.h"
#include "vmm/kvm/frame_rf.h"

/* Where a command runs: on this machine's KVM, or in an emulated KVM host. */
enum host_choice {
    HOST_AUTO,     /* native where the CPU offers VMX or SVM, emulated elsewhere */
    HOST_NATIVE,   /* this machine's /dev/kvm */
    HOST_EMULATED, /* the emulated KVM host (host/emulated.h) */
    HOST_VMX,      /* the emulated Intel host (host/vmx.h) */
};

struct invocation {
    const char *self; /* absolute path of our own executable */
    char **argv;      /* the whole command line, NULL-terminated, to be run again elsewhere */
    enum host_choice host;
};

/* What a command needs of the host it runs on. */
struct host_needs {
    uint64_t guest_memory;                  /* bytes */
    const char *write_paths[2 + MAX_DISKS]; /* files to be made or changed: their directories become
                                               writable */
    unsigned write_path_count;
    const char *recording;       /* to be made; NULL: none */
    const char *added_to;        /* a finished one that may be added to; NULL: none */
    enum frame_rf frame_rf;      /* of what is replayed; FRAME_RF_UNKNOWN: nothing is */
    bool in_progress;            /* one that is read is still being recorded */
    const char *gdb;             /* where gdb is waited for (host/gdb_listen.h); NULL: nowhere */
    const struct net_spec *nets; /* what NICs are connected to, of a machine that has some */
    unsigned net_count;
    /* Called before the command is run in the emulated host: to make what it is to find there.
     * NULL: nothing. */
    int (*hand_in)(void *handed, struct err *e);
    void *handed;
};

/*
 * Decide where the command runs. Returns false when it is to go on right here. Otherwise it has
 * been run in the emulated host, or could not be: the exit status is in *status (and *e is set if
 * it is not the command's own).
 */
bool host_redirect(const struct invocation *inv, const struct host_needs *needs, int *status,
                   struct err *e);

/* Whether this machine's own KVM is what HOST_AUTO takes. */
bool host_has_kvm(void);

/* The directory of the emulated KVM host's kernel and initrd: $DITTO_DATADIR, beside the build, or
 * where they were installed. Valid until the next call. */
const char *host_data_dir(const struct invocation *inv);

#endif
