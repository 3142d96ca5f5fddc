#include "devices/virtio/virtio_queue.h"

#include <assert.h>
#include <limits.h>

#include "devices/virtio/virtio_bytes.h"

/* Layout of the rings, section 2.7. */
#define DESC_BYTES         16
#define DESC_NEXT          1
#define DESC_WRITE         2
#define DESC_INDIRECT      4
#define AVAIL_FLAGS        0
#define AVAIL_INDEX        2
#define AVAIL_RING         4
#define AVAIL_NO_INTERRUPT 1
#define USED_INDEX         2
#define USED_RING          4
#define USED_BYTES         8
#define EVENT_BYTES        2 /* behind each ring: the event index of its reader's */

struct descriptor {
    uint64_t gpa;
    uint32_t len;
    uint16_t flags;
    uint16_t next;
};

static int read_u16(struct dma *dma, uint64_t gpa, uint16_t *v)
{
    uint8_t raw[2];

    if (dma->peek(dma, gpa, raw, sizeof raw) < 0)
        return -1;
    *v = (uint16_t)get_le(raw, 2);
    return 0;
}

static struct descriptor decode(const uint8_t *raw)
{
    return (struct descriptor){
        .gpa = get_le(raw, 8),
        .len = (uint32_t)get_le(raw + 8, 4),
        .flags = (uint16_t)get_le(raw + 12, 2),
        .next = (uint16_t)get_le(raw + 14, 2),
    };
}

void virtio_queue_reset(struct virtio_queue *q)
{
    *q = (struct virtio_queue){.max_size = q->max_size, .size = q->max_size};
}

static bool wraps(uint64_t gpa, uint64_t len)
{
    return gpa > UINT64_MAX - len;
}

const char *virtio_queue_check(const struct virtio_queue *q)
{
    if (!q->size || q->size > q->max_size || (q->size & (q->size - 1)))
        return "queue size is no power of two in range";
    if (q->desc % 16 || q->avail % 2 || q->used % 4)
        return "ring address is not aligned";
    if (wraps(q->desc, DESC_BYTES * q->size) ||
        wraps(q->avail, AVAIL_RING + 2 * q->size + EVENT_BYTES) ||
        wraps(q->used, USED_RING + USED_BYTES * q->size + EVENT_BYTES))
        return "ring address wraps";
    return NULL;
}

static const char *add_segment(struct virtio_chain *chain, const struct descriptor *d)
{
    unsigned count = chain->out_count + chain->in_count;

    if (wraps(d->gpa, d->len))
        return "buffer address wraps";
    if (!(d->flags & DESC_WRITE) && chain->in_count)
        return "readable descriptor behind a writable one";
    /* Descriptors of no length mean nothing and take no place. */
    if (!d->len)
        return NULL;
    if (count == VIRTIO_CHAIN_MAX)
        return "too many descriptors in one buffer";
    chain->segment[count] = (struct virtio_segment){.gpa = d->gpa, .len = d->len};
    if (d->flags & DESC_WRITE) {
        chain->in_count++;
        chain->in_len += d->len;
    } else {
        chain->out_count++;
        chain->out_len += d->len;
    }
    return NULL;
}

/* Section 2.7.5.3: a table of descriptors of its own ends the chain. */
static const char *walk_indirect(struct dma *dma, const struct descriptor *table,
                                 struct virtio_chain *chain)
{
    uint8_t raw[VIRTIO_CHAIN_MAX * DESC_BYTES];
    unsigned count = table->len / DESC_BYTES;
    unsigned index = 0;

    if (!count || table->len % DESC_BYTES || count > VIRTIO_CHAIN_MAX)
        return "indirect table of impossible size";
    if (dma->peek(dma, table->gpa, raw, table->len) < 0)
        return "indirect table is not in RAM";
    for (unsigned seen = 0; seen < count; seen++) {
        struct descriptor d = decode(raw + (size_t)index * DESC_BYTES);
        const char *fault;

        if (d.flags & DESC_INDIRECT)
            return "indirect descriptor inside an indirect table";
        fault = add_segment(chain, &d);
        if (fault || !(d.flags & DESC_NEXT))
            return fault;
        if (d.next >= count)
            return "indirect descriptor index out of range";
        index = d.next;
    }
    return "loop in an indirect table";
}

static const char *walk_chain(const struct virtio_queue *q, struct dma *dma, bool indirect,
                              struct virtio_chain *chain)
{
    uint16_t index = chain->head;

    for (unsigned seen = 0; seen < q->size; seen++) {
        uint8_t raw[DESC_BYTES];
        struct descriptor d;
        const char *fault;

        if (index >= q->size)
            return "descriptor index out of range";
        if (dma->peek(dma, q->desc + (uint64_t)index * DESC_BYTES, raw, sizeof raw) < 0)
            return "descriptor table is not in RAM";
        d = decode(raw);
        if (d.flags & DESC_INDIRECT) {
            if (!indirect || (d.flags & DESC_NEXT))
                return "indirect descriptor where none may be";
            return walk_indirect(dma, &d, chain);
        }
        fault = add_segment(chain, &d);
        if (fault || !(d.flags & DESC_NEXT))
            return fault;
        index = d.next;
    }
    return "loop in a descriptor chain";
}

