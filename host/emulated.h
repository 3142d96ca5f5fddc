#ifndef HOST_EMULATED_H
#define HOST_EMULATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The emulated KVM host: where the CPU offers no usable VMX or SVM, the same command runs inside a
 * stock Debian kernel on QEMU's emulated AMD CPU, over the same files and on the same terminal.
 * guest-tools/khost builds the two files it boots from and holds the agent inside;
 * guest-tools/khost/protocol.h is what both sides say to each other.
 */
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
};

/* Set in the command's environment, so that it can tell that it runs inside. */
#define EMULATED_INSIDE_VARIABLE "DITTO_INSIDE"

/*
 * Shows the emulated host's console on stderr when set in our environment. The console goes to the
 * same place as the command's own messages; it is for looking into failures only.
 */
#define EMULATED_DEBUG_VARIABLE "DITTO_KHOST_DEBUG"

/* The QEMU to run: the one that 'make khost-qemu' has put into datadir, its name in path, else the
 * one in PATH. */
const char *emulated_qemu(const char *datadir, char path[EMULATED_PATH_MAX]);

/* 0 when emulated_run() can be tried: QEMU and the two files exist; -1 with what to install. */
int emulated_available(const char *datadir, struct err *e);

/*
 * Run argv (argv[0]: absolute path of an executable) inside the emulated host with our environment,
 * user, umask, working directory, standard streams and terminal, and wait for it. SIGINT, SIGTERM,
 * SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2 and SIGWINCH are passed on while it runs.
 *
 * Returns the command's exit status, or 128 + the number of the signal that ended it (or ended the
 * start-up). Returns -1 with *e set when the emulated host could not be started or died: the exit
 * status for that is e->status. Everything the command wrote to files is visible when it returns.
 *
 * QEMU dies with the calling thread (PR_SET_PDEATHSIG): call it from the main one. Standard input
 * is read ahead, so what the command leaves unread is lost.
 */
int emulated_run(const struct emulated_options *o, char **argv, struct err *e);

#endif
