#include "devices/virtio/virtio_net.h"

#include <assert.h>
#include <string.h>

#include "devices/virtio/virtio_bytes.h"

/* The header, section 5.1.6: offsets. */
#define HEADER_FLAGS       0
#define HEADER_CSUM_START  6
#define HEADER_CSUM_OFFSET 8
#define HEADER_BUFFERS     10
#define HEADER_NEEDS_CSUM  1u
#define CHECKSUM_BYTES     2u

/* The Internet checksum (RFC 1071), in the byte order of the frame. */
static unsigned checksum(const uint8_t *data, size_t len)
{
    uint64_t sum = 0;

    for (size_t i = 0; i + 1 < len; i += 2)
        sum += (unsigned)data[i] << 8 | data[i + 1];
    if (len & 1)
        sum += (unsigned)data[len - 1] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return ~(unsigned)sum & 0xffff;
}

void virtio_net_finish(const uint8_t header[VIRTIO_NET_HEADER], uint8_t *frame, size_t len)
{
    const size_t start = get_le(header + HEADER_CSUM_START, 2);
    const size_t at = start + get_le(header + HEADER_CSUM_OFFSET, 2);

    if (!(header[HEADER_FLAGS] & HEADER_NEEDS_CSUM) || at + CHECKSUM_BYTES > len)
        return;
    /* The pseudo header's sum is there already. */
    unsigned sum = checksum(frame + start, len - start);
    if (!sum) /* for UDP 0 says that there is none; for TCP both are the same */
        sum = 0xffff;
    frame[at] = (uint8_t)(sum >> 8);
    frame[at + 1] = (uint8_t)sum;
}

/* ---- frames of the driver's ---- */

static int send_frame(struct virtio_net *net, const struct virtio_chain *chain)
{
    struct net_segment segment[VIRTIO_CHAIN_MAX];
    const uint64_t len = chain->out_len - VIRTIO_NET_HEADER;

    if (chain->out_len < VIRTIO_NET_HEADER)
        return virtio_break(&net->vd, "frame without a header");
    if (!len || len > FRAME_MAX) /* no link has such a frame */
        return 0;
    for (unsigned i = 0; i < chain->out_count; i++)
        segment[i] = (struct net_segment){chain->segment[i].gpa, chain->segment[i].len};
    net->link->begin(net->link, (uint32_t)len, segment, chain->out_count);
    if (virtio_read(&net->vd, chain, 0, net->frame, VIRTIO_NET_HEADER + (size_t)len) < 0)
        return -1;
    virtio_net_finish(net->frame, net->frame + VIRTIO_NET_HEADER, (size_t)len);
    net->link->send(net->link, net->frame + VIRTIO_NET_HEADER, (size_t)len);
    return 0;
}

bool virtio_net_has_to_send(struct virtio_net *net)
{
    return virtio_available(&net->vd, VIRTIO_NET_SENDS) > 0;
}

void virtio_net_send(struct virtio_net *net)
{
    struct virtio_device *vd = &net->vd;
    struct virtio_chain chain;

    for (unsigned i = 0; i < vd->queue[VIRTIO_NET_SENDS].size; i++) {
        if (!virtio_net_has_to_send(net) || !net->link->takes(net->link) ||
            !virtio_pop(vd, VIRTIO_NET_SENDS, &chain))
            break;
        if (send_frame(net, &chain) < 0)
            return;
        virtio_push(vd, VIRTIO_NET_SENDS, &chain, 0);
    }
    virtio_publish(vd, VIRTIO_NET_SENDS);
    virtio_want_bell(vd, VIRTIO_NET_SENDS);
}

/* ---- frames for the driver ---- */

static bool is_driven(const struct virtio_net *net)
{
    return virtio_is_live(&net->vd) && net->vd.queue[VIRTIO_NET_RECEIVES].enabled;
}

bool virtio_net_can_receive(struct virtio_net *net)
{
    return !is_driven(net) || virtio_available(&net->vd, VIRTIO_NET_RECEIVES) > 0;
}

/* How many of the driver's next buffers len bytes take; 0: there are not enough, or one cannot hold
 * them and more than one may not be used. They stay the driver's. */
