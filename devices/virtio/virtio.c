#include "devices/virtio/virtio.h"

#include <assert.h>
#include <string.h>

#define STATE_VERSION 1

#define STATUS_FROM_DRIVER                                                                         \
    (VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_DRIVER_OK | VIRTIO_FEATURES_OK | VIRTIO_FAILED)

static void update_interrupt(struct virtio_device *vd)
{
    if (vd->interrupt)
        vd->interrupt(vd->transport, vd->isr != 0);
}

static void raise_interrupt(struct virtio_device *vd, uint8_t cause)
{
    vd->isr |= cause;
    update_interrupt(vd);
}

void virtio_reset(struct virtio_device *vd)
{
    vd->accepted = 0;
    vd->offered_select = vd->accepted_select = 0;
    vd->queue_select = 0;
    vd->status = 0;
    vd->isr = 0;
    vd->fault = NULL;
    for (unsigned i = 0; i < vd->kind->queues; i++)
        virtio_queue_reset(&vd->queue[i]);
    update_interrupt(vd);
    if (vd->kind->reset)
        vd->kind->reset(vd);
}

void virtio_init(struct virtio_device *vd, const struct device_ops *ops,
                 const struct virtio_kind *kind, struct dma *dma, uint64_t offered,
                 const uint8_t *config, size_t config_len)
{
    assert(kind->queues && kind->queues <= VIRTIO_MAX_QUEUES);
    assert(kind->queue_size && kind->queue_size <= VIRTIO_QUEUE_MAX_SIZE);
    *vd = (struct virtio_device){
        .device = {.ops = ops},
        .kind = kind,
        .dma = dma,
        .offered = offered | VIRTIO_F_VERSION_1 | VIRTIO_F_INDIRECT_DESC | VIRTIO_F_EVENT_IDX,
        .config = config,
        .config_len = config_len,
    };
    for (unsigned i = 0; i < kind->queues; i++) {
        vd->queue[i].max_size = kind->queue_size;
        virtio_queue_reset(&vd->queue[i]);
    }
}

bool virtio_is_live(const struct virtio_device *vd)
{
    return (vd->status & VIRTIO_DRIVER_OK) && !(vd->status & VIRTIO_NEEDS_RESET);
}

bool virtio_may_use_memory(const struct virtio_device *vd)
{
    return virtio_is_live(vd) && (!vd->is_master || vd->is_master(vd->transport));
}

int virtio_break(struct virtio_device *vd, const char *fault)
{
    if (!vd->fault)
        vd->fault = fault;
    vd->status |= VIRTIO_NEEDS_RESET;
    if (vd->status & VIRTIO_DRIVER_OK)
        raise_interrupt(vd, VIRTIO_ISR_CONFIG);
    return -1;
}

void virtio_config_changed(struct virtio_device *vd)
{
    vd->generation++;
    if (vd->status & VIRTIO_DRIVER_OK)
        raise_interrupt(vd, VIRTIO_ISR_CONFIG);
}

bool virtio_pop(struct virtio_device *vd, unsigned queue, struct virtio_chain *chain)
{
    const char *fault;
    int got;

    assert(queue < vd->kind->queues);
    if (!virtio_is_live(vd) || !vd->queue[queue].enabled)
        return false;
    got = virtio_queue_pop(&vd->queue[queue], vd->dma, vd->accepted & VIRTIO_F_INDIRECT_DESC, chain,
                           &fault);
    if (got < 0)
        virtio_break(vd, fault);
    return got > 0;
}

unsigned virtio_available(struct virtio_device *vd, unsigned queue)
{
    assert(queue < vd->kind->queues);
    return virtio_is_live(vd) && vd->queue[queue].enabled
               ? virtio_queue_available(&vd->queue[queue], vd->dma)
               : 0;
}

void virtio_push(struct virtio_device *vd, unsigned queue, const struct virtio_chain *chain,
                 uint32_t written)
{
    if (virtio_queue_push(&vd->queue[queue], vd->dma, chain->head, written) < 0)
        virtio_break(vd, "used ring is not in RAM");
}

