#include "vmm/machine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "devices/acpi.h"
#include "recorder/symbols.h"
#include "vmm/boot.h"
#include "vmm/boot_elf.h"
#include "vmm/kallsyms.h"
#include "vmm/rdtsc_sites.h"

#define ACPI_BASE 0xe0000u
#define CR0_BOOT  0x80050033ull /* PG AM WP NE ET MP PE, as firmware leaves it */
#define CR4_PAE   (1ull << 5)
#define CR4_TSD   (1ull << 2)
#define EFER_BOOT 0x500ull /* LME, LMA */
#define RDTSC_MAX 4096

/* ---- the outside world of the devices ---- */

static uint64_t time_now(struct device_time *t)
{
    struct machine_time *time = (struct machine_time *)t;

    return host_now_ns() - time->start_ns;
}

static uint64_t time_wall(struct device_time *t)
{
    struct timespec ts;

    (void)t;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void host_entropy(void *opaque, void *buf, size_t len)
{
    (void)opaque;
    while (len) {
        ssize_t n = getrandom(buf, len, 0);
        assert(n > 0 || n == -1);
        if (n <= 0)
            continue;
        buf = (uint8_t *)buf + n;
        len -= (size_t)n;
    }
}

static void on_request(void *opaque, enum machine_request request)
{
    struct machine *m = opaque;

    m->ended = request == MACHINE_POWEROFF ? END_POWEROFF : END_RESET;
}

static void on_reset(void *opaque)
{
    on_request(opaque, MACHINE_RESET);
}

/* ---- assembly ---- */

static void add_device(struct machine *m, struct device *device)
{
    assert(m->device_count < sizeof m->devices / sizeof *m->devices);
    m->devices[m->device_count++] = device;
}

/* What a PC's firmware leaves behind and kernels rely on: channel 0 of the 8254 counts freely. */
static void run_firmware(struct machine *m)
{
    bus_write(&m->pio, 0x43, 1, 0x36); /* channel 0, both bytes, mode 3 */
    bus_write(&m->pio, 0x40, 1, 0);
    bus_write(&m->pio, 0x40, 1, 0);
}

static int add_legacy_devices(struct machine *m, struct err *e)
{
    struct machine_request_pin requests = {.send = on_request, .opaque = m};
    struct device_time *time = &m->time.ops;
    struct irqchip *chip = &m->irqchip;

    irqchip_init(chip);
    pit_init(&m->pit, irqchip_pin(chip, PIT_IRQ), time);
    rtc_init(&m->rtc, irqchip_pin(chip, 8), time);
    serial_init(&m->serial, irqchip_pin(chip, SERIAL_COM1_IRQ), console_put, m->console);
    i8042_init(&m->i8042, requests);
    pmtimer_init(&m->pmtimer, irqchip_pin(chip, PM_SCI_IRQ), time, requests);
    if (irqchip_attach(chip, &m->pio, e) < 0 || pit_attach(&m->pit, &m->pio, e) < 0 ||
        rtc_attach(&m->rtc, &m->pio, e) < 0 ||
        serial_attach(&m->serial, &m->pio, SERIAL_COM1_PORT, e) < 0 ||
        i8042_attach(&m->i8042, &m->pio, e) < 0 || pmtimer_attach(&m->pmtimer, &m->pio, e) < 0)
        return -1;
    add_device(m, &chip->dev);
    add_device(m, &m->pit.dev);
    add_device(m, &m->rtc.dev);
    add_device(m, &m->serial.dev);
    add_device(m, &m->i8042.dev);
    add_device(m, &m->pmtimer.dev);
    run_firmware(m);
    return 0;
}

static int add_pci_devices(struct machine *m, struct err *e)
{
    struct irq_pin pins[PCI_IRQS];

    for (unsigned irq = 0; irq < PCI_IRQS; irq++)
        pins[irq] = irqchip_pin(&m->irqchip, irq);
    pci_init(&m->pci, &m->mmio, pins, acpi_pci_irq, on_reset, m);
    if (pci_attach(&m->pci, &m->pio, e) < 0)
        return -1;
    add_device(m, &m->pci.device);
    if (m->config.disk) {
        virtio_blk_init(&m->blk, &m->dma.dma, m->config.disk, "ditto");
        if (virtio_pci_attach(&m->blk_pci, &m->blk.vd, "virtio-blk", &m->pci, e) < 0)
            return -1;
        add_device(m, &m->blk.vd.device);
    }
    virtio_rng_init(&m->rng, &m->dma.dma, host_entropy, NULL);
    if (virtio_pci_attach(&m->rng_pci, &m->rng.vd, "virtio-rng", &m->pci, e) < 0)
        return -1;
    add_device(m, &m->rng.vd.device);
    return 0;
}

/* ---- the kernel ---- */

static void list_symbols(const struct kallsyms *symbols, struct bytes *out)
{
    uint64_t last = 0, address;

    for (size_t i = 0; i < kallsyms_count(symbols); i++) {
        char type;
        const char *name = kallsyms_symbol(symbols, i, &address, &type);
        symbol_encode(out, &last, address, type, name);
    }
}

/*
 * RDTSC at CPL0 cannot be trapped on stock KVM, so each one in the kernel's text becomes an IN of
 * the same length, which exits; and the CR4 that the kernel starts with gets TSD, which makes
 * RDTSC at CPL3 raise #GP (vmm/gphook.h).
 */
static int patch_kernel(struct machine *m, struct machine_boot *boot, struct err *e)
{
    static const uint8_t rdtsc[2] = {0x0f, 0x31}, in[2] = {0xe5, RDTSC_PORT};
    struct rdtsc_site *sites = calloc(RDTSC_MAX, sizeof *sites);
    struct cr4_site cr4[CR4_SITES_MAX];
    struct err no_symbols; /* a kernel without symbols is fine */
    struct kallsyms *symbols = kallsyms_from_elf(boot->vmlinux, boot->vmlinux_len, &no_symbols);
    size_t count = 0, cr4_count = 0;
    int rc;

    assert(sites);
    rc = rdtsc_sites_in_elf(boot->vmlinux, boot->vmlinux_len, sites, RDTSC_MAX, &count, e);
    if (rc == 0)
        rc = cr4_sites_in_elf(boot->vmlinux, boot->vmlinux_len, symbols, cr4, &cr4_count, e);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        uint8_t *at = guest_memory_at(&m->vm.memory, sites[i].pa, sizeof rdtsc);
        if (sites[i].rdtscp || !at || memcmp(at, rdtsc, sizeof rdtsc))
            continue; /* RDTSCP is #UD in this CPU model */
        memcpy(at, in, sizeof in);
        boot->rdtsc_patched++;
    }
    for (size_t i = 0; rc == 0 && i < cr4_count; i++) {
        void *immediate = guest_memory_at(&m->vm.memory, cr4[i].pa, sizeof cr4[i].patched);
        if (immediate)
            memcpy(immediate, &cr4[i].patched, sizeof cr4[i].patched);
    }
    if (symbols)
        list_symbols(symbols, &boot->symbols);
    kallsyms_free(symbols);
    free(sites);
    return rc;
}

