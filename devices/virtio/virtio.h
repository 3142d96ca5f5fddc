#ifndef DEVICES_VIRTIO_VIRTIO_H
#define DEVICES_VIRTIO_VIRTIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devices/device.h"
#include "devices/virtio/virtio_queue.h"
#include "mmu/dma.h"

/*
 * What all virtio devices have in common (Virtio 1.2, chapter 2): status, feature negotiation,
 * queues, configuration, interrupts, and being broken. A kind of device (virtio_blk.c) stands on
 * top of it, a transport (virtio_pci.c) below.
 *
 * A notification is served before the guest goes on. What comes later by itself (a network's
 * frames, the data of a slow disk) comes at a sync point, too, so that every completion has an
 * exact place in the recording.
 */
#define VIRTIO_MAX_QUEUES 4

enum virtio_id {
    VIRTIO_ID_NET = 1,
    VIRTIO_ID_BLOCK = 2,
    VIRTIO_ID_CONSOLE = 3,
    VIRTIO_ID_ENTROPY = 4,
};

/* Feature bits of chapter 6. */
#define VIRTIO_F_INDIRECT_DESC (1ull << 28)
#define VIRTIO_F_EVENT_IDX     (1ull << 29)
#define VIRTIO_F_VERSION_1     (1ull << 32)

/* Device status, section 2.1. */
#define VIRTIO_ACKNOWLEDGE 0x01u
#define VIRTIO_DRIVER      0x02u
#define VIRTIO_DRIVER_OK   0x04u
#define VIRTIO_FEATURES_OK 0x08u
#define VIRTIO_NEEDS_RESET 0x40u
#define VIRTIO_FAILED      0x80u

/* Interrupt status: what happened since the driver last looked. */
#define VIRTIO_ISR_QUEUE  0x01u
#define VIRTIO_ISR_CONFIG 0x02u

struct virtio_device;

/* One kind of device; constant. */
struct virtio_kind {
    enum virtio_id id;
    uint8_t pci_class, pci_subclass;
    unsigned queues;     /* 1 to VIRTIO_MAX_QUEUES */
    uint16_t queue_size; /* the largest, a power of two */
    /* The driver rang the bell of a queue that is enabled, of a device that is live. */
    void (*notify)(struct virtio_device *vd, unsigned queue);
    /* Optional: the driver reset the device. */
    void (*reset)(struct virtio_device *vd);
};

struct virtio_device {
    struct device device; /* ops set by the kind; its save and restore may be virtio_save/restore */
    const struct virtio_kind *kind;
    struct dma *dma;
    uint64_t offered;      /* features */
    const uint8_t *config; /* configuration space, read-only for the driver; owned by the kind */
    size_t config_len;
    /* The transport's wire: level is whether isr is not 0. */
    void (*interrupt)(void *transport, bool level);
    /* Whether the transport lets it use memory; NULL: it always does. A doorbell is heard then
     * only; what comes later by itself has to ask. */
    bool (*is_master)(void *transport);
    void *transport;

    uint64_t accepted; /* features */
    uint32_t offered_select, accepted_select;
    uint16_t queue_select;
    uint8_t status, isr, generation;
    struct virtio_queue queue[VIRTIO_MAX_QUEUES];
    const char *fault; /* why the device needs a reset (static), or NULL */
};

/* For the kind: set up a device that is reset. VERSION_1, INDIRECT_DESC and EVENT_IDX are added
 * to the offered features. dma and config are kept. */
void virtio_init(struct virtio_device *vd, const struct device_ops *ops,
                 const struct virtio_kind *kind, struct dma *dma, uint64_t offered,
                 const uint8_t *config, size_t config_len);

/*
 * For the kind: take the next buffer of a queue. False when there is none, or when the ring is
 * broken and the device therefore, too.
 */
bool virtio_pop(struct virtio_device *vd, unsigned queue, struct virtio_chain *chain);
/* How many there are; UINT_MAX when something is wrong with the ring, which virtio_pop() will tell.
 */
unsigned virtio_available(struct virtio_device *vd, unsigned queue);
/* Return it with the number of bytes written to it. */
void virtio_push(struct virtio_device *vd, unsigned queue, const struct virtio_chain *chain,
                 uint32_t written);
/* Show returned buffers to the driver and interrupt it if it wants that. */
void virtio_publish(struct virtio_device *vd, unsigned queue);
/* Have the driver ring when it makes another buffer available. With event index it does not
 * otherwise, so this is called wherever no more is taken from a queue. */
void virtio_want_bell(struct virtio_device *vd, unsigned queue);

/*
 * Pop, serve, push every buffer of a queue, at most as many as it has elements, then publish.
 * serve() returns 0 with the number of bytes it wrote, or -1 after virtio_break().
 */
void virtio_serve(struct virtio_device *vd, unsigned queue,
                  int (*serve)(struct virtio_device *vd, const struct virtio_chain *chain,
                               uint32_t *written));

/* virtio_chain_read() and _write() on the device's behalf: -1 after virtio_break(). */
int virtio_read(struct virtio_device *vd, const struct virtio_chain *chain, uint64_t offset,
                void *data, size_t len);
int virtio_write(struct virtio_device *vd, const struct virtio_chain *chain, uint64_t offset,
                 const void *data, size_t len);

/* The driver broke the rules: stop, tell it (section 2.1.2), and wait for a reset. `fault` is a
 * static text. Returns -1. */
int virtio_break(struct virtio_device *vd, const char *fault);

/* Live: driven by its driver and not broken. */
bool virtio_is_live(const struct virtio_device *vd);
/* Live, and may use memory at no doorbell. */
bool virtio_may_use_memory(const struct virtio_device *vd);

/* The kind changed bytes of its configuration space. */
void virtio_config_changed(struct virtio_device *vd);

/* For the transport: the registers behind which there is more than memory. */
void virtio_set_status(struct virtio_device *vd, uint8_t status); /* 0 resets */
uint32_t virtio_offered(const struct virtio_device *vd);          /* the half selected */
void virtio_accept(struct virtio_device *vd, uint32_t half);
/* The selected queue, or NULL. */
struct virtio_queue *virtio_selected_queue(struct virtio_device *vd);
void virtio_set_queue_size(struct virtio_device *vd, uint16_t size);
void virtio_enable_queue(struct virtio_device *vd);
void virtio_notify(struct virtio_device *vd, unsigned queue);
/* Read the interrupt status; reading clears it. */
uint8_t virtio_take_isr(struct virtio_device *vd);

/* For device_ops, and for a kind with more state to call first. */
void virtio_save(const struct device *device, struct bytes *out);
int virtio_restore(struct device *device, struct cursor *in);
void virtio_reset(struct virtio_device *vd);

#endif
