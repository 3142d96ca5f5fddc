/*
 * The life of a live machine: run the vCPU whose turn it is, serve its exits, deliver interrupts.
 *
 * An interrupt that becomes pending is delivered at the next sync point (which costs nothing to
 * find again in a replay); only when none comes within the grace time is the vCPU stopped at a
 * forced point.
 */
#include "vmm/machine/run_loop.h"

#include <assert.h>
#include <poll.h>
#include <string.h>

#include "base/stop_signals.h"
#include "recording/snapshot.h"
#include "vmm/kvm/cr4.h"
#include "vmm/kvm/msr.h"
#include "vmm/machine/code_watch.h"
#include "vmm/machine/crew/crew.h"
#include "vmm/machine/kernel_hooks.h"
#include "vmm/machine/machine.h"
#include "vmm/machine/pc_access.h"
#include "vmm/machine/reboot.h"
#include "vmm/machine/schedule.h"
#include "vmm/points/written.h"

/* Output of the guest is shown at the latest after this. */
#define OUTPUT_NS 20000000ull
/* Until the #GP hook is in place, look for it at every so many sync points. */
#define HOOK_CHECK_SYNCS 8

static void kick_vcpu(void *opaque)
{
    struct machine *m = opaque;

    vcpu_kick(&m->cpu->vcpu);
}

void machine_want_stop(struct machine *m)
{
    atomic_store(&m->stop_wanted, true);
    if (m->crew)
        crew_ring(m->crew);
}

void machine_stop(struct machine *m)
{
    machine_want_stop(m);
    if (!m->crew)
        vcpu_kick(&m->cpu->vcpu);
}

bool machine_stop_wanted(const struct machine *m)
{
    return atomic_load(&m->stop_wanted);
}

/* ---- time ---- */

/* The console's or a wire's thread has input: bring the vCPU thread out of the guest or out of its
 * sleep. */
static void kick_thread(void *opaque)
{
    kick_send(opaque);
}

static void timer_arm(struct machine *m, uint64_t at_ns)
{
    /* A time of the past fires at once; 0 would switch the timer off. */
    uint64_t host = at_ns == NEVER ? 0 : at_ns + m->start_ns;
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(host / 1000000000u), .tv_nsec = (long)(host % 1000000000u)},
    };

    /* If its time has come since, somebody else may have taken its kick (choose(), whose steps take
     * long on a busy machine), and nothing would ever bring the vCPU out again. */
    if (at_ns == m->armed_ns && at_ns > host_elapsed(m))
        return;
    m->armed_ns = at_ns;
    int rc = timer_settime(m->timer, TIMER_ABSTIME, &spec, NULL);
    assert(rc == 0);
}

static void kick_after(void *opaque, uint64_t ns)
{
    struct machine *m = opaque;

    timer_arm(m, host_elapsed(m) + ns);
}

static void feed_console(struct machine *m)
{
    uint8_t data[SERIAL_FIFO_BYTES];
    size_t room = serial_room(&m->pc.serial);

    if (!room)
        return;
    size_t n = console_peek(m->console, data, room < sizeof data ? room : sizeof data);
    n = serial_receive(&m->pc.serial, data, n);
    recorder_received(m->recorder, data, n);
    console_consume(m->console, n);
}

/* The init of a machine that runs a command waits for input: there is some, or no more. */
static void ring_for_input(struct machine *m)
{
    static const uint8_t bell = '\n';
    struct command_device *port = &m->pc.command;

    if (!port->waits || !command_streams_have_input(m->config.command) ||
        !serial_receive(&m->pc.serial, &bell, 1))
        return;
    recorder_received(m->recorder, &bell, 1);
    port->waits = false;
}

uint64_t update_devices(struct machine *m, uint64_t now)
{
    const uint64_t device_ns = device_at(m, now);
    uint64_t deadline = pc_deadline(&m->pc, device_ns);

    if (deadline <= device_ns) {
        pc_poll(&m->pc, device_ns);
        recorder_time(m->recorder, device_ns);
        deadline = pc_deadline(&m->pc, device_ns);
    }
    if (m->config.command)
        ring_for_input(m);
    else if (console_has_input(m->console))
        feed_console(m);
    if (console_wants_to_leave(m->console))
        atomic_store(&m->stop_wanted, true);
    return host_when(m, deadline);
}

