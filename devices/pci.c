#include "devices/pci.h"

#include <assert.h>
#include <string.h>

#define STATE_VERSION 1

#define PORT_BASE          0xcf8
#define PORT_COUNT         8
#define PORT_ADDRESS       0 /* offsets from PORT_BASE */
#define PORT_RESET_CONTROL 1
#define PORT_DATA          4

#define ADDRESS_ENABLE   0x80000000u
#define ADDRESS_WRITABLE 0x80fffffcu

#define RESET_CPU   0x04 /* a write with this bit resets the machine */
#define RESET_KEPT  0x0a
#define BAR_ADDRESS 0xfffffff0u

void pci_put16(uint8_t *config, unsigned offset, uint16_t value)
{
    config[offset] = (uint8_t)value;
    config[offset + 1] = (uint8_t)(value >> 8);
}

void pci_put32(uint8_t *config, unsigned offset, uint32_t value)
{
    pci_put16(config, offset, (uint16_t)value);
    pci_put16(config, offset + 2, (uint16_t)(value >> 16));
}

uint16_t pci_get16(const uint8_t *config, unsigned offset)
{
    return (uint16_t)(config[offset] | config[offset + 1] << 8);
}

uint32_t pci_get32(const uint8_t *config, unsigned offset)
{
    return pci_get16(config, offset) | (uint32_t)pci_get16(config, offset + 2) << 16;
}

/* Where the guest wants this BAR, or 0: decode off, BAR absent, or outside the window (as while it
 * is being sized). */
static uint64_t bar_wanted(const struct pci_device *dev, unsigned i)
{
    uint32_t base = pci_get32(dev->config, PCI_BAR_0 + 4 * i) & BAR_ADDRESS;

    if (!dev->bar[i].size || !(pci_get16(dev->config, PCI_COMMAND) & PCI_COMMAND_MEMORY))
        return 0;
    if (base < PCI_WINDOW_BASE || base + (uint64_t)dev->bar[i].size > PCI_WINDOW_END)
        return 0;
    return base;
}

static void unmap_bar(struct pci_device *dev, unsigned i)
{
    if (dev->bar[i].mapped)
        bus_remove(dev->bus->mmio, dev->bar[i].mapped);
    dev->bar[i].mapped = 0;
}

/* On failure the BAR stays undecoded. */
static int map_bar(struct pci_device *dev, unsigned i, struct err *e)
{
    struct pci_bar *bar = &dev->bar[i];
    struct bus_range range = {
        .base = bar_wanted(dev, i),
        .size = bar->size,
        .ops = bar->ops,
        .dev = bar->opaque,
        .name = dev->name,
    };

    if (bus_add(dev->bus->mmio, &range, e) < 0)
        return -1;
    bar->mapped = range.base;
    return 0;
}

/*
 * Make the MMIO bus follow the configuration registers. A guest may lay one BAR over another; the
 * one that came first then stays, and the other is decoded as soon as its place is free.
 */
static void update_mappings(struct pci_bus *pci)
{
    struct err ignored;

    for (unsigned s = 0; s < PCI_SLOTS; s++)
        for (unsigned i = 0; pci->slot[s] && i < PCI_BARS; i++)
            if (pci->slot[s]->bar[i].mapped != bar_wanted(pci->slot[s], i))
                unmap_bar(pci->slot[s], i);
    for (unsigned s = 0; s < PCI_SLOTS; s++)
        for (unsigned i = 0; pci->slot[s] && i < PCI_BARS; i++)
            if (!pci->slot[s]->bar[i].mapped && bar_wanted(pci->slot[s], i))
                map_bar(pci->slot[s], i, &ignored);
}

static bool drives_wire(const struct pci_device *dev)
{
    return dev->intx && !(pci_get16(dev->config, PCI_COMMAND) & PCI_COMMAND_INTX_OFF);
}

