#ifndef DEVICES_VIRTIO_VIRTIO_NET_H
#define DEVICES_VIRTIO_VIRTIO_NET_H

#include "base/limits.h"
#include "base/mac.h"
#include "devices/virtio/net_link.h"
#include "devices/virtio/virtio.h"

/*
 * The network device (Virtio 1.2, section 5.1): a queue for frames to the driver and one for its
 * own, no control queue. Checksums that the driver leaves to the device are put in before a frame
 * is sent; a received frame may take several of the driver's buffers.
 */
#define VIRTIO_NET_F_CSUM      (1ull << 0)
#define VIRTIO_NET_F_MAC       (1ull << 5)
#define VIRTIO_NET_F_MRG_RXBUF (1ull << 15)

#define VIRTIO_NET_HEADER       12u /* in front of each frame, section 5.1.6 */
#define VIRTIO_NET_CONFIG_BYTES 8u  /* MAC address and status */

enum { VIRTIO_NET_RECEIVES = 0, VIRTIO_NET_SENDS = 1, VIRTIO_NET_QUEUES = 2 };

struct virtio_net {
    struct virtio_device vd;
    struct net_link *link;
    uint8_t config[VIRTIO_NET_CONFIG_BYTES];
    uint8_t frame[VIRTIO_NET_HEADER + FRAME_MAX]; /* what is on its way, header included */
};

/* `link` stays the caller's and must outlive the device. */
void virtio_net_init(struct virtio_net *net, struct dma *dma, struct net_link *link,
                     const uint8_t mac[MAC_BYTES]);

/* A frame comes in, of at most FRAME_MAX bytes. */
enum virtio_net_receipt {
    NET_RECEIVED,
    NET_NO_BUFFERS, /* the driver has none for it now: nothing has happened */
    NET_DROPPED,    /* nobody drives the device, or what it has is too little for this one */
};
enum virtio_net_receipt virtio_net_receive(struct virtio_net *net, const uint8_t *frame,
                                           size_t len);
/* Whether it is worth trying: also a frame that would be dropped comes in. */
bool virtio_net_can_receive(struct virtio_net *net);

/* Send what the driver has made available, as long as the link takes it. Also the driver's
 * doorbell. */
void virtio_net_send(struct virtio_net *net);
/* Whether there is something to send. */
bool virtio_net_has_to_send(struct virtio_net *net);

/*
 * Do what a header asks for (section 5.1.6.2): put the checksum of the bytes from csum_start on to
 * csum_offset there. What does not lie in the frame is left alone. `frame` is what follows the
 * header.
 */
void virtio_net_finish(const uint8_t header[VIRTIO_NET_HEADER], uint8_t *frame, size_t len);

#endif