int virtio_queue_pop(struct virtio_queue *q, struct dma *dma, bool indirect,
                     struct virtio_chain *chain, const char **fault)
{
    uint16_t index;
    uint64_t slot = q->next_avail & (q->size - 1u);

    assert(q->enabled);
    chain->out_count = chain->in_count = 0;
    chain->out_len = chain->in_len = 0;
    *fault = "available ring is not in RAM";
    if (read_u16(dma, q->avail + AVAIL_INDEX, &index) < 0)
        return -1;
    if (index == q->next_avail)
        return 0;
    if ((uint16_t)(index - q->next_avail) > q->size) {
        *fault = "available index jumped";
        return -1;
    }
    if (read_u16(dma, q->avail + AVAIL_RING + 2 * slot, &chain->head) < 0)
        return -1;
    *fault = walk_chain(q, dma, indirect, chain);
    if (*fault)
        return -1;
    q->next_avail++;
    return 1;
}

unsigned virtio_queue_available(const struct virtio_queue *q, struct dma *dma)
{
    uint16_t index;

    if (read_u16(dma, q->avail + AVAIL_INDEX, &index) < 0 ||
        (uint16_t)(index - q->next_avail) > q->size)
        return UINT_MAX;
    return (uint16_t)(index - q->next_avail);
}

int virtio_queue_push(struct virtio_queue *q, struct dma *dma, uint16_t head, uint32_t written)
{
    uint64_t slot = q->next_used & (q->size - 1u);
    uint8_t raw[USED_BYTES];

    put_le(raw, 4, head);
    put_le(raw + 4, 4, written);
    if (dma->write(dma, q->used + USED_RING + USED_BYTES * slot, raw, sizeof raw) < 0)
        return -1;
    q->next_used++;
    return 0;
}

/* Whether the driver wants an interrupt for the buffers from `published` on; -1: not in RAM. */
static int wants_interrupt(const struct virtio_queue *q, struct dma *dma, bool event_index)
{
    uint16_t flags, event;

    if (!event_index)
        return read_u16(dma, q->avail + AVAIL_FLAGS, &flags) < 0 ? -1
                                                                 : !(flags & AVAIL_NO_INTERRUPT);
    if (read_u16(dma, q->avail + AVAIL_RING + 2 * (uint64_t)q->size, &event) < 0)
        return -1;
    return (uint16_t)(q->next_used - event - 1) < (uint16_t)(q->next_used - q->published);
}

int virtio_queue_publish(struct virtio_queue *q, struct dma *dma, bool event_index)
{
    uint8_t raw[2];

    if (q->next_used == q->published)
        return 0;
    put_le(raw, 2, q->next_used);
    if (dma->write(dma, q->used + USED_INDEX, raw, sizeof raw) < 0)
        return -1;
    const int wanted = wants_interrupt(q, dma, event_index);
    q->published = q->next_used;
    return wanted;
}

int virtio_queue_want_bell(struct virtio_queue *q, struct dma *dma)
{
    const uint64_t at = q->used + USED_RING + USED_BYTES * (uint64_t)q->size;
    uint8_t raw[EVENT_BYTES];
    uint16_t event;

    if (read_u16(dma, at, &event) < 0)
        return -1;
    if (event == q->next_avail)
        return 0;
    put_le(raw, 2, q->next_avail);
    return dma->write(dma, at, raw, sizeof raw);
}

/* Visit the pieces of [offset, offset + len) of `count` segments; reads when `out` is NULL. */
static int transfer(const struct virtio_segment *segment, unsigned count, struct dma *dma,
                    uint64_t offset, uint8_t *in, const uint8_t *out, size_t len)
{
    for (unsigned i = 0; i < count && len; i++) {
        uint64_t room = segment[i].len;
        uint64_t gpa = segment[i].gpa + offset;
        size_t n;

        if (offset >= room) {
            offset -= room;
            continue;
        }
        n = room - offset < len ? (size_t)(room - offset) : len;
        if (out ? dma->write(dma, gpa, out, n) < 0 : dma->read(dma, gpa, in, n) < 0)
            return -1;
        if (out)
            out += n;
        else
            in += n;
        len -= n;
        offset = 0;
    }
    assert(!len);
    return 0;
}

int virtio_chain_read(const struct virtio_chain *chain, struct dma *dma, uint64_t offset,
                      void *data, size_t len)
{
    return transfer(chain->segment, chain->out_count, dma, offset, data, NULL, len);
}

int virtio_chain_write(const struct virtio_chain *chain, struct dma *dma, uint64_t offset,
                       const void *data, size_t len)
{
    return transfer(chain->segment + chain->out_count, chain->in_count, dma, offset, NULL, data,
                    len);
}