static int remember_code(struct machine *m, const struct machine_boot *boot, struct err *e)
{
    struct elf_view elf;
    struct elf_extent code;
    unsigned position = 0;

    if (elf_open(&elf, boot->vmlinux, boot->vmlinux_len, "kernel", e) < 0)
        return -1;
    while (m->clock_host.stable.count < STABLE_RANGES && elf_next_code(&elf, &position, &code)) {
        const void *text = guest_memory_at(&m->vm.memory, code.pa, code.len);
        uint8_t *copy = text ? malloc(code.len) : NULL;
        if (!copy)
            continue;
        memcpy(copy, text, code.len);
        m->clock_host.stable.range[m->clock_host.stable.count].va = code.va;
        m->clock_host.stable.range[m->clock_host.stable.count].gpa = code.pa;
        m->clock_host.stable.range[m->clock_host.stable.count].len = code.len;
        m->clock_host.stable.range[m->clock_host.stable.count++].bytes = copy;
    }
    return 0;
}

static int set_boot_state(struct machine *m, const struct boot_state *boot, struct err *e)
{
    struct vcpu_state state;

    if (vcpu_state_get(&m->vcpu, &state, e) < 0)
        return -1;
    state.regs = (struct kvm_regs){
        .rip = boot->rip,
        .rsi = boot->rsi,
        .rsp = boot->rsp,
        .rflags = 2,
    };
    struct kvm_sregs *s = &state.sregs;
    s->cs = vcpu_flat_segment(BOOT_CS, true);
    s->ds = s->es = s->fs = s->gs = s->ss = vcpu_flat_segment(BOOT_DS, false);
    s->tr = (struct kvm_segment){.limit = 0xffff, .type = 11, .present = 1};
    s->ldt = (struct kvm_segment){.unusable = 1};
    s->gdt.base = boot->gdt_base;
    s->gdt.limit = boot->gdt_limit;
    s->idt.base = 0;
    s->idt.limit = 0;
    s->cr0 = CR0_BOOT;
    s->cr2 = 0;
    s->cr3 = boot->cr3;
    s->cr4 = CR4_PAE | CR4_TSD;
    s->efer = EFER_BOOT;
    state.fpu = (struct kvm_fpu){.fcw = 0x37f, .mxcsr = 0x1f80};
    return vcpu_state_set(&m->vcpu, &state, e);
}

