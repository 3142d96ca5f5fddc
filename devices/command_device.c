#include "devices/command_device.h"

#include <string.h>

#define STATE_VERSION 1
#define CLASS_NONE    0xff

static uint64_t address_of(uint32_t frame)
{
    return (uint64_t)frame * COMMAND_PAGE;
}

/* The data of a box, a page at a time. False: a page is not the guest's memory. */
static bool move_data(struct command_device *d, const struct command_box *box, bool in,
                      uint8_t *data, uint32_t len)
{
    for (uint32_t at = 0; at < len; at += COMMAND_PAGE) {
        const uint64_t gpa = address_of(box->frame[at / COMMAND_PAGE]);
        const uint32_t n = len - at < COMMAND_PAGE ? len - at : COMMAND_PAGE;
        if ((in ? d->dma->write(d->dma, gpa, data + at, n)
                : d->dma->read(d->dma, gpa, data + at, n)) < 0)
            return false;
    }
    return true;
}

static void give_input(struct command_device *d, uint64_t gpa, const struct command_box *box,
                       uint32_t room)
{
    uint8_t data[COMMAND_DATA_MAX];
    const int got = d->link ? d->link->take(d->link, data, room) : -1;
    const uint32_t len = got < 0 ? COMMAND_INPUT_END : (uint32_t)got;

    d->waits = got == 0;
    if (got > 0 && !move_data(d, box, true, data, len))
        return;
    (void)d->dma->write(d->dma, gpa + offsetof(struct command_box, len), &len, sizeof len);
}

static void take_output(struct command_device *d, uint64_t gpa, const struct command_box *box,
                        uint32_t len)
{
    static const uint32_t end = COMMAND_OUTPUT_END;
    uint8_t data[COMMAND_DATA_MAX];

    if (move_data(d, box, false, data, len) && d->link &&
        !d->link->put(d->link, box->call == COMMAND_STDERR, data, len))
        (void)d->dma->write(d->dma, gpa + offsetof(struct command_box, len), &end, sizeof end);
}

static void open_box(struct command_device *d, uint64_t gpa)
{
    struct command_box box;

    if (d->dma->peek(d->dma, gpa, &box, sizeof box) < 0)
        return;
    const uint32_t len = box.len < COMMAND_DATA_MAX ? box.len : COMMAND_DATA_MAX;
    if (box.call == COMMAND_STDIN)
        give_input(d, gpa, &box, len);
    else if (box.call == COMMAND_STDOUT || box.call == COMMAND_STDERR)
        take_output(d, gpa, &box, len);
}

static void call(struct command_device *d, uint32_t what, uint32_t value)
{
    if (what != COMMAND_BEGINS && what != COMMAND_EXITED && what != COMMAND_FAILED)
        return;
    if (d->link)
        d->link->note(d->link, (enum command_call)what, value);
    if (what != COMMAND_BEGINS)
        machine_request_send(&d->requests, MACHINE_POWEROFF);
}

static void bar_write(void *opaque, uint64_t offset, unsigned size, uint64_t value)
{
    struct command_device *d = opaque;

    if (size == 4 && offset == COMMAND_BOX)
        open_box(d, address_of((uint32_t)value));
    else if (size == 4 && offset == COMMAND_CALL)
        call(d, (uint32_t)value >> COMMAND_CALL_SHIFT,
             (uint32_t)value & ((1u << COMMAND_CALL_SHIFT) - 1));
}

static uint64_t bar_read(void *opaque, uint64_t offset, unsigned size)
{
    (void)opaque, (void)offset, (void)size;
    return 0;
}

int command_device_attach(struct command_device *d, struct pci_bus *bus, struct err *e)
{
    static const struct bus_ops ops = {.read = bar_read, .write = bar_write};
    struct pci_device *pci = &d->pci;

    *pci = (struct pci_device){0};
    pci->name = "command";
    pci_put16(pci->config, PCI_VENDOR_ID, COMMAND_VENDOR);
    pci_put16(pci->config, PCI_DEVICE_ID, COMMAND_DEVICE);
    pci->config[PCI_CLASS] = CLASS_NONE;
    pci_put16(pci->config, PCI_SUBSYSTEM_VENDOR, COMMAND_VENDOR);
    pci_put16(pci->config, PCI_SUBSYSTEM_ID, COMMAND_DEVICE);
    pci->bar[0] =
        (struct pci_bar){.size = COMMAND_BAR_BYTES, .base = COMMAND_BAR, .ops = &ops, .opaque = d};
    return pci_add(bus, pci, e);
}

static void save(const struct device *dev, struct bytes *out)
{
    const struct command_device *d = (const struct command_device *)dev;

    bytes_put_u8(out, STATE_VERSION);
    bytes_put_u8(out, d->waits);
}

static int restore(struct device *dev, struct cursor *in)
{
    struct command_device *d = (struct command_device *)dev;
    const uint8_t version = cursor_u8(in), waits = cursor_u8(in);

    d->waits = waits == 1;
    return version == STATE_VERSION && waits <= 1 && !in->bad ? 0 : -1;
}

void command_device_init(struct command_device *d, struct dma *dma, struct command_link *link,
                         struct machine_request_pin requests)
{
    static const struct device_ops ops = {.name = "command", .save = save, .restore = restore};

    *d = (struct command_device){
        .dev.ops = &ops,
        .dma = dma,
        .link = link,
        .requests = requests,
    };
}
