#ifndef HOST_EMULATED_ARGS_H
#define HOST_EMULATED_ARGS_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include "base/bytes.h"
#include "base/err.h"
#include "guest-tools/khost/protocol.h"
#include "host/emulated_options.h"

/* Pure functions of host/emulated.c: what QEMU is started with, and what the agent is asked to do.
 */

/* A growing list of strings it owns, ended by NULL, as exec wants it. */
struct string_list {
    char **items;
    size_t count;
};

/* Append a printf text; aborts when memory is exhausted. */
void string_list_add(struct string_list *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void string_list_free(struct string_list *l);

/*
 * Add an absolute path without symbolic links to the read-write directories, unless one of them
 * holds it already; the ones below it are dropped. -1 when there would be too many.
 */
int emulated_add_rw_dir(struct string_list *dirs, const char *path, struct err *e);

/* The descriptors QEMU inherits: port KHOST_PORT_CONTROL is this number, the others follow it. */
#define EMULATED_FIRST_PORT_FD 3
/* And behind them gdb's listening socket, a saved host (emulated_saved.h), the monitor that saves
 * one, the wires of NICs, and the machine's end of control, each if there is one. */
#define EMULATED_GDB_FD     (EMULATED_FIRST_PORT_FD + KHOST_PORT_GDB - KHOST_PORT_CONTROL)
#define EMULATED_STATE_FD   8
#define EMULATED_MONITOR_FD 9
#define EMULATED_NET_FD     10
#define EMULATED_CONTROL_FD (EMULATED_NET_FD + (int)MAX_NICS)
_Static_assert(EMULATED_STATE_FD == EMULATED_GDB_FD + 1 &&
                   EMULATED_NET_FD == EMULATED_MONITOR_FD + 1,
               "they follow each other");

/* So many directories can be shared read-write at least: with no more of them every host has the
 * same devices, as a saved one must. */
#define EMULATED_RW_DIRS_LEAST 3u

/* QEMU's argument vector. show_console: the console goes to QEMU's stdout, else nowhere. */
void emulated_qemu_args(const struct emulated_options *o, const struct string_list *rw_dirs,
                        bool show_console, struct string_list *out);

/* What the request (guest-tools/khost/protocol.h) says of the caller. */
struct emulated_request {
    uint8_t flags;
    uint16_t rows, columns;
    uid_t uid;
    gid_t gid;
    mode_t umask;
    struct timespec now;
    uint8_t seed[KHOST_SEED_BYTES];
    const gid_t *groups;
    size_t group_count;
    const char *cwd;
    char *const *rw_dirs, *const *env, *const *argv; /* NULL-terminated */
};

/*
 * Append the request with its length to *b, the environment with DITTO_INSIDE=1. -1 when it is
 * larger than KHOST_REQUEST_MAX.
 */
int emulated_encode_request(const struct emulated_request *r, struct bytes *b, struct err *e);

/*
 * The last lines of what QEMU printed as part of an error line: at most size - 1 bytes in out,
 * control characters blanked, line ends as "; ". Empty when nothing was printed.
 */
void emulated_quote(const char *text, size_t length, char *out, size_t size);

#endif