static void update_wire(struct pci_bus *pci, unsigned irq)
{
    bool level = false;

    for (unsigned s = 0; s < PCI_SLOTS; s++)
        if (pci->slot[s] && pci->slot[s]->config[PCI_INTERRUPT_PIN] && pci->slot[s]->irq == irq)
            level |= drives_wire(pci->slot[s]);
    irq_pin_set(&pci->pins[irq], level);
}

static void update_all_wires(struct pci_bus *pci)
{
    for (unsigned s = 0; s < PCI_SLOTS; s++)
        if (pci->slot[s] && pci->slot[s]->config[PCI_INTERRUPT_PIN])
            update_wire(pci, pci->slot[s]->irq);
}

/* The status bit follows the pin even while the command register keeps it off the wire. */
static void show_intx(struct pci_device *dev)
{
    dev->config[PCI_STATUS] &= (uint8_t)~PCI_STATUS_INTERRUPT;
    if (dev->intx)
        dev->config[PCI_STATUS] |= PCI_STATUS_INTERRUPT;
}

void pci_set_intx(struct pci_device *dev, bool level)
{
    dev->intx = level;
    show_intx(dev);
    update_wire(dev->bus, dev->irq);
}

/* The device that CONFIG_ADDRESS selects, or NULL. */
static struct pci_device *selected(const struct pci_bus *pci)
{
    unsigned bus = pci->address >> 16 & 0xff;
    unsigned slot = pci->address >> 11 & 0x1f;
    unsigned function = pci->address >> 8 & 7;

    if (!(pci->address & ADDRESS_ENABLE) || bus || function || slot >= PCI_SLOTS)
        return NULL;
    return pci->slot[slot];
}

static uint64_t all_ones(unsigned size)
{
    return UINT64_MAX >> (64 - 8 * size);
}

static uint64_t config_read(struct pci_bus *pci, unsigned in_dword, unsigned size)
{
    struct pci_device *dev = selected(pci);
    unsigned offset = (pci->address & 0xfc) + in_dword;
    uint64_t value = 0;

    if (!dev)
        return all_ones(size);
    if (dev->config_reading)
        dev->config_reading(dev, offset, size);
    for (unsigned i = 0; i < size; i++)
        value |= (uint64_t)dev->config[offset + i] << (8 * i);
    return value;
}

static void config_write(struct pci_bus *pci, unsigned in_dword, unsigned size, uint64_t value)
{
    struct pci_device *dev = selected(pci);
    unsigned offset = (pci->address & 0xfc) + in_dword;

    if (!dev)
        return;
    for (unsigned i = 0; i < size; i++) {
        uint8_t mask = dev->writable[offset + i];
        uint8_t byte = (uint8_t)(value >> (8 * i));

        dev->config[offset + i] = (uint8_t)((dev->config[offset + i] & ~mask) | (byte & mask));
    }
    update_mappings(pci);
    update_all_wires(pci);
    if (dev->config_written)
        dev->config_written(dev, offset, size);
}

static uint64_t port_read(void *opaque, uint64_t offset, unsigned size)
{
    struct pci_bus *pci = opaque;

    if (offset >= PORT_DATA)
        return config_read(pci, (unsigned)offset - PORT_DATA, size);
    if (offset == PORT_ADDRESS && size == 4)
        return pci->address;
    if (offset == PORT_RESET_CONTROL && size == 1)
        return pci->reset_control;
    return all_ones(size);
}

static void port_write(void *opaque, uint64_t offset, unsigned size, uint64_t value)
{
    struct pci_bus *pci = opaque;

    if (offset >= PORT_DATA) {
        config_write(pci, (unsigned)offset - PORT_DATA, size, value);
    } else if (offset == PORT_ADDRESS && size == 4) {
        pci->address = (uint32_t)value & ADDRESS_WRITABLE;
    } else if (offset == PORT_RESET_CONTROL && size == 1) {
        pci->reset_control = (uint8_t)value & RESET_KEPT;
        if ((value & RESET_CPU) && pci->reset)
            pci->reset(pci->reset_opaque);
    }
}

