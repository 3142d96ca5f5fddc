#include "host/host_net.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-tools/khost/protocol.h"
#include "host/emulated_options.h"
#include "host/emulated_port.h"
#include "host/net/net_backend.h"

static int open_port(unsigned index, struct err *e)
{
    char name[32], device[EMULATED_PORT_MAX];

    snprintf(name, sizeof name, KHOST_NET_PORT_NAME, index);
    if (!emulated_port_find(name, device))
        return err_set(e, STATUS_ERROR, "the emulated KVM host has no port for NIC %u", index);
    const int fd = open(device, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    return fd < 0 ? err_set(e, STATUS_ERROR, "%s: %s", device, strerror(errno)) : fd;
}

int host_net_open(const struct net_spec *spec, unsigned index, int *fd, struct err *e)
{
    *fd = -1;
    if (spec->kind == NET_NONE)
        return 0;
    *fd = getenv(EMULATED_INSIDE_VARIABLE) ? open_port(index, e) : net_backend_open(spec, e);
    return *fd < 0 ? -1 : 0;
}
