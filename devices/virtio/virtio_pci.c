#include "devices/virtio/virtio_pci.h"

#include <assert.h>
#include <string.h>

#define VENDOR_VIRTIO    0x1af4
#define DEVICE_ID_MODERN 0x1040 /* + virtio device id */
#define SUBSYSTEM_ID     0x0040 /* any value from here on says "not transitional" */
#define NO_VECTOR        0xffff /* no MSI-X */

/* Capabilities (section 4.1.4): vendor specific, with these types and places. */
#define CAP_VENDOR       0x09
#define CAP_BYTES        16
#define CAP_LONG_BYTES   20
#define CAP_TYPE_COMMON  1
#define CAP_TYPE_NOTIFY  2
#define CAP_TYPE_ISR     3
#define CAP_TYPE_DEVICE  4
#define CAP_TYPE_WINDOW  5
#define CAP_AT_COMMON    0x40
#define CAP_AT_ISR       0x50
#define CAP_AT_NOTIFY    0x60
#define CAP_AT_WINDOW    0x74
#define CAP_AT_DEVICE    0x88
#define CAP_FIELD_BAR    4
#define CAP_FIELD_OFFSET 8
#define CAP_FIELD_LENGTH 12
#define CAP_FIELD_EXTRA  16

static void common_image(struct virtio_device *vd, uint8_t image[COMMON_BYTES])
{
    const struct virtio_queue *q = virtio_selected_queue(vd);

    memset(image, 0, COMMON_BYTES);
    pci_put32(image, COMMON_OFFERED_SELECT, vd->offered_select);
    pci_put32(image, COMMON_OFFERED, virtio_offered(vd));
    pci_put32(image, COMMON_ACCEPTED_SELECT, vd->accepted_select);
    if (vd->accepted_select < 2)
        pci_put32(image, COMMON_ACCEPTED, (uint32_t)(vd->accepted >> (32 * vd->accepted_select)));
    pci_put16(image, COMMON_CONFIG_VECTOR, NO_VECTOR);
    pci_put16(image, COMMON_QUEUES, (uint16_t)vd->kind->queues);
    image[COMMON_STATUS] = vd->status;
    image[COMMON_GENERATION] = vd->generation;
    pci_put16(image, COMMON_QUEUE_SELECT, vd->queue_select);
    pci_put16(image, COMMON_QUEUE_VECTOR, NO_VECTOR);
    if (!q)
        return; /* a size of 0 says that there is no such queue */
    pci_put16(image, COMMON_QUEUE_SIZE, q->size);
    pci_put16(image, COMMON_QUEUE_ENABLE, q->enabled);
    pci_put16(image, COMMON_QUEUE_NOTIFY, vd->queue_select);
    pci_put32(image, COMMON_QUEUE_DESC, (uint32_t)q->desc);
    pci_put32(image, COMMON_QUEUE_DESC + 4, (uint32_t)(q->desc >> 32));
    pci_put32(image, COMMON_QUEUE_AVAIL, (uint32_t)q->avail);
    pci_put32(image, COMMON_QUEUE_AVAIL + 4, (uint32_t)(q->avail >> 32));
    pci_put32(image, COMMON_QUEUE_USED, (uint32_t)q->used);
    pci_put32(image, COMMON_QUEUE_USED + 4, (uint32_t)(q->used >> 32));
}

/* One 32-bit half of a ring address; the driver may not move the ring of an enabled queue. */
static void write_address(struct virtio_queue *q, unsigned offset, uint32_t half)
{
    unsigned shift = offset & 4 ? 32 : 0;
    uint64_t *field;

    if (!q || q->enabled)
        return;
    switch (offset & ~4u) {
    case COMMON_QUEUE_DESC:
        field = &q->desc;
        break;
    case COMMON_QUEUE_AVAIL:
        field = &q->avail;
        break;
    default:
        field = &q->used;
        break;
    }
    *field = (*field & ~(0xffffffffull << shift)) | (uint64_t)half << shift;
}

