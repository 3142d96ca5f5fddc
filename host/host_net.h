#ifndef HOST_HOST_NET_H
#define HOST_HOST_NET_H

#include "host/net/net_spec.h"

/*
 * The wire of NIC number `index` of a machine that runs here, to what `spec` says; inside the
 * emulated host, where that has been opened outside, the port that leads there. 0 with *fd the
 * caller's, or -1: it is plugged in nowhere. -1 with *e.
 */
int host_net_open(const struct net_spec *spec, unsigned index, int *fd, struct err *e);

#endif
