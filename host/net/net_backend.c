#include "host/net/net_backend.h"

#include <assert.h>

static const struct net_backend *const backends[NET_KINDS] = {
    [NET_USER] = &net_backend_user,     [NET_PASST] = &net_backend_passt,
    [NET_STREAM] = &net_backend_stream, [NET_TAP] = &net_backend_tap,
    [NET_BRIDGE] = &net_backend_bridge,
};

int net_backend_open(const struct net_spec *spec, struct err *e)
{
    assert(spec->kind < NET_KINDS && backends[spec->kind]);
    return backends[spec->kind]->open(spec, e);
}