void virtio_publish(struct virtio_device *vd, unsigned queue)
{
    int wanted;

    if (!virtio_is_live(vd))
        return;
    wanted = virtio_queue_publish(&vd->queue[queue], vd->dma, vd->accepted & VIRTIO_F_EVENT_IDX);
    if (wanted < 0)
        virtio_break(vd, "ring is not in RAM");
    else if (wanted)
        raise_interrupt(vd, VIRTIO_ISR_QUEUE);
}

void virtio_want_bell(struct virtio_device *vd, unsigned queue)
{
    if (virtio_is_live(vd) && (vd->accepted & VIRTIO_F_EVENT_IDX) &&
        virtio_queue_want_bell(&vd->queue[queue], vd->dma) < 0)
        virtio_break(vd, "used ring is not in RAM");
}

void virtio_serve(struct virtio_device *vd, unsigned queue,
                  int (*serve)(struct virtio_device *vd, const struct virtio_chain *chain,
                               uint32_t *written))
{
    struct virtio_chain chain;

    for (unsigned i = 0; i < vd->queue[queue].size && virtio_pop(vd, queue, &chain); i++) {
        uint32_t written = 0;

        if (serve(vd, &chain, &written) < 0)
            return;
        virtio_push(vd, queue, &chain, written);
    }
    virtio_publish(vd, queue);
    virtio_want_bell(vd, queue);
}

int virtio_read(struct virtio_device *vd, const struct virtio_chain *chain, uint64_t offset,
                void *data, size_t len)
{
    if (virtio_chain_read(chain, vd->dma, offset, data, len) < 0)
        return virtio_break(vd, "buffer is not in RAM");
    return 0;
}

int virtio_write(struct virtio_device *vd, const struct virtio_chain *chain, uint64_t offset,
                 const void *data, size_t len)
{
    if (virtio_chain_write(chain, vd->dma, offset, data, len) < 0)
        return virtio_break(vd, "buffer is not in RAM");
    return 0;
}

/* Section 2.2: a subset of what was offered, and never the legacy interface. */
static bool features_possible(const struct virtio_device *vd)
{
    return !(vd->accepted & ~vd->offered) && (vd->accepted & VIRTIO_F_VERSION_1);
}

void virtio_set_status(struct virtio_device *vd, uint8_t status)
{
    uint8_t set = status & STATUS_FROM_DRIVER & (uint8_t)~vd->status;

    if (!status) {
        virtio_reset(vd);
        return;
    }
    if ((set & VIRTIO_FEATURES_OK) && !features_possible(vd))
        set &= (uint8_t)~VIRTIO_FEATURES_OK;
    /* A driver that goes on without agreement on features must not drive the device. */
    if (!((vd->status | set) & VIRTIO_FEATURES_OK))
        set &= (uint8_t)~VIRTIO_DRIVER_OK;
    /* Bits only accumulate until the reset: the negotiated features cannot be taken back. */
    vd->status |= set;
    if ((set & VIRTIO_DRIVER_OK) && (vd->status & VIRTIO_NEEDS_RESET))
        raise_interrupt(vd, VIRTIO_ISR_CONFIG);
}

uint32_t virtio_offered(const struct virtio_device *vd)
{
    return vd->offered_select < 2 ? (uint32_t)(vd->offered >> (32 * vd->offered_select)) : 0;
}

void virtio_accept(struct virtio_device *vd, uint32_t half)
{
    unsigned shift = 32 * (vd->accepted_select & 1);

    if (vd->accepted_select > 1 || (vd->status & VIRTIO_FEATURES_OK))
        return;
    vd->accepted = (vd->accepted & ~(0xffffffffull << shift)) | (uint64_t)half << shift;
}

struct virtio_queue *virtio_selected_queue(struct virtio_device *vd)
{
    return vd->queue_select < vd->kind->queues ? &vd->queue[vd->queue_select] : NULL;
}

void virtio_set_queue_size(struct virtio_device *vd, uint16_t size)
{
    struct virtio_queue *q = virtio_selected_queue(vd);

    /* The check comes when the queue is enabled. */
    if (q && !q->enabled)
        q->size = size;
}

