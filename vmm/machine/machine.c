#include "vmm/machine/machine.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/x86.h"
#include "boot/boot.h"
#include "boot/boot_elf.h"
#include "boot/kallsyms.h"
#include "devices/acpi.h"
#include "recording/streams.h"
#include "recording/symbol.h"
#include "vmm/machine/boot_image.h"
#include "vmm/machine/code_watch.h"
#include "vmm/machine/crew/crew.h"
#include "vmm/machine/schedule.h"
#include "vmm/points/written.h"

#define ACPI_BASE 0xe0000u
#define CR0_BOOT  0x80050033ull /* PG AM WP NE ET MP PE, as firmware leaves it */
#define EFER_BOOT 0x500ull      /* LME, LMA */
#define CODE_MAX  (64u << 20)   /* of one range; the sections of a kernel are far smaller */

/* ---- the outside world of the devices ---- */

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

uint64_t machine_wall_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void on_request(void *opaque, enum machine_request request)
{
    struct machine *m = opaque;

    m->ended = request == MACHINE_POWEROFF ? END_POWEROFF : END_RESET;
}

/* The guest names the place where it is. */
static void on_mark(void *opaque, const char *text)
{
    struct machine *m = opaque;

    machine_mark(m, text, true);
}

bool machine_mark(struct machine *m, const char *text, bool by_guest)
{
    const uint64_t now_ns = (host_now_ns() - m->start_ns) / m->config.slow;
    const bool made = recorder_mark(m->recorder, text, by_guest, now_ns);

    if (!made && m->recorder && !m->marks_left_out) {
        m->marks_left_out = true;
        fprintf(stderr,
                "dittovm: the recording has %u marks, as many as it may have; later ones are "
                "left out\n",
                MARKS_MAX);
    }
    return made;
}

/* What one CPU does to another (or to itself) by its local APIC. */
static void on_cpu_request(void *opaque, unsigned index, enum cpu_request request, uint8_t vector)
{
    struct machine *m = opaque;
    struct machine_cpu *cpu = &m->cpus[index];

    switch (request) {
    case CPU_INIT:
        cpu->state = CPU_STOPPED;
        cpu->nmi = false;
        break;
    case CPU_STARTUP:
        if (cpu->state != CPU_STOPPED)
            break;
        cpu->state = CPU_RUNS;
        cpu->starts = true;
        cpu->start_vector = vector;
        break;
    case CPU_NMI:
        cpu->nmi = cpu->state != CPU_STOPPED;
        break;
    }
}

