#ifndef DEVICES_VIRTIO_NET_LINK_H
#define DEVICES_VIRTIO_NET_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What a NIC of the guest's is plugged into. A frame is one of Ethernet's, without its checksum, of
 * 1 to FRAME_MAX bytes (base/limits.h).
 */
struct net_segment {
    uint64_t gpa;
    uint32_t len;
};

struct net_link {
    /* A frame is to be sent: whether it takes one now, of any length. One that it does not take
     * stays in the driver's ring, and the guest's network waits until virtio_net_send() is called.
     */
    bool (*takes)(struct net_link *link);
    /* A frame of len bytes is about to be read from the driver's buffers, or written to them,
     * behind a header of VIRTIO_NET_HEADER bytes. segment: where both lie, of one that is sent;
     * else NULL. */
    void (*begin)(struct net_link *link, uint32_t len, const struct net_segment *segment,
                  unsigned count);
    /* The driver's frame. */
    void (*send)(struct net_link *link, const uint8_t *frame, size_t len);
};

#endif
