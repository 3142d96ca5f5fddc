#ifndef HOST_NET_NET_BACKEND_H
#define HOST_NET_NET_BACKEND_H

#include "host/net/net_spec.h"

/*
 * What is at the other end of a NIC's wire (vmm/machine/net_wire.h, which says how frames lie on
 * it): a kind that --net names. It runs on the user's own host, also where the machine runs in the
 * emulated one, in a process of its own that ends with the wire.
 */
struct net_backend {
    /* A descriptor of the machine's end of the wire, a stream; -1 with what is wrong in *e. */
    int (*open)(const struct net_spec *spec, struct err *e);
};

extern const struct net_backend net_backend_user, net_backend_passt, net_backend_stream,
    net_backend_tap, net_backend_bridge;

/* Open what the spec says: a descriptor that the caller closes, or -1. Not for NET_NONE. */
int net_backend_open(const struct net_spec *spec, struct err *e);

#endif