/* Section 4.1.3.1: fields are written in their own width, 64-bit ones by halves. */
static void common_write(struct virtio_device *vd, unsigned offset, unsigned size, uint32_t value)
{
    static const uint8_t width[COMMON_BYTES] = {
        [COMMON_OFFERED_SELECT] = 4, [COMMON_ACCEPTED_SELECT] = 4, [COMMON_ACCEPTED] = 4,
        [COMMON_STATUS] = 1,         [COMMON_QUEUE_SELECT] = 2,    [COMMON_QUEUE_SIZE] = 2,
        [COMMON_QUEUE_ENABLE] = 2,   [COMMON_QUEUE_DESC] = 4,      [COMMON_QUEUE_DESC + 4] = 4,
        [COMMON_QUEUE_AVAIL] = 4,    [COMMON_QUEUE_USED] = 4,      [COMMON_QUEUE_AVAIL + 4] = 4,
        [COMMON_QUEUE_USED + 4] = 4,
    };

    if (offset >= COMMON_BYTES || width[offset] != size)
        return;
    switch (offset) {
    case COMMON_OFFERED_SELECT:
        vd->offered_select = value;
        break;
    case COMMON_ACCEPTED_SELECT:
        vd->accepted_select = value;
        break;
    case COMMON_ACCEPTED:
        virtio_accept(vd, value);
        break;
    case COMMON_STATUS:
        virtio_set_status(vd, (uint8_t)value);
        break;
    case COMMON_QUEUE_SELECT:
        vd->queue_select = (uint16_t)value;
        break;
    case COMMON_QUEUE_SIZE:
        virtio_set_queue_size(vd, (uint16_t)value);
        break;
    case COMMON_QUEUE_ENABLE:
        if (value == 1)
            virtio_enable_queue(vd);
        break;
    default:
        write_address(virtio_selected_queue(vd), offset, value);
        break;
    }
}

/* size bytes at `offset` of a structure of len bytes; zeroes behind its end. */
static uint64_t read_bytes(const uint8_t *data, size_t len, size_t offset, unsigned size)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < size && offset + i < len; i++)
        value |= (uint64_t)data[offset + i] << (8 * i);
    return value;
}

static uint64_t bar_read(void *opaque, uint64_t offset, unsigned size)
{
    struct virtio_pci *vp = opaque;
    uint8_t image[COMMON_BYTES];

    if (offset < VIRTIO_PCI_ISR) {
        common_image(vp->vd, image);
        return read_bytes(image, sizeof image, offset, size);
    }
    if (offset == VIRTIO_PCI_ISR)
        return virtio_take_isr(vp->vd);
    if (offset >= VIRTIO_PCI_DEVICE && offset < VIRTIO_PCI_NOTIFY)
        return read_bytes(vp->vd->config, vp->vd->config_len, offset - VIRTIO_PCI_DEVICE, size);
    return 0;
}

static void bar_write(void *opaque, uint64_t offset, unsigned size, uint64_t value)
{
    struct virtio_pci *vp = opaque;
    uint64_t doorbell = offset - VIRTIO_PCI_NOTIFY;

    if (offset < VIRTIO_PCI_ISR) {
        common_write(vp->vd, (unsigned)offset, size, (uint32_t)value);
    } else if (offset >= VIRTIO_PCI_NOTIFY && doorbell % VIRTIO_PCI_DOORBELL == 0) {
        /* Every queue has a doorbell of its own, so the value says nothing new. A device that is
         * no bus master may not touch memory. */
        if (pci_is_bus_master(&vp->pci))
            virtio_notify(vp->vd, (unsigned)(doorbell / VIRTIO_PCI_DOORBELL));
    }
}

static const struct bus_ops bar_ops = {.read = bar_read, .write = bar_write};

/*
 * The configuration access capability (section 4.1.4.9) is a window of 1, 2 or 4 bytes into the
 * BAR. False unless the access takes in the window's data and the driver has aimed it well.
 */
static bool window(const struct pci_device *dev, unsigned offset, unsigned size, uint32_t *at,
                   unsigned *len)
{
    const uint8_t *cap = dev->config + CAP_AT_WINDOW;

    *at = pci_get32(cap, CAP_FIELD_OFFSET);
    *len = pci_get32(cap, CAP_FIELD_LENGTH);
    return offset <= CAP_AT_WINDOW + CAP_FIELD_EXTRA &&
           offset + size > CAP_AT_WINDOW + CAP_FIELD_EXTRA && cap[CAP_FIELD_BAR] == 0 &&
           (*len == 1 || *len == 2 || *len == 4) && *at % *len == 0 && *at < VIRTIO_PCI_BAR_BYTES;
}

static void config_reading(struct pci_device *dev, unsigned offset, unsigned size)
{
    uint32_t at;
    unsigned len;

    if (window(dev, offset, size, &at, &len))
        pci_put32(dev->config, CAP_AT_WINDOW + CAP_FIELD_EXTRA,
                  (uint32_t)bar_read(dev->bar[0].opaque, at, len));
}

