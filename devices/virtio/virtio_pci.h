#ifndef DEVICES_VIRTIO_VIRTIO_PCI_H
#define DEVICES_VIRTIO_VIRTIO_PCI_H

#include "base/err.h"
#include "devices/pci.h"
#include "devices/virtio/virtio.h"

/*
 * The PCI transport of a virtio device (Virtio 1.2, section 4.1): modern only, one memory BAR that
 * holds all structures, INTx. It has no state of its own: PCI's is saved by the bus, virtio's by
 * the device.
 *
 * BAR 0, and the capability that says so:
 *     0x0000  common configuration
 *     0x1000  interrupt status (reading clears it)
 *     0x2000  device configuration (no capability when the device has none)
 *     0x3000  notification, 4 bytes for each queue
 */
#define VIRTIO_PCI_BAR_BYTES 0x4000u
#define VIRTIO_PCI_COMMON    0x0000u
#define VIRTIO_PCI_ISR       0x1000u
#define VIRTIO_PCI_DEVICE    0x2000u
#define VIRTIO_PCI_NOTIFY    0x3000u
#define VIRTIO_PCI_DOORBELL  4u /* notify_off_multiplier */

/* Common configuration, section 4.1.4.3: offsets. */
enum {
    COMMON_OFFERED_SELECT = 0x00,
    COMMON_OFFERED = 0x04,
    COMMON_ACCEPTED_SELECT = 0x08,
    COMMON_ACCEPTED = 0x0c,
    COMMON_CONFIG_VECTOR = 0x10,
    COMMON_QUEUES = 0x12,
    COMMON_STATUS = 0x14,
    COMMON_GENERATION = 0x15,
    COMMON_QUEUE_SELECT = 0x16,
    COMMON_QUEUE_SIZE = 0x18,
    COMMON_QUEUE_VECTOR = 0x1a,
    COMMON_QUEUE_ENABLE = 0x1c,
    COMMON_QUEUE_NOTIFY = 0x1e,
    COMMON_QUEUE_DESC = 0x20,
    COMMON_QUEUE_AVAIL = 0x28,
    COMMON_QUEUE_USED = 0x30,
    COMMON_BYTES = 0x38,
};

struct virtio_pci {
    struct pci_device pci;
    struct virtio_device *vd;
};

/*
 * Put vd (which virtio_init() has set up) on the PCI bus under the given name (static). Both
 * structs stay the caller's and must live as long as the bus.
 */
int virtio_pci_attach(struct virtio_pci *vp, struct virtio_device *vd, const char *name,
                      struct pci_bus *bus, struct err *e);

#endif
