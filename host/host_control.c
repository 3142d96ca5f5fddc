#include "host/host_control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-tools/khost/protocol.h"
#include "host/emulated_options.h"
#include "host/emulated_port.h"

static int open_port(struct err *e)
{
    char device[EMULATED_PORT_MAX];

    if (!emulated_port_find(KHOST_CONTROL_PORT_NAME, device))
        return err_set(e, STATUS_ERROR, "the emulated KVM host has no port for it");
    const int fd = open(device, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    return fd < 0 ? err_set(e, STATUS_ERROR, "%s: %s", device, strerror(errno)) : fd;
}

void host_control_open(struct host_control *c, const char *recording)
{
    struct err e = {0};

    *c = (struct host_control){.fd = -1};
    if (!getenv(EMULATED_INSIDE_VARIABLE))
        c->server = control_server_start(recording, &c->fd, &e);
    else if (getenv(HOST_CONTROL_VARIABLE))
        c->fd = open_port(&e);
    if (e.text[0])
        fprintf(stderr, "dittovm: there is no control socket for dittovm ctl: %s\n", e.text);
}

void host_control_close(struct host_control *c)
{
    control_server_stop(c->server);
    c->server = NULL;
}
