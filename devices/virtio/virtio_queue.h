#ifndef DEVICES_VIRTIO_VIRTIO_QUEUE_H
#define DEVICES_VIRTIO_VIRTIO_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mmu/dma.h"

/*
 * Split virtqueues, device side (Virtio 1.2, section 2.7), with indirect descriptors and event
 * index. The rings belong to a hostile driver that may change them at any time: each
 * descriptor is read once, through DMA, and checked.
 */
#define VIRTIO_QUEUE_MAX_SIZE 256
#define VIRTIO_CHAIN_MAX      256 /* descriptors of one buffer, indirect ones included */

struct virtio_queue {
    uint16_t max_size; /* a power of two, at most VIRTIO_QUEUE_MAX_SIZE; fixed by the device */
    /* What the driver set up; constant while enabled. */
    uint16_t size; /* a power of two, at most max_size */
    bool enabled;
    uint64_t desc, avail, used; /* guest-physical */
    /* Free-running ring positions of the device. */
    uint16_t next_avail;
    uint16_t next_used;
    uint16_t published; /* next_used as the driver knows it */
};

struct virtio_segment {
    uint64_t gpa; /* [gpa, gpa + len) does not wrap; whether it is RAM shows when it is used */
    uint32_t len;
};

/* One buffer: segment[0 .. out_count) for the device to read, then in_count for it to write. */
struct virtio_chain {
    uint16_t head;
    unsigned out_count, in_count;
    uint64_t out_len, in_len; /* bytes */
    struct virtio_segment segment[VIRTIO_CHAIN_MAX];
};

/* All as after a device reset, except max_size. */
void virtio_queue_reset(struct virtio_queue *q);

/* Whether size and addresses are such as the driver may enable: aligned as section 2.7 says, not
 * wrapping. NULL, or (static text) what is wrong. */
const char *virtio_queue_check(const struct virtio_queue *q);

/*
 * Take the next buffer that the driver made available. Returns 1 with *chain filled, 0 when there
 * is none, -1 when the ring is broken; then *fault is a static text that says how.
 */
int virtio_queue_pop(struct virtio_queue *q, struct dma *dma, bool indirect,
                     struct virtio_chain *chain, const char **fault);

/* How many the driver has made available; UINT_MAX: the ring is broken. */
unsigned virtio_queue_available(const struct virtio_queue *q, struct dma *dma);

/* Return a buffer, in the next element of the used ring: `written` bytes were written from its
 * first writable byte on. The driver does not see it before virtio_queue_publish(). 0, or -1 when
 * the used ring is not in RAM. */
int virtio_queue_push(struct virtio_queue *q, struct dma *dma, uint16_t head, uint32_t written);

/* Show the returned buffers to the driver. 1 when it wants an interrupt, 0 when not (or nothing was
 * returned), -1 when the rings are not in RAM. event_index: it says behind which buffer (section
 * 2.7.7). */
int virtio_queue_publish(struct virtio_queue *q, struct dma *dma, bool event_index);

/* With event index (section 2.7.10): have the driver ring when it makes another buffer available.
 * It rings once. 0, or -1 when the used ring is not in RAM. */
int virtio_queue_want_bell(struct virtio_queue *q, struct dma *dma);

/*
 * Copy len bytes from the readable part of the buffer, or to its writable part, starting `offset`
 * bytes into that part, whatever its layout in segments. The range must lie in the part. 0, or -1
 * when some byte is not RAM; earlier segments may have been transferred then.
 */
int virtio_chain_read(const struct virtio_chain *chain, struct dma *dma, uint64_t offset,
                      void *data, size_t len);
int virtio_chain_write(const struct virtio_chain *chain, struct dma *dma, uint64_t offset,
                       const void *data, size_t len);

#endif