static void config_written(struct pci_device *dev, unsigned offset, unsigned size)
{
    uint32_t at;
    unsigned len;

    if (window(dev, offset, size, &at, &len))
        bar_write(dev->bar[0].opaque, at, len,
                  read_bytes(dev->config, PCI_CONFIG_BYTES, CAP_AT_WINDOW + CAP_FIELD_EXTRA, len));
}

static void interrupt(void *transport, bool level)
{
    struct virtio_pci *vp = transport;

    pci_set_intx(&vp->pci, level);
}

static bool is_master(void *transport)
{
    return pci_is_bus_master(&((struct virtio_pci *)transport)->pci);
}

static void put_capability(struct pci_device *dev, unsigned at, unsigned bytes, uint8_t next,
                           uint8_t type, uint32_t offset, uint32_t length)
{
    uint8_t *cap = dev->config + at;

    cap[0] = CAP_VENDOR;
    cap[1] = next;
    cap[2] = (uint8_t)bytes;
    cap[3] = type;
    pci_put32(cap, CAP_FIELD_OFFSET, offset);
    pci_put32(cap, CAP_FIELD_LENGTH, length);
}

static void put_capabilities(struct virtio_pci *vp)
{
    struct pci_device *dev = &vp->pci;
    uint8_t *window_mask = dev->writable + CAP_AT_WINDOW;
    bool has_config = vp->vd->config_len != 0;

    dev->config[PCI_CAPABILITIES] = CAP_AT_COMMON;
    pci_put16(dev->config, PCI_STATUS, PCI_STATUS_CAP_PRESENT);
    put_capability(dev, CAP_AT_COMMON, CAP_BYTES, CAP_AT_ISR, CAP_TYPE_COMMON, VIRTIO_PCI_COMMON,
                   COMMON_BYTES);
    put_capability(dev, CAP_AT_ISR, CAP_BYTES, CAP_AT_NOTIFY, CAP_TYPE_ISR, VIRTIO_PCI_ISR, 1);
    put_capability(dev, CAP_AT_NOTIFY, CAP_LONG_BYTES, CAP_AT_WINDOW, CAP_TYPE_NOTIFY,
                   VIRTIO_PCI_NOTIFY, VIRTIO_PCI_DOORBELL * vp->vd->kind->queues);
    pci_put32(dev->config, CAP_AT_NOTIFY + CAP_FIELD_EXTRA, VIRTIO_PCI_DOORBELL);
    put_capability(dev, CAP_AT_WINDOW, CAP_LONG_BYTES, has_config ? CAP_AT_DEVICE : 0,
                   CAP_TYPE_WINDOW, 0, 0);
    window_mask[CAP_FIELD_BAR] = 0xff;
    memset(window_mask + CAP_FIELD_OFFSET, 0xff, CAP_LONG_BYTES - CAP_FIELD_OFFSET);
    if (has_config)
        put_capability(dev, CAP_AT_DEVICE, CAP_BYTES, 0, CAP_TYPE_DEVICE, VIRTIO_PCI_DEVICE,
                       (uint32_t)vp->vd->config_len);
}

int virtio_pci_attach(struct virtio_pci *vp, struct virtio_device *vd, const char *name,
                      struct pci_bus *bus, struct err *e)
{
    struct pci_device *dev = &vp->pci;

    assert(vd->config_len <= VIRTIO_PCI_NOTIFY - VIRTIO_PCI_DEVICE);
    memset(vp, 0, sizeof *vp);
    vp->vd = vd;
    dev->name = name;
    pci_put16(dev->config, PCI_VENDOR_ID, VENDOR_VIRTIO);
    pci_put16(dev->config, PCI_DEVICE_ID, (uint16_t)(DEVICE_ID_MODERN + vd->kind->id));
    dev->config[PCI_REVISION] = 1;
    dev->config[PCI_CLASS] = vd->kind->pci_class;
    dev->config[PCI_SUBCLASS] = vd->kind->pci_subclass;
    pci_put16(dev->config, PCI_SUBSYSTEM_VENDOR, VENDOR_VIRTIO);
    pci_put16(dev->config, PCI_SUBSYSTEM_ID, SUBSYSTEM_ID);
    dev->bar[0] = (struct pci_bar){.size = VIRTIO_PCI_BAR_BYTES, .ops = &bar_ops, .opaque = vp};
    dev->config_reading = config_reading;
    dev->config_written = config_written;
    put_capabilities(vp);
    if (pci_add(bus, dev, e) < 0)
        return -1;
    vd->interrupt = interrupt;
    vd->is_master = is_master;
    vd->transport = vp;
    return 0;
}
