#include "vmm/pc.h"

#include <assert.h>
#include <string.h>

#include "devices/acpi.h"

#define STATE_VERSION 1

/* ---- the outside world of the devices ---- */

static uint64_t time_now(struct device_time *t)
{
    struct pc_time *time = (struct pc_time *)t;

    time->asked = true;
    return time->now_ns;
}

static uint64_t time_wall(struct device_time *t)
{
    struct pc_time *time = (struct pc_time *)t;

    time->asked = true;
    return time->epoch_ns + time->now_ns;
}

static void on_request(void *opaque, enum machine_request request)
{
    struct pc *pc = opaque;

    pc->config.request(pc->config.opaque, request);
}

static void on_reset(void *opaque)
{
    on_request(opaque, MACHINE_RESET);
}

/* ---- assembly ---- */

static void add_device(struct pc *pc, struct device *device)
{
    assert(pc->device_count < sizeof pc->devices / sizeof *pc->devices);
    pc->devices[pc->device_count++] = device;
}

/* What a PC's firmware leaves behind and kernels rely on: channel 0 of the 8254 counts freely. */
static void run_firmware(struct pc *pc)
{
    bus_write(&pc->pio, 0x43, 1, 0x36); /* channel 0, both bytes, mode 3 */
    bus_write(&pc->pio, 0x40, 1, 0);
    bus_write(&pc->pio, 0x40, 1, 0);
}

static int add_legacy_devices(struct pc *pc, struct err *e)
{
    struct machine_request_pin requests = {.send = on_request, .opaque = pc};
    struct device_time *time = &pc->time.ops;
    struct irqchip *chip = &pc->irqchip;

    irqchip_init(chip);
    pit_init(&pc->pit, irqchip_pin(chip, PIT_IRQ), time);
    rtc_init(&pc->rtc, irqchip_pin(chip, RTC_IRQ), time);
    serial_init(&pc->serial, irqchip_pin(chip, SERIAL_COM1_IRQ), pc->config.transmit,
                pc->config.transmit_opaque);
    i8042_init(&pc->i8042, requests);
    pmtimer_init(&pc->pmtimer, irqchip_pin(chip, PM_SCI_IRQ), time, requests);
    if (irqchip_attach(chip, &pc->pio, e) < 0 || pit_attach(&pc->pit, &pc->pio, e) < 0 ||
        rtc_attach(&pc->rtc, &pc->pio, e) < 0 ||
        serial_attach(&pc->serial, &pc->pio, SERIAL_COM1_PORT, e) < 0 ||
        i8042_attach(&pc->i8042, &pc->pio, e) < 0 || pmtimer_attach(&pc->pmtimer, &pc->pio, e) < 0)
        return -1;
    add_device(pc, &pc->pit.dev);
    add_device(pc, &pc->rtc.dev);
    add_device(pc, &pc->serial.dev);
    add_device(pc, &pc->i8042.dev);
    add_device(pc, &pc->pmtimer.dev);
    run_firmware(pc);
    return 0;
}

static int add_pci_devices(struct pc *pc, struct err *e)
{
    struct irq_pin pins[PCI_IRQS];

    for (unsigned irq = 0; irq < PCI_IRQS; irq++)
        pins[irq] = irqchip_pin(&pc->irqchip, irq);
    pci_init(&pc->pci, &pc->mmio, pins, acpi_pci_irq, on_reset, pc);
    if (pci_attach(&pc->pci, &pc->pio, e) < 0)
        return -1;
    add_device(pc, &pc->pci.device);
    if (pc->config.disk) {
        virtio_blk_init(&pc->blk, pc->config.dma, pc->config.disk, "ditto");
        if (virtio_pci_attach(&pc->blk_pci, &pc->blk.vd, "virtio-blk", &pc->pci, e) < 0)
            return -1;
        add_device(pc, &pc->blk.vd.device);
    }
    virtio_rng_init(&pc->rng, pc->config.dma, pc->config.entropy, pc->config.opaque);
    if (virtio_pci_attach(&pc->rng_pci, &pc->rng.vd, "virtio-rng", &pc->pci, e) < 0)
        return -1;
    add_device(pc, &pc->rng.vd.device);
    return 0;
}

