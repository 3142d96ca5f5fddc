#ifndef VMM_MACHINE_NET_WIRE_H
#define VMM_MACHINE_NET_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

/*
 * The wire that a NIC of the guest's is plugged into: a stream (a socket, or a port of the emulated
 * host) on which each frame has its length in front, 32 bits in network byte order, as QEMU's
 * stream and socket networks have it. What is at its other end is host/net/'s affair.
 *
 * A thread reads frames and writes what the stream did not take at once, so that the vCPU thread
 * never waits. Where the peer does not read, net_wire_takes() becomes false, and where the guest
 * does not, the peer is not read from. A peer that ends leaves a wire that swallows all.
 */
struct net_wire;

/* Takes fd over, also when it fails: NULL, out of memory. */
struct net_wire *net_wire_open(int fd);
void net_wire_close(struct net_wire *w); /* NULL is allowed */

/* From here on frames are read, and notify(opaque) is called on the wire's thread when there is one
 * where there was none, or when the wire takes frames again. Until net_wire_ignore(), behind which
 * it is called no more. */
void net_wire_listen(struct net_wire *w, void (*notify)(void *opaque), void *opaque);
void net_wire_ignore(struct net_wire *w);

/* The length of the first frame that has come in, of 1 to FRAME_MAX bytes; 0: none has. */
size_t net_wire_peek(struct net_wire *w, uint8_t frame[FRAME_MAX]);
bool net_wire_has_frame(struct net_wire *w);
void net_wire_consume(struct net_wire *w); /* that frame */

/* Whether it takes a frame, of any length. */
bool net_wire_takes(struct net_wire *w);
/* len: 1 to FRAME_MAX. A wire that takes none loses it. */
void net_wire_send(struct net_wire *w, const uint8_t *frame, size_t len);

#endif