/* ---- delivery at a sync point ---- */

bool hook_is_due(struct machine *m, struct machine_cpu *cpu)
{
    struct gp_hook hook;
    uint64_t gate_gpa;
    uint8_t gate[16];

    if (m->hook.rip || m->syncs_to_hook_check-- > 0)
        return false;
    m->syncs_to_hook_check = HOOK_CHECK_SYNCS;
    return gphook_prepare(&cpu->vcpu, &hook, &gate_gpa, gate);
}

void install_hook(struct machine *m, struct machine_cpu *cpu)
{
    struct gp_hook hook;
    uint64_t gate_gpa;
    uint8_t gate[16];

    if (m->hook.rip || !gphook_prepare(&cpu->vcpu, &hook, &gate_gpa, gate))
        return;
    m->hook = hook;
    m->dma.dma.write(&m->dma.dma, gate_gpa, gate, sizeof gate);
    recorder_hook(m->recorder, &m->hook);
}

/*
 * Whether something can be injected where the vCPU stands. Its instruction is finished first: if
 * that ends in an exception, KVM forgets an interrupt that was injected before it. With CPUs that
 * run at the same time that would take memory of others; only what an MSR or CR4 has raised is
 * known there.
 */
static int can_inject(const struct machine *m, struct machine_cpu *cpu, bool *can, struct err *e)
{
    struct vcpu *vcpu = &cpu->vcpu;

    *can = !cpu->fault_pending;
    if (!*can || m->crew)
        return 0;
    if (vcpu_complete(vcpu, e) < 0)
        return -1;
    *can = !vcpu_is_halfway(vcpu) && vcpu_exception_pending(vcpu) < 0;
    return 0;
}

int deliver(struct machine *m, struct machine_cpu *cpu, struct err *e)
{
    bool pending = pc_irq_pending(&m->pc, cpu->vcpu.index), can = false;

    if ((cpu->nmi || (pending && vcpu_interruptible(&cpu->vcpu))) &&
        can_inject(m, cpu, &can, e) < 0)
        return -1;
    if (cpu->nmi && can) {
        recorder_nmi(m->recorder);
        vcpu_inject_nmi(&cpu->vcpu);
        cpu->nmi = false;
    }
    if (pending && can && vcpu_interruptible(&cpu->vcpu)) {
        uint8_t vector = pc_irq_acknowledge(&m->pc, cpu->vcpu.index);
        recorder_interrupt(m->recorder, vector);
        vcpu_inject(&cpu->vcpu, vector);
        m->stats.interrupts++;
        pending = pc_irq_pending(&m->pc, cpu->vcpu.index);
    }
    if (pending != cpu->window) {
        recorder_window(m->recorder, pending);
        cpu->window = pending;
    }
    m->forced_window = cpu->fault_pending = false;
    m->pending_ns = m->retry_ns = m->retry_after_ns = 0;
    m->entry_wanted = false;
    vcpu_want_window(&cpu->vcpu, cpu->window);
    return 0;
}

/* ---- exits ---- */

/* A port or MMIO access. */
static void serve(struct machine *m, const struct machine_cpu *cpu, const struct vcpu_exit *exit)
{
    const struct bus_access access = access_of(cpu->vcpu.index, exit);
    const uint64_t now = device_now(m);
    const bool showed_time = pc_serve(&m->pc, &access, now);

    if (showed_time)
        recorder_time(m->recorder, now);
    if (!access.write)
        recorder_input(m->recorder, exit->data, (size_t)exit->size * exit->count);
}

static uint64_t tsc_now(struct machine *m)
{
    return device_now(m); /* a TSC of 1 GHz */
}

static void access_msr(struct machine *m, struct machine_cpu *cpu, const struct vcpu_exit *exit)
{
    uint8_t answer[9] = {0};
    uint64_t value = 0;
    bool ok;

    if (exit->kind == EXIT_WRMSR)
        memcpy(&value, exit->data, sizeof value);
    if (pc_has_msr(&m->pc, (uint32_t)exit->at)) {
        const uint64_t now = device_now(m);
        if (pc_serve_msr(&m->pc, cpu->vcpu.index, (uint32_t)exit->at, exit->kind == EXIT_WRMSR, now,
                         &value, &ok))
            recorder_time(m->recorder, now);
    } else if (exit->kind == EXIT_WRMSR) {
        ok = msr_model_write((uint32_t)exit->at, value);
    } else if (exit->at == MSR_IA32_TSC) {
        value = tsc_now(m);
        ok = true;
    } else {
        ok = msr_model_read((uint32_t)exit->at, &value);
    }
    memcpy(answer, &value, sizeof value);
    answer[8] = !ok;
    recorder_input(m->recorder, answer, sizeof answer);
    vcpu_finish_msr(&cpu->vcpu, value, !ok);
    /* KVM is about to raise #GP: an interrupt injected now would be lost. */
    cpu->fault_pending = !ok;
}