static unsigned count_buffers(struct virtio_net *net, size_t len)
{
    const bool merges = net->vd.accepted & VIRTIO_NET_F_MRG_RXBUF;
    struct virtio_queue *q = &net->vd.queue[VIRTIO_NET_RECEIVES];
    const uint16_t first = q->next_avail;
    struct virtio_chain chain;
    uint64_t room = 0;
    unsigned count = 0;

    while (room < len && count < (merges ? q->size : 1u) &&
           virtio_pop(&net->vd, VIRTIO_NET_RECEIVES, &chain)) {
        room += chain.in_len;
        count++;
    }
    q->next_avail = first;
    return room < len ? 0 : count;
}

/* Section 5.1.6.4: the frame and its header lie in `count` buffers, one after another. */
static void fill_buffers(struct virtio_net *net, size_t len, unsigned count)
{
    struct virtio_device *vd = &net->vd;
    struct virtio_chain chain;
    uint16_t heads[VIRTIO_QUEUE_MAX_SIZE];
    uint32_t written[VIRTIO_QUEUE_MAX_SIZE];
    size_t done = 0;

    assert(count <= VIRTIO_QUEUE_MAX_SIZE);
    for (unsigned i = 0; i < count; i++) {
        if (!virtio_pop(vd, VIRTIO_NET_RECEIVES, &chain))
            return;
        const size_t left = len - done, n = chain.in_len < left ? (size_t)chain.in_len : left;
        if (n && virtio_write(vd, &chain, 0, net->frame + done, n) < 0)
            return;
        heads[i] = chain.head;
        written[i] = (uint32_t)n;
        done += n;
    }
    for (unsigned i = 0; i < count; i++) {
        chain.head = heads[i];
        virtio_push(vd, VIRTIO_NET_RECEIVES, &chain, written[i]);
    }
    virtio_publish(vd, VIRTIO_NET_RECEIVES);
    if (!virtio_available(vd,
                          VIRTIO_NET_RECEIVES)) /* more of them need no bell: they are looked at */
        virtio_want_bell(vd, VIRTIO_NET_RECEIVES);
}

enum virtio_net_receipt virtio_net_receive(struct virtio_net *net, const uint8_t *frame, size_t len)
{
    assert(len >= 1 && len <= FRAME_MAX);
    if (!is_driven(net))
        return NET_DROPPED;
    if (!virtio_available(&net->vd, VIRTIO_NET_RECEIVES))
        return NET_NO_BUFFERS;
    const unsigned count = count_buffers(net, VIRTIO_NET_HEADER + len);
    if (count || !is_driven(net)) /* who follows the device has to see it break, too */
        net->link->begin(net->link, (uint32_t)len, NULL, 0);
    if (!count)
        return NET_DROPPED;
    memset(net->frame, 0, VIRTIO_NET_HEADER);
    put_le(net->frame + HEADER_BUFFERS, 2, count);
    memcpy(net->frame + VIRTIO_NET_HEADER, frame, len);
    fill_buffers(net, VIRTIO_NET_HEADER + len, count);
    return NET_RECEIVED;
}

/* ---- the device ---- */

static void notify(struct virtio_device *vd, unsigned queue)
{
    if (queue == VIRTIO_NET_SENDS)
        virtio_net_send((struct virtio_net *)vd);
}

static const struct virtio_kind kind = {
    .id = VIRTIO_ID_NET,
    .pci_class = 0x02, /* network, Ethernet */
    .queues = VIRTIO_NET_QUEUES,
    .queue_size = 256,
    .notify = notify,
};

static const struct device_ops ops = {
    .name = "virtio-net",
    .save = virtio_save,
    .restore = virtio_restore,
};

void virtio_net_init(struct virtio_net *net, struct dma *dma, struct net_link *link,
                     const uint8_t mac[MAC_BYTES])
{
    memset(net, 0, sizeof *net);
    net->link = link;
    memcpy(net->config, mac, MAC_BYTES);
    virtio_init(&net->vd, &ops, &kind, dma,
                VIRTIO_NET_F_CSUM | VIRTIO_NET_F_MAC | VIRTIO_NET_F_MRG_RXBUF, net->config,
                sizeof net->config);
}
