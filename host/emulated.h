#ifndef HOST_EMULATED_H
#define HOST_EMULATED_H

#include "base/err.h"
#include "host/emulated_options.h"

/*
 * The emulated KVM host: where the CPU offers no usable VMX or SVM, the same command runs inside a
 * stock Debian kernel on QEMU's emulated AMD CPU, over the same files and on the same terminal.
 * guest-tools/khost builds the two files it boots from and holds the agent inside;
 * guest-tools/khost/protocol.h is what both sides say to each other.
 */

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