static void handle_trap(struct machine *m, struct machine_cpu *cpu)
{
    uint64_t tsc = 0;

    if (cpu->trap.kind == TRAP_RDTSC) {
        tsc = tsc_now(m);
        recorder_tsc(m->recorder, tsc);
    }
    gphook_finish(&cpu->vcpu, &cpu->trap, tsc);
}

/* ---- snapshots ---- */

static void note_pause(struct machine *m, uint64_t ns)
{
    m->stats.snapshot_ns += ns;
    if (ns > m->stats.snapshot_max_ns)
        m->stats.snapshot_max_ns = ns;
}

static bool snapshot_is_due(const struct machine *m, uint64_t now)
{
    const bool is_time = m->config.snapshot_ns && now >= m->snapshot_at_ns;

    return m->recorder && (is_time || control_wants_snapshot(m->control)) && !m->ended &&
           !machine_stop_wanted(m) && recorder_can_snapshot(m->recorder);
}

/* At a sync point of which there is no event yet. */
static int take_snapshot(struct machine *m, uint64_t now, struct err *e)
{
    const bool asked = control_wants_snapshot(m->control);
    char name[SNAPSHOT_NAME_MAX + 1] = "";
    struct bytes devices = {0};
    const struct recorder_state state = {
        .name = name,
        .hook = m->hook,
        .dlab = m->pc.serial.lcr & SERIAL_LCR_DLAB,
        .loopback = m->pc.serial.mcr & SERIAL_MCR_LOOPBACK,
        .devices = m->kexec_began || m->config.command ? NULL : &devices, /* replay/live/ */
    };

    if (asked && !control_snapshot_name(m->control, name))
        return 0;
    disks_settle(&m->disks);
    pc_save(&m->pc, &devices);
    const int taken = recorder_snapshot(m->recorder, &m->vm, &state, e);
    bytes_free(&devices);
    if (taken <= 0)
        return taken;
    if (asked)
        control_snapshot_taken(m->control, recorder_snapshot_name(m->recorder),
                               recorder_syncs(m->recorder));
    const uint64_t took = host_elapsed(m) - now;
    m->snapshot_at_ns = now + took + m->config.snapshot_ns;
    note_pause(m, took);
    return 0;
}

/* ---- asleep ---- */

/* All CPUs have halted: sleep until a device has something to say. Guest time that passes here
 * costs a replay nothing. */
