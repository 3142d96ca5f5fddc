#ifndef HOST_HOST_CONTROL_H
#define HOST_HOST_CONTROL_H

#include "host/control/control_server.h"

/* Set for a command in the emulated host whose control socket is served outside. */
#define HOST_CONTROL_VARIABLE "DITTO_CONTROL"

/* The control socket of a recording that is made here; inside the emulated host, where it has been
 * opened outside, the port that leads there. */
struct host_control {
    struct control_server *server; /* NULL: it is served elsewhere, or not at all */
    int fd;                        /* the machine's end; -1: nobody can tell it anything */
};

/* That there can be none is said on stderr: the machine runs without. */
void host_control_open(struct host_control *c, const char *recording);
/* fd stays: it is whoever's took it. */
void host_control_close(struct host_control *c);

#endif
