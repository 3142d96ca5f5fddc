#ifndef HOST_CONTROL_CONTROL_SERVER_H
#define HOST_CONTROL_CONTROL_SERVER_H

#include "base/err.h"

/*
 * Stands between whoever connects to a recording's control socket and its machine: a thread that
 * takes lines of clients, hands on what is a request (base/control_request.h), and gives each the
 * answers to its own. Clients are hostile: nothing of theirs but a request reaches the machine, and
 * who sends half a line, or does not read, is waited for some seconds and then hung up on. One of
 * another user's is refused.
 */
struct control_server;

/* Listen beside `recording`. *machine: the end of a stream of requests with ids that leads to the
 * machine (vmm/machine/control.h), the caller's. NULL, with *e: there can be no control socket. */
struct control_server *control_server_start(const char *recording, int *machine, struct err *e);
/* Hang up on everybody; the socket is gone. NULL: nothing. */
void control_server_stop(struct control_server *s);

#endif