static const struct bus_ops port_ops = {.read = port_read, .write = port_write};

void pci_reset(struct pci_bus *pci)
{
    pci->address = 0;
    pci->reset_control = 0;
    for (unsigned s = 0; s < PCI_SLOTS; s++) {
        if (!pci->slot[s])
            continue;
        memcpy(pci->slot[s]->config, pci->slot[s]->reset_config, PCI_CONFIG_BYTES);
        pci->slot[s]->intx = false;
        for (unsigned i = 0; i < PCI_BARS; i++)
            unmap_bar(pci->slot[s], i);
    }
    update_mappings(pci);
    update_all_wires(pci);
}

static void pci_save(const struct device *device, struct bytes *out)
{
    const struct pci_bus *pci = (const struct pci_bus *)device;

    bytes_put_u8(out, STATE_VERSION);
    bytes_put_u32(out, pci->address);
    bytes_put_u8(out, pci->reset_control);
    for (unsigned s = 0; s < PCI_SLOTS; s++) {
        const struct pci_device *dev = pci->slot[s];
        uint8_t decoded = 0;

        bytes_put_u8(out, dev != NULL);
        if (!dev)
            continue;
        for (unsigned i = 0; i < PCI_BARS; i++)
            decoded |= (uint8_t)((dev->bar[i].mapped != 0) << i);
        bytes_put_u8(out, decoded);
        bytes_put_u8(out, dev->intx);
        bytes_put(out, dev->config, PCI_CONFIG_BYTES);
    }
}

/* Which of several overlapping BARs is decoded depends on the past, so it is part of the state. */
static int restore_device(struct pci_device *dev, struct cursor *in, uint8_t *decoded)
{
    uint8_t config[PCI_CONFIG_BYTES];

    *decoded = cursor_u8(in);
    dev->intx = cursor_u8(in) & 1;
    cursor_get(in, config, sizeof config);
    if (in->bad)
        return -1;
    for (unsigned i = 0; i < PCI_CONFIG_BYTES; i++)
        dev->config[i] =
            (uint8_t)((dev->reset_config[i] & ~dev->writable[i]) | (config[i] & dev->writable[i]));
    show_intx(dev);
    return 0;
}

static int restore_all(struct pci_bus *pci, struct cursor *in)
{
    uint8_t decoded[PCI_SLOTS] = {0};
    struct err ignored;

    if (cursor_u8(in) != STATE_VERSION)
        return -1;
    pci->address = cursor_u32(in) & ADDRESS_WRITABLE;
    pci->reset_control = cursor_u8(in) & RESET_KEPT;
    for (unsigned s = 0; s < PCI_SLOTS; s++) {
        if (cursor_u8(in) != (pci->slot[s] != NULL))
            return -1;
        if (pci->slot[s] && restore_device(pci->slot[s], in, &decoded[s]) < 0)
            return -1;
    }
    for (unsigned s = 0; s < PCI_SLOTS; s++)
        for (unsigned i = 0; pci->slot[s] && i < PCI_BARS; i++)
            if ((decoded[s] >> i & 1) &&
                (!bar_wanted(pci->slot[s], i) || map_bar(pci->slot[s], i, &ignored) < 0))
                return -1;
    update_all_wires(pci);
    return in->bad ? -1 : 0;
}

static int pci_restore(struct device *device, struct cursor *in)
{
    struct pci_bus *pci = (struct pci_bus *)device;

    for (unsigned s = 0; s < PCI_SLOTS; s++)
        for (unsigned i = 0; pci->slot[s] && i < PCI_BARS; i++)
            unmap_bar(pci->slot[s], i);
    if (restore_all(pci, in) == 0)
        return 0;
    pci_reset(pci);
    return -1;
}

static const struct device_ops pci_ops = {
    .name = "pci",
    .save = pci_save,
    .restore = pci_restore,
};

