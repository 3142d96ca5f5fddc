#ifndef HOST_EMULATED_RELAY_H
#define HOST_EMULATED_RELAY_H

#include <sys/types.h>

#include "host/emulated_args.h"

/* How the conversation with the emulated host ended. */
enum relay_end {
    RELAY_EXITED,      /* the command ended: status */
    RELAY_SIGNAL,      /* a signal came before the command was started, or behind its end while its
                          output waits: status is 128 + signal */
    RELAY_FAILED,      /* e says why */
    RELAY_NOT_STARTED, /* nothing was done, nothing read from standard input: it can be tried again
                        */
    RELAY_NOT_SAVED,   /* the same: the saved host ended before its agent answered */
    RELAY_SILENCE,     /* the control port closed or nobody answers: QEMU's own words are wanted */
};

/*
 * Wait for the agent, send it the request and relay the standard streams until the command has
 * ended. ports[]: our ends of the four sockets, in the order of the KHOST_PORT_ numbers, made
 * non-blocking here and left open. signals: signalfd of the signals to pass on (blocked by the
 * caller). saved: the host is a saved one, whose agent waits and has said so before it was saved;
 * it is asked again. host: the QEMU process; -1: not known. The agent must answer within
 * start_seconds, or later where others had the CPU meanwhile, and then never say nothing for
 * silent_seconds. r->now, rows and columns are filled in here, when it is sent. The terminal is raw
 * meanwhile where r->flags has KHOST_TTY_STDIO. On RELAY_SILENCE *e holds one clause without what
 * QEMU said.
 */
enum relay_end emulated_relay(const int ports[4], pid_t host, int signals,
                              const struct emulated_request *r, bool saved, unsigned start_seconds,
                              unsigned silent_seconds, int *status, struct err *e);

/* Size of the terminal on stdout; 0, 0 when it has none. */
void emulated_window_size(uint16_t *rows, uint16_t *columns);

#endif
