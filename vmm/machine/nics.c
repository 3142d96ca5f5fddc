#include "vmm/machine/nics.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

/* How many frames a NIC receives at one sync point: a ring's half, so that the driver can keep up.
 */
#define BATCH 128u

struct nic {
    struct net_link link;
    struct nics *nics;
    unsigned index;
    struct net_wire *wire; /* NULL: what is sent is lost */
    bool
        waits; /* frames may be in the ring that the wire did not take: no doorbell tells of them */
    uint8_t frame[FRAME_MAX];
};

static struct virtio_net *device_of(const struct nic *nic)
{
    return &nic->nics->pc->nics[nic->index].net;
}

static bool wire_takes(const struct nic *nic)
{
    return !nic->wire || net_wire_takes(nic->wire);
}

static bool link_takes(struct net_link *link)
{
    struct nic *nic = (struct nic *)link;

    if (wire_takes(nic))
        return true;
    nic->waits = true;
    recorder_frame_waits(nic->nics->recorder, nic->index, nic->nics->pc->time.now_ns);
    return false;
}

static void link_begin(struct net_link *link, uint32_t len, const struct net_segment *segment,
                       unsigned count)
{
    const struct nic *nic = (struct nic *)link;

    recorder_frame(nic->nics->recorder, nic->index, nic->nics->pc->time.now_ns, len, segment,
                   count);
}

static void link_send(struct net_link *link, const uint8_t *frame, size_t len)
{
    const struct nic *nic = (struct nic *)link;

    if (nic->wire)
        net_wire_send(nic->wire, frame, len);
}

/* Takes fd over. */
static int open_nic(struct nic *nic, int fd)
{
    nic->wire = fd < 0 ? NULL : net_wire_open(fd);
    return fd >= 0 && !nic->wire ? -1 : 0;
}

int nics_open(struct nics *nics, struct pc *pc, const struct nic_config *config, unsigned count,
              struct err *e)
{
    int rc = 0;

    assert(count <= MAX_NICS);
    *nics = (struct nics){.nic = calloc(count, sizeof *nics->nic), .pc = pc};
    if (nics->nic)
        nics->count = count;
    else
        rc = count ? -1 : 0;
    for (unsigned i = 0; i < nics->count; i++) {
        struct nic *nic = &nics->nic[i];
        nic->link = (struct net_link){.takes = link_takes, .begin = link_begin, .send = link_send};
        nic->nics = nics;
        nic->index = i;
        nic->waits = true; /* of a machine that goes on from a recording */
        rc = open_nic(nic, config[i].fd) < 0 ? -1 : rc;
    }
    return rc < 0 ? err_set(e, STATUS_ERROR, "out of memory") : 0;
}

void nics_close(struct nics *nics)
{
    for (unsigned i = 0; i < nics->count; i++)
        net_wire_close(nics->nic[i].wire);
    free(nics->nic);
    *nics = (struct nics){0};
}

struct net_link *nics_link(struct nics *nics, unsigned index)
{
    return &nics->nic[index].link;
}

void nics_listen(struct nics *nics, void (*notify)(void *opaque), void *opaque)
{
    for (unsigned i = 0; i < nics->count; i++)
        if (nics->nic[i].wire)
            net_wire_listen(nics->nic[i].wire, notify, opaque);
}

void nics_ignore(struct nics *nics)
{
    for (unsigned i = 0; i < nics->count; i++)
        if (nics->nic[i].wire)
            net_wire_ignore(nics->nic[i].wire);
}

static bool can_come_in(const struct nic *nic)
{
    struct virtio_net *net = device_of(nic);

    /* Where nobody drives it frames are lost. */
    return nic->wire && net_wire_has_frame(nic->wire) &&
           (!virtio_is_live(&net->vd) || virtio_may_use_memory(&net->vd)) &&
           virtio_net_can_receive(net);
}

static bool can_go_out(const struct nic *nic)
{
    struct virtio_net *net = device_of(nic);

    return nic->waits && virtio_may_use_memory(&net->vd) && virtio_net_has_to_send(net) &&
           wire_takes(nic);
}

bool nics_have_frames(struct nics *nics)
{
    for (unsigned i = 0; i < nics->count; i++) {
        const struct nic *nic = &nics->nic[i];
        if (virtio_is_live(&device_of(nic)->vd) && (can_come_in(nic) || can_go_out(nic)))
            return true;
    }
    return false;
}

static void receive(struct nic *nic)
{
    for (unsigned n = 0; n < BATCH && can_come_in(nic); n++) {
        const size_t len = net_wire_peek(nic->wire, nic->frame);
        if (virtio_net_receive(device_of(nic), nic->frame, len) == NET_NO_BUFFERS)
            return;
        net_wire_consume(nic->wire);
    }
}

void nics_exchange(struct nics *nics)
{
    for (unsigned i = 0; i < nics->count; i++) {
        struct nic *nic = &nics->nic[i];
        receive(nic);
        if (!can_go_out(nic))
            continue;
        nic->waits = false;
        recorder_frame_waits(nics->recorder, i, nics->pc->time.now_ns);
        virtio_net_send(device_of(nic));
    }
}
