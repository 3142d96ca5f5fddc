#include "devices/pc.h"

#include <assert.h>
#include <string.h>

#include "devices/acpi.h"

#define STATE_VERSION 2 /* 1: before mark_port */

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

/* An interrupt wire leads to the 8259s, and where there is an IOAPIC to that too. */
static void set_wire(void *opaque, unsigned irq, bool level)
{
    struct pc *pc = opaque;

    irqchip_set(&pc->irqchip, irq, level);
    if (pc->apics.ioapic)
        ioapic_set(pc->apics.ioapic, irq == PIT_IRQ ? IOAPIC_TIMER_PIN : irq, level);
}

static struct irq_pin wire(struct pc *pc, unsigned irq)
{
    return (struct irq_pin){.set = set_wire, .chip = pc, .irq = irq};
}

static void on_cpu_request(void *opaque, unsigned cpu, enum cpu_request request, uint8_t vector)
{
    struct pc *pc = opaque;

    pc->config.cpu_request(pc->config.opaque, cpu, request, vector);
}

/* The RTC's alarm is an ACPI event, too. */
static void on_alarm(void *opaque, unsigned irq, bool level)
{
    struct pc *pc = opaque;

    (void)irq;
    if (level)
        pmtimer_rtc_alarm(&pc->pmtimer);
}

/* Where there are several CPUs: before the wires that lead there. */
static int make_apics(struct pc *pc, struct err *e)
{
    apic_bus_init(&pc->apics, (struct cpu_request_pin){.send = on_cpu_request, .opaque = pc});
    if (pc->config.cpus == 1)
        return 0;
    for (unsigned i = 0; i < pc->config.cpus; i++)
        lapic_init(&pc->lapics[i], &pc->apics, &pc->time.ops);
    lapic_virtual_wire(&pc->lapics[0]);
    ioapic_init(&pc->ioapic, &pc->apics, (uint8_t)pc->config.cpus);
    return apic_bus_attach(&pc->apics, &pc->mmio, e) < 0 ? -1
                                                         : ioapic_attach(&pc->ioapic, &pc->mmio, e);
}

/* Last: devices that are restored move their lines, and the state of those that the lines lead to
 * holds what they have made of all that by then. */
static void add_interrupt_controllers(struct pc *pc)
{
    if (pc->apics.ioapic)
        add_device(pc, &pc->ioapic.dev);
    for (unsigned i = 0; i < pc->apics.count; i++)
        add_device(pc, &pc->lapics[i].dev);
    add_device(pc, &pc->irqchip.dev);
}

static int add_legacy_devices(struct pc *pc, struct err *e)
{
    struct machine_request_pin requests = {.send = on_request, .opaque = pc};
    struct device_time *time = &pc->time.ops;
    struct irqchip *chip = &pc->irqchip;

    irqchip_init(chip);
    pit_init(&pc->pit, wire(pc, PIT_IRQ), time);
    rtc_init(&pc->rtc, wire(pc, RTC_IRQ), (struct irq_pin){.set = on_alarm, .chip = pc}, time);
    serial_init(&pc->serial, wire(pc, SERIAL_COM1_IRQ), pc->config.transmit,
                pc->config.transmit_opaque);
    i8042_init(&pc->i8042, requests);
    pmtimer_init(&pc->pmtimer, wire(pc, PM_SCI_IRQ), time, requests);
    mark_port_init(&pc->mark_port,
                   (struct mark_pin){.mark = pc->config.mark, .opaque = pc->config.opaque});
    if (irqchip_attach(chip, &pc->pio, e) < 0 || pit_attach(&pc->pit, &pc->pio, e) < 0 ||
        rtc_attach(&pc->rtc, &pc->pio, e) < 0 ||
        serial_attach(&pc->serial, &pc->pio, SERIAL_COM1_PORT, e) < 0 ||
        i8042_attach(&pc->i8042, &pc->pio, e) < 0 ||
        pmtimer_attach(&pc->pmtimer, &pc->pio, e) < 0 ||
        mark_port_attach(&pc->mark_port, &pc->pio, e) < 0)
        return -1;
    add_device(pc, &pc->pit.dev);
    add_device(pc, &pc->rtc.dev);
    add_device(pc, &pc->serial.dev);
    add_device(pc, &pc->i8042.dev);
    add_device(pc, &pc->pmtimer.dev);
    run_firmware(pc);
    return 0;
}

