#ifndef VMM_MACHINE_RUN_LOOP_H
#define VMM_MACHINE_RUN_LOOP_H

#include "vmm/kvm/kick.h"
#include "vmm/machine/control.h"
#include "vmm/machine/machine.h"

/*
 * What the two loops of a live machine have in common: run_loop.c, whose vCPUs take turns on one
 * thread (m->cpu is the one whose turn it is), and crew.c, where each has a thread.
 */

/* An interrupt, or another vCPU, that has waited so long stops the vCPU wherever it is. */
#define HURRY_NS 1500000000ull
/* The same while Linux patches itself: it works for seconds there on a busy host, nobody waits for
 * the interrupt, and what it works on tells places of its code apart so late that a replay looks at
 * tens of thousands of passes. */
#define HURRY_PATCHING_NS (8 * HURRY_NS)
/* How long a vCPU runs on when no forced point could be chosen where it stood: next_retry(). */
#define RETRY_FIRST_NS 250000ull
#define RETRY_LAST_NS  8000000ull
/* How long a vCPU runs at least between two kicks. */
#define LEAST_RUN_NS 50000ull

/*
 * The machine has two clocks, the same unless it is to be slow (machine_config.slow). Its devices
 * and what its guest reads of time are in *device time*. How long the guest is waited for, runs, or
 * stands still is in the host's: ns since device time was 0.
 */
static inline uint64_t host_elapsed(const struct machine *m)
{
    return host_now_ns() - m->start_ns;
}

/* Device time, when so much of the host's has elapsed. */
static inline uint64_t device_at(const struct machine *m, uint64_t elapsed_ns)
{
    return elapsed_ns / m->config.slow;
}

static inline uint64_t device_now(const struct machine *m)
{
    return device_at(m, host_elapsed(m));
}

/* When, of the host's time that has elapsed, it is that device time; NEVER is never. */
static inline uint64_t host_when(const struct machine *m, uint64_t device_ns)
{
    return device_ns > NEVER / m->config.slow ? NEVER : device_ns * m->config.slow;
}

/* Whether something has come that can be taken at a sync point: frames, blocks, marks. Any time. */
static inline bool arrivals_wait(struct machine *m)
{
    return nics_have_frames(&m->nics) || disks_have_done(&m->disks) || control_waits(m->control);
}

/* The machine stands at a sync point: it is taken. */
static inline void take_arrivals(struct machine *m)
{
    nics_exchange(&m->nics);
    disks_complete(&m->disks);
    control_serve(m->control);
}

static inline uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Twice as long as the last time (0: there was none), so that a guest that stands in a long REP
 * MOVS gets on even where an exit is expensive. */
static inline uint64_t next_retry(uint64_t last_ns)
{
    return last_ns < RETRY_FIRST_NS / 2 ? RETRY_FIRST_NS : earlier(2 * last_ns, RETRY_LAST_NS);
}

/* Whether the user wants the machine to end. */
bool machine_stop_wanted(const struct machine *m);
/* Everything the outside world does to the devices by now. Returns when something is to be done
 * next: both are the host's time. */
uint64_t update_devices(struct machine *m, uint64_t now);
/* CR8 and the task priority of the APIC are one thing: what the CPU did to it since its last exit
 * is seen here, and what it did by way of the APIC in handle_sync(). */
void note_task_priority(struct machine *m, struct machine_cpu *cpu);
/* Record a sync point, and do what the guest wants there. */
void handle_sync(struct machine *m, struct machine_cpu *cpu, struct vcpu_exit *exit);
/* What waits for the CPU at the sync point where it stands, before it runs on. -1: KVM failed. */
int deliver(struct machine *m, struct machine_cpu *cpu, struct err *e);
/* Whether the #GP hook (vmm/points/gphook.h) is not in place, and can be. To be asked at every sync
 * point: it looks at some of them. */
bool hook_is_due(struct machine *m, struct machine_cpu *cpu);
/* Put it there, if it is so. */
void install_hook(struct machine *m, struct machine_cpu *cpu);
/* forcing.c: between sync points, an interrupt, another CPU, or the user's wish to stop, that waits
 * too long forces one. *wake becomes earlier if something is to be done before it. */
int consider_forcing(struct machine *m, uint64_t now, uint64_t *wake, struct err *e);
/* Run the vCPU. *entered: to where it has just entered its kernel, as that was waited for; then a
 * point is to be forced there. */
int run_to_entry(struct machine *m, struct vcpu_exit *exit, bool *entered, struct err *e);
void force_point_at_entry(struct machine *m);
/* The interrupts that are on again were waited for. */
int force_point_at_window(struct machine *m, struct err *e);
/* A prompt has no line end: what is held back is shown after a moment. Returns the earlier of
 * `wake` and that moment. */
uint64_t show_output(struct machine *m, uint64_t now, uint64_t wake);

#endif
