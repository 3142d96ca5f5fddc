#ifndef REPLAY_GDB_GDB_SERVER_H
#define REPLAY_GDB_GDB_SERVER_H

#include "replay/gdb/gdb_target.h"

/* How a session ended. */
enum gdb_end {
    GDB_DETACHED, /* the client said so */
    GDB_KILLED,   /* it said that the machine is to end */
    GDB_VANISHED, /* or damaged the connection beyond repair */
    GDB_QUIT,     /* target->quit */
};

/*
 * One session of a gdb that is connected to fd (a socket, or the port of gdb_accept(); made
 * non-blocking, and stays the caller's). Nothing that the client asks for changes the target but
 * resume(), monitor(), writes (that the target may refuse) and breakpoints; those left are taken
 * away at the end. SIGPIPE must be ignored. Returns an enum gdb_end, or -1 when the host refused
 * something before the session.
 */
int gdb_serve(struct gdb_target *t, int fd, struct err *e);

#endif