static int add_command_device(struct pc *pc, struct err *e)
{
    struct machine_request_pin requests = {.send = on_request, .opaque = pc};

    if (!pc->config.has_command)
        return 0;
    command_device_init(&pc->command, pc->config.dma, pc->config.command, requests);
    add_device(pc, &pc->command.dev);
    return command_device_attach(&pc->command, &pc->pci, e);
}

static int add_disk(struct pc *pc, unsigned index, struct err *e)
{
    const struct disk_set *set = pc->config.disks;
    struct pc_disk *d = &pc->disks[index];

    virtio_blk_init(&d->blk, pc->config.dma, set->disk[index], pc->config.disk_links[index],
                    set->serial[index]);
    if (virtio_pci_attach(&d->pci, &d->blk.vd, "virtio-blk", &pc->pci, e) < 0)
        return -1;
    add_device(pc, &d->blk.vd.device);
    return 0;
}

static int add_nics(struct pc *pc, struct err *e)
{
    assert(pc->config.nic_count <= MAX_NICS);
    for (unsigned i = 0; i < pc->config.nic_count; i++) {
        struct pc_nic *nic = &pc->nics[i];
        virtio_net_init(&nic->net, pc->config.dma, pc->config.nics[i].link, pc->config.nics[i].mac);
        if (virtio_pci_attach(&nic->pci, &nic->net.vd, "virtio-net", &pc->pci, e) < 0)
            return -1;
        add_device(pc, &nic->net.vd.device);
    }
    return 0;
}

static int add_pci_devices(struct pc *pc, struct err *e)
{
    struct irq_pin pins[PCI_IRQS];

    for (unsigned irq = 0; irq < PCI_IRQS; irq++)
        pins[irq] = wire(pc, irq);
    pci_init(&pc->pci, &pc->mmio, pins, acpi_pci_irq, on_reset, pc);
    if (pci_attach(&pc->pci, &pc->pio, e) < 0)
        return -1;
    add_device(pc, &pc->pci.device);
    const unsigned disks = pc->config.disks ? pc->config.disks->count : 0;
    if (disks && add_disk(pc, 0, e) < 0)
        return -1;
    virtio_rng_init(&pc->rng, pc->config.dma, pc->config.entropy, pc->config.opaque);
    if (virtio_pci_attach(&pc->rng_pci, &pc->rng.vd, "virtio-rng", &pc->pci, e) < 0)
        return -1;
    add_device(pc, &pc->rng.vd.device);
    /* Behind what there always was, which stays in its slots. */
    for (unsigned i = 1; i < disks; i++)
        if (add_disk(pc, i, e) < 0)
            return -1;
    return add_nics(pc, e);
}

static int make(struct pc *pc, const struct pc_config *config, uint64_t now, struct err *e)
{
    memset(pc, 0, sizeof *pc);
    pc->config = *config;
    pc->time = (struct pc_time){
        .ops = {.now = time_now, .wall = time_wall},
        .now_ns = now,
        .epoch_ns = config->epoch_ns,
    };
    assert(config->cpus >= 1 && config->cpus <= APIC_CPUS_MAX);
    if (make_apics(pc, e) < 0 || add_legacy_devices(pc, e) < 0 || add_pci_devices(pc, e) < 0 ||
        add_command_device(pc, e) < 0)
        return -1;
    add_interrupt_controllers(pc);
    return 0;
}

int pc_init(struct pc *pc, const struct pc_config *config, struct err *e)
{
    return make(pc, config, 0, e);
}

int pc_reset(struct pc *pc, uint64_t now, struct err *e)
{
    struct pc_config config = pc->config;
    const int64_t rtc_offset = pc->rtc.offset;

    config.epoch_ns = pc->time.epoch_ns;
    pc_close(pc);
    if (make(pc, &config, now, e) < 0)
        return -1;
    pc->rtc.offset = rtc_offset;
    rtc_wall_changed(&pc->rtc);
    return 0;
}