int pc_init(struct pc *pc, const struct pc_config *config, struct err *e)
{
    memset(pc, 0, sizeof *pc);
    pc->config = *config;
    pc->time = (struct pc_time){
        .ops = {.now = time_now, .wall = time_wall},
        .epoch_ns = config->epoch_ns,
    };
    if (add_legacy_devices(pc, e) < 0 || add_pci_devices(pc, e) < 0)
        return -1;
    /* Last: devices that are restored move their lines, and the chip's state holds what it has made
     * of all that by then. */
    add_device(pc, &pc->irqchip.dev);
    return 0;
}

/* ---- accesses ---- */

bool pc_is_pm_timer(const struct vcpu_exit *exit)
{
    return exit->kind == EXIT_PIO_IN && exit->at >= PM_TIMER_PORT && exit->at < PM_TIMER_PORT + 4;
}

bool pc_serve(struct pc *pc, const struct vcpu_exit *exit, uint64_t now)
{
    const bool mmio = exit->kind == EXIT_MMIO_READ || exit->kind == EXIT_MMIO_WRITE;
    const bool write = exit->kind == EXIT_PIO_OUT || exit->kind == EXIT_MMIO_WRITE;
    const struct bus *bus = mmio ? &pc->mmio : &pc->pio;

    assert(mmio || exit->kind == EXIT_PIO_IN || exit->kind == EXIT_PIO_OUT);
    pc->time.now_ns = now;
    pc->time.asked = false;
    for (unsigned i = 0; i < exit->count; i++) {
        uint8_t *data = exit->data + i * exit->size;
        uint64_t value = 0;
        if (write) {
            memcpy(&value, data, exit->size);
            bus_write(bus, exit->at, exit->size, value);
        } else {
            value = bus_read(bus, exit->at, exit->size);
            memcpy(data, &value, exit->size);
        }
    }
    return pc->time.asked && !pc_is_pm_timer(exit);
}

/* ---- time ---- */

uint64_t pc_deadline(struct pc *pc, uint64_t now)
{
    uint64_t first = NEVER;

    pc->time.now_ns = now;
    for (unsigned i = 0; i < pc->device_count; i++) {
        const struct device_ops *ops = pc->devices[i]->ops;
        uint64_t at = ops->deadline ? ops->deadline(pc->devices[i]) : NEVER;
        if (at < first)
            first = at;
    }
    return first;
}

void pc_poll(struct pc *pc, uint64_t now)
{
    pc->time.now_ns = now;
    for (unsigned i = 0; i < pc->device_count; i++)
        if (pc->devices[i]->ops->poll)
            pc->devices[i]->ops->poll(pc->devices[i], now);
}

/* ---- state ---- */

void pc_save(const struct pc *pc, struct bytes *out)
{
    bytes_put_u8(out, STATE_VERSION);
    bytes_put_u64(out, pc->time.now_ns);
    bytes_put_u64(out, pc->time.epoch_ns);
    bytes_put_u8(out, (uint8_t)pc->device_count);
    for (unsigned i = 0; i < pc->device_count; i++)
        pc->devices[i]->ops->save(pc->devices[i], out);
}

int pc_restore(struct pc *pc, struct cursor *in)
{
    if (cursor_u8(in) != STATE_VERSION)
        return -1;
    pc->time.now_ns = cursor_u64(in); /* first: some devices compare their state with it */
    pc->time.epoch_ns = cursor_u64(in);
    if (cursor_u8(in) != pc->device_count)
        return -1;
    for (unsigned i = 0; i < pc->device_count; i++)
        if (pc->devices[i]->ops->restore(pc->devices[i], in) < 0)
            return -1;
    return in->bad || cursor_left(in) ? -1 : 0;
}