static int wait_for_interrupt(struct machine *m, struct err *e)
{
    sigset_t block, old;
    int rc = 0;

    console_flush(m->console);
    /* Kicks and the user's signals are let in by ppoll() only, so that none is lost between test
     * and sleep. */
    sigemptyset(&block);
    sigaddset(&block, KICK_SIGNAL);
    pthread_sigmask(SIG_BLOCK, &block, &old);
    stop_signals_block();
    for (;;) {
        uint64_t now = host_elapsed(m);
        if (snapshot_is_due(m, now)) {
            rc = take_snapshot(m, now, e);
            if (rc < 0)
                break;
            now = host_elapsed(m);
        }
        uint64_t deadline = update_devices(m, now);
        take_arrivals(m);
        if (schedule_next(m, now) || machine_stop_wanted(m))
            break;
        rc = recorder_epoch(m->recorder, now, e);
        if (rc < 0)
            break;
        deadline = earlier(deadline, recorder_epoch_due(m->recorder));
        struct timespec ts, *timeout = NULL;
        if (deadline != NEVER) {
            uint64_t left = deadline > now ? deadline - now : 0;
            ts = (struct timespec){.tv_sec = (time_t)(left / 1000000000u),
                                   .tv_nsec = (long)(left % 1000000000u)};
            timeout = &ts;
        }
        ppoll(NULL, 0, timeout, &old);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

void note_task_priority(struct machine *m, struct machine_cpu *cpu)
{
    struct lapic *lapic = pc_lapic(&m->pc, cpu->vcpu.index);

    if (lapic && vcpu_cr8(&cpu->vcpu) != lapic_cr8(lapic))
        lapic_set_cr8(lapic, vcpu_cr8(&cpu->vcpu));
}

void handle_sync(struct machine *m, struct machine_cpu *cpu, struct vcpu_exit *exit)
{
    struct lapic *lapic = pc_lapic(&m->pc, cpu->vcpu.index);
    uint64_t tsc;

    assert(exit->kind <= EXIT_SYNC_LAST);
    if (!m->crew) /* there it was done where the CPU arrived: crew_arrive() */
        gphook_arrive(&cpu->vcpu, &m->hook, exit, &cpu->trap);
    recorder_sync(m->recorder, &cpu->vcpu, exit);
    clock_sync(&cpu->clock);
    m->at_sync = true;
    note_task_priority(m, cpu);
    switch (exit->kind) {
    case EXIT_PIO_IN:
    case EXIT_PIO_OUT:
    case EXIT_MMIO_READ:
    case EXIT_MMIO_WRITE:
        serve(m, cpu, exit);
        if (kernel_hook_exit(m, &cpu->vcpu, exit))
            kernel_hook_serve(m, &cpu->vcpu, exit);
        break;
    case EXIT_RDMSR:
    case EXIT_WRMSR:
        access_msr(m, cpu, exit);
        break;
    case EXIT_RDTSC:
        tsc = tsc_now(m);
        recorder_tsc(m->recorder, tsc);
        vcpu_finish_rdtsc(&cpu->vcpu, exit, tsc);
        break;
    case EXIT_CR4_READ:
    case EXIT_CR4_WRITE:
        cr4_finish(&cpu->vcpu, exit);
        cpu->fault_pending = vcpu_event_pending(&cpu->vcpu);
        break;
    case EXIT_TRAP:
        handle_trap(m, cpu);
        break;
    case EXIT_HLT:
        if (cpu->state == CPU_RUNS && !cpu->starts) /* it may have been sent an INIT meanwhile */
            cpu->state = CPU_HALTED;
        break;
    case EXIT_SHUTDOWN:
        m->ended = END_TRIPLE_FAULT;
        break;
    default:
        break;
    }
    if (lapic && lapic_cr8(lapic) != vcpu_cr8(&cpu->vcpu)) {
        recorder_cr8(m->recorder, lapic_cr8(lapic));
        vcpu_set_cr8(&cpu->vcpu, lapic_cr8(lapic));
    }
}

/* ---- the loop ---- */

/* Whose turn it is from here on; sleeps when nobody can run. */
static int take_turns(struct machine *m, struct err *e)
{
    struct machine_cpu *next = schedule_next(m, host_elapsed(m));

    if (!next && !schedule_can_wake(m)) {
        m->ended = END_HALTED;
        return 0;
    }
    if (!next) {
        if (wait_for_interrupt(m, e) < 0)
            return -1;
        m->left_ns = m->schedule.turn_ns = host_elapsed(m); /* sleep is no part of a turn */
        next = schedule_next(m, host_elapsed(m));
    }
    return next ? schedule_switch(m, next, host_elapsed(m), e) : 0;
}

static int at_sync_point(struct machine *m, uint64_t now, struct err *e)
{
    if (machine_stop_wanted(m)) {
        m->ended = END_STOPPED;
        return 0;
    }
    m->left_ns = now;
    take_arrivals(m);
    written_forget(&m->vm, now);
    if (m->recorder && m->config.digest_ns && now >= m->digest_at_ns) {
        m->digest_at_ns = now + m->config.digest_ns;
        if (recorder_digest(m->recorder, &m->vm, e) < 0)
            return -1;
    }
    if (take_turns(m, e) < 0)
        return -1;
    if (machine_stop_wanted(m) && !m->ended) /* it came while all CPUs had halted */
        m->ended = END_STOPPED;
    if (m->ended)
        return 0;
    if (hook_is_due(m, m->cpu))
        install_hook(m, m->cpu);
    if (code_watch_is_due(m, now))
        code_watch_look(m, &m->cpu->vcpu, now);
    m->at_sync = false;
    return deliver(m, m->cpu, e);
}

uint64_t show_output(struct machine *m, uint64_t now, uint64_t wake)
{
    if (m->output_ns && now >= m->output_ns)
        console_flush(m->console);
    if (!console_has_output(m->console))
        m->output_ns = 0;
    else if (!m->output_ns)
        m->output_ns = now + OUTPUT_NS;
    return m->output_ns ? earlier(m->output_ns, wake) : wake;
}

static int run_once(struct machine *m, struct err *e)
{
    struct vcpu_exit exit;
    uint64_t now = host_elapsed(m);
    bool entered;

    /* Before anything else: there must be no event of this sync point yet. */
    if (m->at_sync && snapshot_is_due(m, now) && take_snapshot(m, now, e) < 0)
        return -1;
    uint64_t wake = update_devices(m, now);
    if (m->at_sync) {
        if (at_sync_point(m, now, e) < 0 || m->ended)
            return m->ended ? 0 : -1;
        wake = earlier(wake, schedule_look(m));
        if (m->cpu->nmi) /* it could not be injected here */
            wake = earlier(wake, now + m->config.grace_ns);
    } else if (consider_forcing(m, now, &wake, e) < 0) {
        return -1;
    }
    if (m->at_sync || m->ended) /* forced just now: deliver first */
        return 0;
    machine_look_for_hypercalls(m, now);
    if (recorder_epoch(m->recorder, now, e) < 0)
        return -1;
    wake = show_output(m, now, earlier(wake, recorder_epoch_due(m->recorder)));
    /* A guest may program its timers faster than we can exit; it still gets to run. */
    timer_arm(m, wake < now + LEAST_RUN_NS ? now + LEAST_RUN_NS : wake);
    if (run_to_entry(m, &exit, &entered, e) < 0)
        return -1;
    m->stats.exits++;
    if (entered) {
        force_point_at_entry(m);
        return 0;
    }
    if (exit.kind == EXIT_KICK || exit.kind == EXIT_STEP) {
        m->stats.kicks++;
        return 0;
    }
    if (exit.kind == EXIT_WINDOW && m->forced_window)
        return force_point_at_window(m, e);
    handle_sync(m, m->cpu, &exit);
    return 0;
}

static int run_in_turns(struct machine *m, enum end_reason *reason, struct err *e)
{
    int rc = 0;

    if (kick_target_begin(&m->kick_target, kick_vcpu, m, e) < 0 ||
        kick_timer_create(&m->timer, e) < 0) {
        kick_target_end(&m->kick_target);
        return -1;
    }
    console_on_input(m->console, kick_thread, &m->kick_target);
    nics_listen(&m->nics, kick_thread, &m->kick_target);
    disks_listen(&m->disks, kick_thread, &m->kick_target);
    control_listen(m->control, m, kick_thread, &m->kick_target);
    m->armed_ns = NEVER;
    m->clock_host.hook = &m->hook;
    m->clock_host.entries = &m->kernel_code.entries;
    m->clock_host.kick_after = kick_after;
    m->clock_host.opaque = m;
    m->clock_host.watches = m->config.grace_ns > 0; /* else it is to be stopped at once */
    if (m->resumed) /* no time has passed since the state was taken down */
        m->start_ns = host_now_ns() - host_when(m, m->pc.time.now_ns);
    m->digest_at_ns = host_elapsed(m) + m->config.digest_ns;
    m->snapshot_at_ns = host_elapsed(m) + m->config.snapshot_ns;
    m->at_sync = true; /* sync point 0: before the first instruction */
    while (rc == 0 && (!m->ended || machine_boots_again(m)))
        rc = m->ended ? machine_boot_again(m, host_elapsed(m), device_now(m), e) : run_once(m, e);
    control_ignore(m->control);
    disks_ignore(&m->disks);
    nics_ignore(&m->nics); /* nobody is there to be kicked any more */
    console_ignore_input(m->console);
    console_flush(m->console);
    timer_delete(m->timer);
    kick_target_end(&m->kick_target);
    *reason = rc < 0 ? END_FAILED : m->ended;
    return rc;
}

int machine_run(struct machine *m, enum end_reason *reason, struct err *e)
{
    const int rc = m->crew ? crew_run(m, reason, e) : run_in_turns(m, reason, e);

    machine_look_for_hypercalls(m, NEVER);
    return rc;
}