static int load_kernel(struct machine *m, struct machine_boot *boot, struct err *e)
{
    struct bytes acpi = {0};
    struct boot_state state;
    struct boot_config config = {
        .kernel = m->config.kernel,
        .kernel_len = m->config.kernel_len,
        .initrd = m->config.initrd,
        .initrd_len = m->config.initrd_len,
        .command_line = m->config.command_line,
        .acpi_rsdp = ACPI_BASE,
    };

    if (boot_load(&config, &m->vm.memory, &state, e) < 0)
        return -1;
    acpi_build(&acpi, ACPI_BASE);
    void *tables = guest_memory_at(&m->vm.memory, ACPI_BASE, acpi.len);
    assert(tables);
    memcpy(tables, acpi.data, acpi.len);
    bytes_free(&acpi);
    boot->vmlinux = state.vmlinux;
    boot->vmlinux_len = state.vmlinux_len;
    memcpy(boot->version, state.version, sizeof boot->version);
    if (patch_kernel(m, boot, e) < 0 || remember_code(m, boot, e) < 0)
        return -1;
    return set_boot_state(m, &state, e);
}

int machine_create(struct machine *m, const struct machine_config *config, struct console *console,
                   struct machine_boot *boot, struct err *e)
{
    *m = (struct machine){
        .config = *config,
        .console = console,
        .vm = {.fd = -1, .kvm_fd = -1},
        .vcpu = {.fd = -1},
        .time = {.ops = {.now = time_now, .wall = time_wall}, .start_ns = host_now_ns()},
    };
    *boot = (struct machine_boot){0};
    if (vm_create(&m->vm, config->memory, e) < 0)
        return -1;
    recorded_dma_init(&m->dma, &m->vm.memory, NULL);
    if (vcpu_create(&m->vcpu, &m->vm, 0, 1, e) < 0 ||
        clock_open(&m->clock, config->clock, &m->vcpu, &m->hook, e) < 0 ||
        add_legacy_devices(m, e) < 0 || add_pci_devices(m, e) < 0 || load_kernel(m, boot, e) < 0) {
        free(boot->vmlinux);
        bytes_free(&boot->symbols);
        *boot = (struct machine_boot){0};
        machine_destroy(m);
        return -1;
    }
    return 0;
}

void machine_destroy(struct machine *m)
{
    for (unsigned i = 0; i < m->clock_host.stable.count; i++)
        free(m->clock_host.stable.range[i].bytes);
    clock_close(&m->clock);
    vcpu_destroy(&m->vcpu);
    vm_destroy(&m->vm);
}

int machine_record(struct machine *m, struct recorder *recorder, struct err *e)
{
    struct vcpu_state state;

    m->recorder = recorder;
    recorded_dma_init(&m->dma, &m->vm.memory, recorder);
    if (m->config.snapshot_ns && recorder_follow_memory(recorder, &m->vm, e) < 0)
        return -1;
    if (vcpu_state_get(&m->vcpu, &state, e) < 0)
        return -1;
    return recorder_initial(recorder, &m->vm.memory, &state, 1, e);
}
