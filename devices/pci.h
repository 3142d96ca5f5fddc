#ifndef DEVICES_PCI_H
#define DEVICES_PCI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/bus.h"
#include "devices/device.h"

/*
 * One conventional PCI bus (PCI Local Bus Specification 3.0) behind configuration mechanism #1
 * (ports 0xcf8 to 0xcff, section 3.2.2.3.2), a host bridge at 00:00.0 and up to eight devices of
 * one function each in slots 1 to 8.
 *
 * There is no firmware: pci_add() gives each device its memory BARs and its interrupt line and
 * enables it. Interrupts are INTx only; wires may be shared and are the OR of their devices.
 * Nothing but the memory BARs and the ports above is decoded (no I/O BARs, no MSI, no ROM).
 */
#define PCI_SLOTS        9 /* the host bridge and eight devices */
#define PCI_BARS         6
#define PCI_CONFIG_BYTES 256
#define PCI_IRQS         16

/* Where memory BARs may be decoded: the hole in RAM, less the fixed addresses at its end. */
#define PCI_WINDOW_BASE 0xc0000000ull
#define PCI_WINDOW_END  0xfec00000ull

/* Offsets in configuration space (section 6.1) and bits that devices look at. */
enum {
    PCI_VENDOR_ID = 0x00,
    PCI_DEVICE_ID = 0x02,
    PCI_COMMAND = 0x04,
    PCI_STATUS = 0x06,
    PCI_REVISION = 0x08,
    PCI_CLASS_INTERFACE = 0x09,
    PCI_SUBCLASS = 0x0a,
    PCI_CLASS = 0x0b,
    PCI_CACHE_LINE = 0x0c,
    PCI_LATENCY_TIMER = 0x0d,
    PCI_BAR_0 = 0x10,
    PCI_SUBSYSTEM_VENDOR = 0x2c,
    PCI_SUBSYSTEM_ID = 0x2e,
    PCI_CAPABILITIES = 0x34,
    PCI_INTERRUPT_LINE = 0x3c,
    PCI_INTERRUPT_PIN = 0x3d,
};

#define PCI_COMMAND_MEMORY     0x0002u
#define PCI_COMMAND_MASTER     0x0004u
#define PCI_COMMAND_INTX_OFF   0x0400u
#define PCI_STATUS_INTERRUPT   0x0008u
#define PCI_STATUS_CAP_PRESENT 0x0010u

struct pci_bus;

/* A 32-bit memory BAR. The device fills size, ops and opaque. */
struct pci_bar {
    uint32_t size; /* bytes, a power of two of at least 4096; 0: no such BAR */
    uint32_t base; /* where pci_add() puts it; 0: at the next free place */
    const struct bus_ops *ops;
    void *opaque;
    uint64_t mapped; /* where the MMIO bus decodes it now; 0: nowhere */
};

/*
 * One device. Its owner zeroes the struct, fills name, bar, config and writable (identity,
 * capabilities; pci_add() does BARs, command and interrupt registers) and keeps it alive as long
 * as the bus.
 */
struct pci_device {
    const char *name; /* static */
    struct pci_bar bar[PCI_BARS];
    uint8_t config[PCI_CONFIG_BYTES];
    uint8_t writable[PCI_CONFIG_BYTES]; /* the bits of config that the guest may change */
    /* Optional: called before config is read, and after the guest changed it, with the range. */
    void (*config_reading)(struct pci_device *dev, unsigned offset, unsigned size);
    void (*config_written)(struct pci_device *dev, unsigned offset, unsigned size);

    /* Owned by the bus. */
    struct pci_bus *bus;
    uint8_t reset_config[PCI_CONFIG_BYTES];
    unsigned slot, irq;
    bool intx; /* the device asserts its pin */
};

struct pci_bus {
    struct device device;
    struct bus *mmio;
    struct irq_pin pins[PCI_IRQS];
    unsigned (*route)(unsigned device, unsigned pin);
    void (*reset)(void *opaque);
    void *reset_opaque;
    struct pci_device bridge;
    struct pci_device *slot[PCI_SLOTS]; /* NULL: empty */
    uint64_t next_bar;
    uint32_t address;      /* CONFIG_ADDRESS, port 0xcf8 */
    uint8_t reset_control; /* port 0xcf9 */
};

/*
 * Make an empty bus whose BARs appear on `mmio`. pins[irq] is the wire to interrupt line `irq`
 * (copied); route(device, pin) names the line, 0 to 15, of pin 0..3 (A..D) of a slot;
 * reset(opaque) is called when the guest asks for a reset through port 0xcf9, and may be NULL.
 */
void pci_init(struct pci_bus *pci, struct bus *mmio, const struct irq_pin pins[PCI_IRQS],
              unsigned (*route)(unsigned device, unsigned pin), void (*reset)(void *opaque),
              void *opaque);

/* Whether accesses to a port are ones to configuration space. */
bool pci_is_config_port(uint64_t port);

/* Put ports 0xcf8 to 0xcff on the port bus. */
int pci_attach(struct pci_bus *pci, struct bus *pio, struct err *e);

/*
 * Put a device into the next free slot: BARs assigned and decoded, INTA routed, memory decode and
 * bus mastering enabled. Fails when the slots, the BAR window or the MMIO bus are full.
 */
int pci_add(struct pci_bus *pci, struct pci_device *dev, struct err *e);

/* Assert or release the device's INTA. */
void pci_set_intx(struct pci_device *dev, bool level);

/* The configuration of every device as pci_add() left it; no pin is asserted. */
void pci_reset(struct pci_bus *pci);

static inline bool pci_is_bus_master(const struct pci_device *dev)
{
    return dev->config[PCI_COMMAND] & PCI_COMMAND_MASTER;
}

/* Little-endian fields of configuration space. */
void pci_put16(uint8_t *config, unsigned offset, uint16_t value);
void pci_put32(uint8_t *config, unsigned offset, uint32_t value);
uint16_t pci_get16(const uint8_t *config, unsigned offset);
uint32_t pci_get32(const uint8_t *config, unsigned offset);

#endif
