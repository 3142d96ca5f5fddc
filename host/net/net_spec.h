#ifndef HOST_NET_NET_SPEC_H
#define HOST_NET_NET_SPEC_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mac.h"

/*
 * What a NIC of the guest's is connected to, as --net says it: a backend and its settings,
 * KIND[:ADDRESS][,SETTING]...
 *
 *   user                      NAT without rights (backend_user.c)
 *   passt                     the program of this name
 *   stream:unix:PATH          a peer that frames its frames as QEMU's stream network does
 *   stream:tcp:HOST:PORT
 *   tap:NAME                  a device of this host's, for root
 *   bridge:NAME               a bridge of this host's, for root
 *   none                      nothing
 *
 * Settings: mac=MAC of all; of user hostfwd=tcp|udp:[ADDR]:PORT-[ADDR]:PORT, any number of times,
 * and restrict=on; of stream, server: wait for the peer there.
 */
#define NET_FORWARDS_MAX 32u
#define NET_ADDRESS_MAX  256u

struct net_forward {
    bool udp;
    struct in_addr host, guest; /* guest 0.0.0.0: the one that has the first address */
    uint16_t host_port, guest_port;
};

enum net_kind { NET_NONE, NET_USER, NET_PASST, NET_STREAM, NET_TAP, NET_BRIDGE, NET_KINDS };

struct net_spec {
    enum net_kind kind;
    char address[NET_ADDRESS_MAX]; /* what follows KIND: */
    bool server, restricted;
    struct net_forward forwards[NET_FORWARDS_MAX];
    unsigned forward_count;
    uint8_t mac[MAC_BYTES];
    bool has_mac;
};

/* -1, a usage error, when `text` is not such a text. */
int net_spec_parse(struct net_spec *spec, const char *text, struct err *e);

/* "none", "user", ...: static. */
const char *net_spec_kind(const struct net_spec *spec);

#endif