void pc_close(struct pc *pc)
{
    for (unsigned i = 0; i < MAX_DISKS; i++)
        virtio_blk_close(&pc->disks[i].blk);
}

/* ---- accesses ---- */

bool pc_is_pm_timer(const struct bus_access *access)
{
    return !access->mmio && !access->write && access->at >= PM_TIMER_PORT &&
           access->at < PM_TIMER_PORT + 4;
}

bool pc_may_use_memory(const struct bus_access *access)
{
    /* Doorbells are in BARs, below the APICs, or are reached by way of configuration space. */
    return access->write &&
           (access->mmio ? access->at < IOAPIC_BASE : pci_is_config_port(access->at));
}

/* What devices are asked from here on, that CPU asks. */
static void begin_access(struct pc *pc, unsigned cpu, uint64_t now)
{
    assert(cpu < pc->config.cpus);
    pc->apics.accessing = cpu;
    pc->time.now_ns = now;
    pc->time.asked = false;
}

bool pc_serve(struct pc *pc, const struct bus_access *access, uint64_t now)
{
    const struct bus *bus = access->mmio ? &pc->mmio : &pc->pio;

    begin_access(pc, access->cpu, now);
    for (unsigned i = 0; i < access->count; i++) {
        uint8_t *data = access->data + i * access->size;
        uint64_t value = 0;
        if (access->write) {
            memcpy(&value, data, access->size);
            bus_write(bus, access->at, access->size, value);
        } else {
            value = bus_read(bus, access->at, access->size);
            memcpy(data, &value, access->size);
        }
    }
    return pc->time.asked && !pc_is_pm_timer(access);
}

bool pc_has_msr(const struct pc *pc, uint32_t msr)
{
    return pc->apics.count &&
           (msr == MSR_IA32_APIC_BASE || (msr >= MSR_X2APIC_FIRST && msr <= MSR_X2APIC_LAST));
}

bool pc_serve_msr(struct pc *pc, unsigned cpu, uint32_t msr, bool write, uint64_t now,
                  uint64_t *value, bool *ok)
{
    struct lapic *lapic = &pc->lapics[cpu];

    begin_access(pc, cpu, now);
    *ok = write ? lapic_write_msr(lapic, msr, *value) : lapic_read_msr(lapic, msr, value);
    return pc->time.asked;
}

/* ---- interrupts ---- */

static bool extint_pending(const struct pc *pc, unsigned cpu)
{
    return (!pc->apics.count || lapic_passes_extint(&pc->lapics[cpu])) &&
           irqchip_pending(&pc->irqchip);
}

bool pc_irq_pending(const struct pc *pc, unsigned cpu)
{
    return extint_pending(pc, cpu) || (pc->apics.count && lapic_pending(&pc->lapics[cpu]));
}

uint8_t pc_irq_acknowledge(struct pc *pc, unsigned cpu)
{
    return extint_pending(pc, cpu) ? irqchip_acknowledge(&pc->irqchip)
                                   : lapic_acknowledge(&pc->lapics[cpu]);
}

struct lapic *pc_lapic(struct pc *pc, unsigned cpu)
{
    return cpu < pc->apics.count ? &pc->lapics[cpu] : NULL;
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

void pc_set_wall(struct pc *pc, uint64_t wall_ns)
{
    pc->time.epoch_ns = wall_ns - pc->time.now_ns;
    rtc_wall_changed(&pc->rtc);
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
    pc->mark_port.dev.ops->save(&pc->mark_port.dev, out);
}

int pc_restore(struct pc *pc, struct cursor *in)
{
    const uint8_t version = cursor_u8(in);

    if (version < 1 || version > STATE_VERSION)
        return -1;
    pc->time.now_ns = cursor_u64(in); /* first: some devices compare their state with it */
    pc->time.epoch_ns = cursor_u64(in);
    if (cursor_u8(in) != pc->device_count)
        return -1;
    for (unsigned i = 0; i < pc->device_count; i++)
        if (pc->devices[i]->ops->restore(pc->devices[i], in) < 0)
            return -1;
    if (version > 1 && pc->mark_port.dev.ops->restore(&pc->mark_port.dev, in) < 0)
        return -1;
    return in->bad || cursor_left(in) ? -1 : 0;
}
