#ifndef HOST_EMULATED_OPTIONS_H
#define HOST_EMULATED_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

/* What emulated_run() is told of the host to start. */

struct emulated_forward {
    uint16_t outer, inner; /* 127.0.0.1:outer here leads to port `inner` of the emulated host */
};

#define EMULATED_PATH_MAX 4096u

struct emulated_options {
    const char *datadir; /* holds khost-vmlinux and khost-initrd.cpio */
    const char *qemu;    /* emulated_qemu() */
    unsigned memory_mib; /* of the emulated host: the guest's memory and about 1 GiB for itself */
    unsigned tsc_khz;    /* emulated_tsc_khz(); 0: the emulated kernel measures it */
    /*
     * Directories the command may write to; the working directory always is one. The rest of the
     * file tree is read-only inside, but for /tmp, where writes work and are lost at the end.
     */
    const char *const *rw_dirs;
    size_t rw_dir_count;
    const struct emulated_forward *forwards;
    size_t forward_count;
    /* With `gdb`, the command finds a virtio-serial port KHOST_GDB_PORT_NAME, which QEMU connects
     * to whoever connects to gdb_fd: a listening socket, the caller's. */
    bool gdb;
    int gdb_fd;
    /* The command finds each of these streams, the caller's, as the port KHOST_NET_PORT_NAME of its
     * number. */
    unsigned net_count;
    int net_fds[MAX_NICS];
    /* With `control` this one, too, as the port KHOST_CONTROL_PORT_NAME. */
    bool control;
    int control_fd;
};

/* Set in the command's environment, so that it can tell that it runs inside. */
#define EMULATED_INSIDE_VARIABLE "DITTO_INSIDE"

/*
 * Shows the emulated host's console on stderr when set in our environment. The console goes to the
 * same place as the command's own messages; it is for looking into failures only.
 */
#define EMULATED_DEBUG_VARIABLE "DITTO_KHOST_DEBUG"

#endif