void virtio_enable_queue(struct virtio_device *vd)
{
    struct virtio_queue *q = virtio_selected_queue(vd);
    const char *fault;

    if (!q || q->enabled)
        return;
    fault = virtio_queue_check(q);
    if (fault)
        virtio_break(vd, fault);
    else
        q->enabled = true;
}

void virtio_notify(struct virtio_device *vd, unsigned queue)
{
    if (queue < vd->kind->queues && vd->queue[queue].enabled && virtio_is_live(vd))
        vd->kind->notify(vd, queue);
}

uint8_t virtio_take_isr(struct virtio_device *vd)
{
    uint8_t isr = vd->isr;

    vd->isr = 0;
    update_interrupt(vd);
    return isr;
}

void virtio_save(const struct device *device, struct bytes *out)
{
    const struct virtio_device *vd = (const struct virtio_device *)device;

    bytes_put_u8(out, STATE_VERSION);
    bytes_put_u8(out, (uint8_t)vd->kind->id);
    bytes_put_u64(out, vd->offered);
    bytes_put_u64(out, vd->accepted);
    bytes_put_u32(out, vd->offered_select);
    bytes_put_u32(out, vd->accepted_select);
    bytes_put_u16(out, vd->queue_select);
    bytes_put_u8(out, vd->status);
    bytes_put_u8(out, vd->isr);
    bytes_put_u8(out, vd->generation);
    for (unsigned i = 0; i < vd->kind->queues; i++) {
        const struct virtio_queue *q = &vd->queue[i];

        bytes_put_u8(out, q->enabled);
        bytes_put_u16(out, q->size);
        bytes_put_u64(out, q->desc);
        bytes_put_u64(out, q->avail);
        bytes_put_u64(out, q->used);
        bytes_put_u16(out, q->next_avail);
        bytes_put_u16(out, q->next_used);
        bytes_put_u16(out, q->published);
    }
}

static int restore_queue(struct virtio_queue *q, struct cursor *in)
{
    q->enabled = cursor_u8(in) & 1;
    q->size = cursor_u16(in);
    q->desc = cursor_u64(in);
    q->avail = cursor_u64(in);
    q->used = cursor_u64(in);
    q->next_avail = cursor_u16(in);
    q->next_used = cursor_u16(in);
    q->published = cursor_u16(in);
    return in->bad || (q->enabled && virtio_queue_check(q)) ? -1 : 0;
}

/* Of devices before format 25: they did not offer it, and their drivers have not accepted it. */
static bool offer_as_saved(struct virtio_device *vd, uint64_t offered)
{
    if ((offered | VIRTIO_F_EVENT_IDX) != (vd->offered | VIRTIO_F_EVENT_IDX))
        return false;
    vd->offered = offered;
    return true;
}

static int restore_all(struct virtio_device *vd, struct cursor *in)
{
    if (cursor_u8(in) != STATE_VERSION || cursor_u8(in) != vd->kind->id ||
        !offer_as_saved(vd, cursor_u64(in)))
        return -1;
    vd->accepted = cursor_u64(in);
    vd->offered_select = cursor_u32(in);
    vd->accepted_select = cursor_u32(in);
    vd->queue_select = cursor_u16(in);
    vd->status = cursor_u8(in) & (STATUS_FROM_DRIVER | VIRTIO_NEEDS_RESET);
    vd->isr = cursor_u8(in) & (VIRTIO_ISR_QUEUE | VIRTIO_ISR_CONFIG);
    vd->generation = cursor_u8(in);
    vd->fault = vd->status & VIRTIO_NEEDS_RESET ? "broken when its state was saved" : NULL;
    for (unsigned i = 0; i < vd->kind->queues; i++)
        if (restore_queue(&vd->queue[i], in) < 0)
            return -1;
    if ((vd->status & VIRTIO_FEATURES_OK) && !features_possible(vd))
        return -1;
    if ((vd->status & VIRTIO_DRIVER_OK) && !(vd->status & VIRTIO_FEATURES_OK))
        return -1;
    return 0;
}

int virtio_restore(struct device *device, struct cursor *in)
{
    struct virtio_device *vd = (struct virtio_device *)device;

    virtio_reset(vd);
    if (restore_all(vd, in) < 0) {
        virtio_reset(vd);
        return -1;
    }
    update_interrupt(vd);
    return 0;
}
