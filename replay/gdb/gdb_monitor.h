#ifndef REPLAY_GDB_GDB_MONITOR_H
#define REPLAY_GDB_GDB_MONITOR_H

#include "replay/timeline.h"

/* Inside of `monitor COMMAND`: gdb_monitor.c, and of its info: gdb_info.c. */

/* `info WHAT`: append the text; -1: there is no such thing. */
int gdb_monitor_info(struct timeline *t, const char *what, struct bytes *out, struct err *e);

#endif