static int make_devices(struct machine *m, struct err *e)
{
    struct pc_config config = {
        .dma = &m->dma.dma,
        .disks = m->config.disks,
        .epoch_ns = m->config.wall_ns ? m->config.wall_ns : machine_wall_ns(),
        .transmit = m->config.command ? command_streams_log : console_put,
        .transmit_opaque = m->config.command ? (void *)m->config.command : m->console,
        .has_command = m->config.command != NULL,
        .command = m->config.command ? &m->config.command->link : NULL,
        .entropy = host_entropy,
        .cpus = m->config.cpus,
        .request = on_request,
        .cpu_request = on_cpu_request,
        .mark = on_mark,
        .opaque = m,
    };

    recorded_dma_init(&m->dma, &m->vm.memory, NULL);
    m->start_ns = host_now_ns();
    if (nics_open(&m->nics, &m->pc, m->config.nics, m->config.nic_count, e) < 0)
        return -1;
    disks_open(&m->disks, &m->pc);
    for (unsigned i = 0; i < MAX_DISKS; i++)
        config.disk_links[i] = disks_link(&m->disks, i);
    config.nic_count = m->config.nic_count;
    for (unsigned i = 0; i < config.nic_count; i++) {
        config.nics[i].link = nics_link(&m->nics, i);
        memcpy(config.nics[i].mac, m->config.nics[i].mac, sizeof config.nics[i].mac);
    }
    return pc_init(&m->pc, &config, e);
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

static bool is_linux(const struct machine_boot *boot, const struct kallsyms *symbols)
{
    static const char banner[] = "Linux version ";

    return symbols || boot->version[0] ||
           memmem(boot->vmlinux, boot->vmlinux_len, banner, sizeof banner - 1);
}

static int patch_kernel(struct machine *m, struct machine_boot *boot, struct err *e)
{
    struct err no_symbols; /* what there is not then, is a doubt */
    struct kallsyms *symbols = kallsyms_from_elf(boot->vmlinux, boot->vmlinux_len, &no_symbols);
    const int rc = kernel_code_patch(&m->vm.memory, boot->vmlinux, boot->vmlinux_len, symbols,
                                     is_linux(boot, symbols), &m->kernel_code, e);

    if (symbols)
        list_symbols(symbols, &boot->symbols);
    kallsyms_free(symbols);
    return rc;
}

void machine_trust_code(struct machine *m, uint64_t va, uint64_t gpa, uint64_t len)
{
    struct stable_code *stable = &m->clock_host.stable;
    const bool fits = len && len <= CODE_MAX;
    const void *text = fits ? guest_memory_at(&m->vm.memory, gpa, len) : NULL;
    uint8_t *copy = text && stable->count < STABLE_RANGES ? malloc(len) : NULL;

    if (!copy)
        return;
    memcpy(copy, text, len);
    stable->range[stable->count].va = va;
    stable->range[stable->count].gpa = gpa;
    stable->range[stable->count].len = len;
    stable->range[stable->count++].bytes = copy;
}

void machine_forget_code(struct machine *m)
{
    struct stable_code *stable = &m->clock_host.stable;

    while (stable->count)
        free(stable->range[--stable->count].bytes);
}

void machine_trust_kernel(struct machine *m, const struct elf_view *elf, uint64_t moved)
{
    struct elf_extent code;
    unsigned position = 0;

    while (elf_next_code(elf, &position, &code))
        machine_trust_code(m, code.va, code.pa + moved, code.len);
}

static int set_boot_state(struct machine *m, const struct boot_state *boot, struct err *e)
{
    struct vcpu_state state;

    if (vcpu_state_get(&m->cpus[0].vcpu, &state, e) < 0)
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
    s->cr4 = CR4_PAE;
    s->efer = EFER_BOOT;
    state.fpu = (struct kvm_fpu){.fcw = 0x37f, .mxcsr = MXCSR_RESET};
    return vcpu_state_set(&m->cpus[0].vcpu, &state, e);
}

static int load_kernel(struct machine *m, struct machine_boot *boot, struct err *e)
{
    struct bytes acpi = {0};
    struct boot_state state;
    struct elf_view elf;
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
    acpi_build(&acpi, ACPI_BASE, m->config.cpus);
    void *tables = guest_memory_at(&m->vm.memory, ACPI_BASE, acpi.len);
    assert(tables);
    memcpy(tables, acpi.data, acpi.len);
    bytes_free(&acpi);
    boot->vmlinux = state.vmlinux;
    boot->vmlinux_len = state.vmlinux_len;
    memcpy(boot->version, state.version, sizeof boot->version);
    if (patch_kernel(m, boot, e) < 0 ||
        elf_open(&elf, boot->vmlinux, boot->vmlinux_len, "kernel", e) < 0)
        return -1;
    machine_trust_kernel(m, &elf, 0);
    return set_boot_state(m, &state, e);
}

static int create_cpus(struct machine *m, struct err *e)
{
    for (unsigned i = 0; i < m->config.cpus; i++) {
        struct machine_cpu *cpu = &m->cpus[i];
        cpu->state = i ? CPU_STOPPED : CPU_RUNS;
        struct vm *vm = m->config.parallel ? &m->views.vm[i] : &m->vm;
        if (vcpu_create(&cpu->vcpu, vm, i, m->config.cpus, e) < 0)
            return -1;
        cpu->vcpu.owns_tsd = m->config.owns_tsd;
        cpu->vcpu.steps_at_any_window = m->config.parallel;
        if (clock_open(&cpu->clock, m->config.clock, &cpu->vcpu, &m->hook, e) < 0)
            return -1;
    }
    return 0;
}

static void begin(struct machine *m, const struct machine_config *config, struct console *console)
{
    *m = (struct machine){
        .config = *config,
        .console = console,
        .vm = {.fd = -1, .kvm_fd = -1},
    };
    assert(config->cpus >= 1 && config->cpus <= MAX_VCPUS);
    assert(config->slow >= 1);
    for (unsigned i = 0; i < MAX_VCPUS; i++)
        m->cpus[i].vcpu.fd = -1;
    m->cpu = m->cpus;
    schedule_init(m, 0);
}

/* vCPUs, clocks and devices, once there is a VM. */
static int equip(struct machine *m, struct err *e)
{
    if (m->config.parallel) {
        if (views_create(&m->views, &m->vm, m->config.cpus, !m->config.loose, e) < 0)
            return -1;
        m->crew = crew_create(m, e);
        if (!m->crew)
            return -1;
    }
    return create_cpus(m, e) < 0 ? -1 : make_devices(m, e);
}

int machine_create(struct machine *m, const struct machine_config *config, struct console *console,
                   struct machine_boot *boot, struct err *e)
{
    begin(m, config, console);
    *boot = (struct machine_boot){0};
    if (vm_create(&m->vm, config->memory, e) < 0)
        return -1;
    int rc = equip(m, e) < 0 ? -1 : load_kernel(m, boot, e);
    if (rc == 0 && config->reboots) {
        m->boot_image = boot_image_take(&m->vm, &m->kernel_code, e);
        rc = m->boot_image ? 0 : -1;
    }
    if (rc < 0) {
        free(boot->vmlinux);
        bytes_free(&boot->symbols);
        *boot = (struct machine_boot){0};
        machine_destroy(m);
        return -1;
    }
    return 0;
}

void machine_state_free(struct machine_state *state)
{
    guest_memory_destroy(&state->memory);
    bytes_free(&state->devices);
}

static int resume(struct machine *m, const struct machine_state *state, struct err *e)
{
    struct cursor devices = cursor_of(state->devices.data, state->devices.len);

    if (equip(m, e) < 0)
        return -1;
    if (pc_restore(&m->pc, &devices) < 0)
        return err_set(e, STATUS_ERROR, "the state of the devices is not one of this machine's");
    if (m->config.wall_ns)
        pc_set_wall(&m->pc, m->config.wall_ns);
    m->hook = state->hook;
    m->cpu->state = state->halted ? CPU_HALTED : CPU_RUNS;
    m->cpu->fault_pending = vcpu_pending_fault(&state->pending);
    m->resumed = true;
    if (vcpu_state_set(&m->cpu->vcpu, &state->cpu, e) < 0 ||
        vcpu_pending_set(&m->cpu->vcpu, &state->pending, e) < 0)
        return -1;
    return vcpu_complete(&m->cpu->vcpu, e); /* for what KVM says in kvm_run about interrupts */
}

int machine_create_from(struct machine *m, const struct machine_config *config,
                        struct console *console, struct machine_state *state, struct err *e)
{
    assert(config->cpus == 1);
    begin(m, config, console);
    m->config.memory = state->memory.size;
    if (vm_create_around(&m->vm, &state->memory, e) < 0)
        return -1;
    if (resume(m, state, e) < 0) {
        machine_destroy(m);
        return -1;
    }
    return 0;
}

/* Whether doubts of this kind have been said often enough: later ones would say the same. */
static bool is_said(struct machine *m, const char *kind)
{
    struct doubts_said *said = m->doubts;

    for (; said->kind && said->kind != kind; said++)
        assert(said + 1 < m->doubts + DOUBT_KINDS);
    said->kind = kind;
    return said->times++ >= DOUBTS_SAID;
}

void machine_doubt(struct machine *m, const char *format, ...)
{
    char text[DOUBT_MAX + 1];
    va_list arguments;

    if (is_said(m, format))
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    recorder_doubt(m->recorder, text);
    fprintf(stderr, "dittovm: the replay may diverge: %s\n", text);
}

void machine_forced(struct machine *m, const struct landmark *l)
{
    if (!m->recorder || l->exact || l->counted || l->entry == ENTRY_HERE || m->forced_inexactly)
        return;
    m->forced_inexactly = true;
    machine_doubt(m, "so much memory was written before a forced point that not all of it can be "
                     "compared there, and so perhaps before later ones");
}

void machine_look_for_hypercalls(struct machine *m, uint64_t now)
{
    if (hypercalls_look(&m->hypercalls, now))
        machine_doubt(m,
                      "the guest has made hypercalls (VMCALL), %llu by now, which KVM answers by "
                      "itself, perhaps with the host's time",
                      (unsigned long long)m->hypercalls.made);
}

void machine_destroy(struct machine *m)
{
    machine_forget_code(m);
    for (unsigned i = 0; i < MAX_VCPUS; i++) {
        clock_close(&m->cpus[i].clock);
        vcpu_destroy(&m->cpus[i].vcpu);
    }
    hypercalls_close(&m->hypercalls);
    code_watch_destroy(m->code_watch);
    boot_image_free(m->boot_image);
    crew_destroy(m->crew);
    views_destroy(&m->views);
    nics_close(&m->nics);
    disks_close(&m->disks);
    pc_close(&m->pc);
    vm_destroy(&m->vm);
}

int machine_record(struct machine *m, struct recorder *recorder, struct err *e)
{
    struct initial_vcpu cpus[MAX_VCPUS];
    struct initial_state initial = {
        .memory = &m->vm.memory,
        .cpus = cpus,
        .cpu_count = m->config.cpus,
        .disk = m->config.disks ? m->config.disks->whole : NULL,
        .dlab = m->pc.serial.lcr & SERIAL_LCR_DLAB,
        .loopback = m->pc.serial.mcr & SERIAL_MCR_LOOPBACK,
    };

    m->recorder = m->nics.recorder = m->disks.recorder = recorder;
    if (m->config.owns_tsd) /* else accesses to CR4 are to stay as they are */
        m->code_watch = code_watch_create();
    recorded_dma_init(&m->dma, &m->vm.memory, recorder);
    if (!m->config.parallel && recorder_follow_memory(recorder, &m->vm, e) < 0)
        return -1;
    if (!m->config.parallel && written_follow(&m->vm, e) < 0)
        return -1;
    for (unsigned i = 0; m->config.parallel && i < m->config.cpus; i++)
        if (written_follow(&m->views.vm[i], e) < 0)
            return -1;
    for (unsigned i = 0; i < m->config.cpus; i++)
        if (vcpu_state_get(&m->cpus[i].vcpu, &cpus[i].state, e) < 0 ||
            vcpu_pending_get(&m->cpus[i].vcpu, &cpus[i].pending, e) < 0)
            return -1;
    for (unsigned i = 0; i < m->config.cpus; i++)
        hypercalls_add(&m->hypercalls, &m->cpus[i].vcpu);
    pc_save(&m->pc, &initial.devices);
    int rc = recorder_initial(recorder, &initial, e);
    bytes_free(&initial.devices);
    if (m->hook.rip)
        recorder_hook(recorder, &m->hook);
    if (m->kernel_code.doubt[0])
        machine_doubt(m, "%s", m->kernel_code.doubt);
    if (m->config.cpu_doubt)
        machine_doubt(m, "%s", m->config.cpu_doubt);
    return rc;
}