void pci_init(struct pci_bus *pci, struct bus *mmio, const struct irq_pin pins[PCI_IRQS],
              unsigned (*route)(unsigned device, unsigned pin), void (*reset)(void *opaque),
              void *opaque)
{
    struct pci_device *bridge = &pci->bridge;

    memset(pci, 0, sizeof *pci);
    pci->device.ops = &pci_ops;
    pci->mmio = mmio;
    memcpy(pci->pins, pins, sizeof pci->pins);
    pci->route = route;
    pci->reset = reset;
    pci->reset_opaque = opaque;
    pci->next_bar = PCI_WINDOW_BASE;

    /* A bridge of no known chipset (Red Hat's generic one): no driver has quirks for it. */
    bridge->name = "host bridge";
    pci_put16(bridge->config, PCI_VENDOR_ID, 0x1b36);
    pci_put16(bridge->config, PCI_DEVICE_ID, 0x0008);
    bridge->config[PCI_CLASS] = 0x06;
    bridge->bus = pci;
    memcpy(bridge->reset_config, bridge->config, PCI_CONFIG_BYTES);
    pci->slot[0] = bridge;
}

bool pci_is_config_port(uint64_t port)
{
    return port >= PORT_BASE + PORT_DATA && port < PORT_BASE + PORT_COUNT;
}

int pci_attach(struct pci_bus *pci, struct bus *pio, struct err *e)
{
    struct bus_range range = {
        .base = PORT_BASE, .size = PORT_COUNT, .ops = &port_ops, .dev = pci, .name = "pci"};

    return bus_add(pio, &range, e);
}

static int assign_bars(struct pci_bus *pci, struct pci_device *dev, struct err *e)
{
    for (unsigned i = 0; i < PCI_BARS; i++) {
        uint64_t size = dev->bar[i].size;
        uint64_t base = dev->bar[i].base;

        if (!size)
            continue;
        assert(size >= 4096 && !(size & (size - 1)) && !(base & (size - 1)));
        if (!base)
            base = (pci->next_bar + size - 1) & ~(size - 1);
        if (base + size > PCI_WINDOW_END)
            return err_set(e, STATUS_ERROR,
                           "no room for the memory of PCI device %s: give fewer "
                           "devices",
                           dev->name);
        pci_put32(dev->config, PCI_BAR_0 + 4 * i, (uint32_t)base);
        pci_put32(dev->writable, PCI_BAR_0 + 4 * i, (uint32_t) ~(size - 1));
        if (!dev->bar[i].base)
            pci->next_bar = base + size;
    }
    return 0;
}

int pci_add(struct pci_bus *pci, struct pci_device *dev, struct err *e)
{
    unsigned slot = 1;

    while (slot < PCI_SLOTS && pci->slot[slot])
        slot++;
    if (slot == PCI_SLOTS)
        return err_set(e, STATUS_USAGE, "no PCI slot is left for %s: give at most %d devices",
                       dev->name, PCI_SLOTS - 1);
    dev->bus = pci;
    dev->slot = slot;
    dev->irq = pci->route(slot, 0);
    assert(dev->irq < PCI_IRQS);
    if (assign_bars(pci, dev, e) < 0)
        return -1;
    dev->config[PCI_INTERRUPT_PIN] = 1;
    dev->config[PCI_INTERRUPT_LINE] = (uint8_t)dev->irq;
    pci_put16(dev->config, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
    pci_put16(dev->writable, PCI_COMMAND,
              PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_INTX_OFF);
    /* Scratch registers that operating systems set and read back. */
    dev->writable[PCI_CACHE_LINE] = 0xff;
    dev->writable[PCI_LATENCY_TIMER] = 0xff;
    dev->writable[PCI_INTERRUPT_LINE] = 0xff;
    memcpy(dev->reset_config, dev->config, PCI_CONFIG_BYTES);

    for (unsigned i = 0; i < PCI_BARS; i++) {
        if (dev->bar[i].size && map_bar(dev, i, e) < 0) {
            while (i--)
                unmap_bar(dev, i);
            return -1;
        }
    }
    pci->slot[slot] = dev;
    return 0;
}
