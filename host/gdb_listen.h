#ifndef HOST_GDB_LISTEN_H
#define HOST_GDB_LISTEN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "host/emulated_port.h"

/*
 * Where gdb comes in: a socket on this machine only, or, inside the emulated KVM host, a
 * virtio-serial port that QEMU has connected to such a socket outside (host/host.c).
 */
#define GDB_DEFAULT_PORT "1234"

struct gdb_listener {
    int fd;                         /* listening socket; -1: the port is it */
    bool unlink;                    /* name is a socket that we made */
    char name[128];                 /* for gdb's "target remote": localhost:1234, or a path */
    char device[EMULATED_PORT_MAX]; /* of the port */
};

/* The name of the outer socket, in the environment of a command inside the emulated host. */
#define GDB_NAME_VARIABLE "DITTO_GDB_NAME"

/* where: a TCP port of the loopback interface in decimal, "0" for any, or "unix:PATH". */
int gdb_listen(struct gdb_listener *l, const char *where, struct err *e);

/*
 * What a command calls: gdb_listen(), or the port when it runs inside the emulated host; there
 * `where` has been obeyed outside. Tell the user l->name only now: until somebody listens inside, a
 * gdb would give up.
 */
int gdb_open(struct gdb_listener *l, const char *where, struct err *e);

/*
 * Wait for a client. Returns 0 and a descriptor for gdb_serve(), which the caller closes before it
 * waits for the next one; or 0 and -1 when *quit (NULL: never) became true. One client at a time;
 * the others wait.
 */
int gdb_accept(struct gdb_listener *l, const atomic_int *quit, int *client, struct err *e);

void gdb_listener_close(struct gdb_listener *l);

#endif
