#ifndef VMM_MACHINE_H
#define VMM_MACHINE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/now.h"
#include "devices/bus.h"
#include "devices/device_request.h"
#include "devices/i8042.h"
#include "devices/irqchip.h"
#include "devices/pci.h"
#include "devices/pit.h"
#include "devices/pmtimer.h"
#include "devices/rtc.h"
#include "devices/serial.h"
#include "devices/virtio_blk.h"
#include "devices/virtio_pci.h"
#include "devices/virtio_rng.h"
#include "recorder/recorder.h"
#include "vmm/clock.h"
#include "vmm/console.h"
#include "vmm/vm.h"

/*
 * A live machine: CPU, memory and devices, running plainly or recorded. (A replayed machine is
 * replay/player.h: it has no devices.)
 */
struct machine_config {
    uint64_t memory; /* bytes */
    const void *kernel, *initrd;
    size_t kernel_len, initrd_len;
    const char *command_line;
    struct disk *disk; /* may be NULL; stays the caller's */
    const struct clock_ops *clock;
    uint64_t grace_ns; /* how long an interrupt waits for a sync point before one is forced */
    uint64_t
        digest_ns; /* how often all memory is digested into the recording; 0: at the end only */
    uint64_t snapshot_ns; /* how often a snapshot is put into the recording; 0: never */
};

/* The thread that runs the vCPU, for others to bring it out of the guest or of its sleep. */
struct kick_target {
    pid_t process, thread;
};

/* Clocks as devices see them: ns since the machine was made, and the time of day. */
struct machine_time {
    struct device_time ops;
    uint64_t start_ns;
};

struct machine_stats {
    uint64_t exits, kicks, interrupts, forced, forced_tries;
    uint64_t snapshot_ns, snapshot_max_ns; /* that the machine stood still for them */
};

struct machine {
    struct machine_config config;
    struct vm vm;
    struct vcpu vcpu;
    struct bus pio, mmio;
    struct machine_time time;
    struct recorder *recorder;
    struct recorded_dma dma;
    struct gp_hook hook;
    struct clock clock;
    struct clock_host clock_host;
    struct console *console;

    struct irqchip irqchip;
    struct pit pit;
    struct rtc rtc;
    struct serial serial;
    struct i8042 i8042;
    struct pmtimer pmtimer;
    struct pci_bus pci;
    struct virtio_blk blk;
    struct virtio_rng rng;
    struct virtio_pci blk_pci, rng_pci;
    struct device *devices[16]; /* all of the above, for poll and save */
    unsigned device_count;

    /* The run loop's state. */
    bool at_sync;            /* the vCPU stands at a sync point whose events are still to come */
    bool window;             /* the guest's next interruptible instruction is a sync point */
    bool fault_pending;      /* the exit just served ends in an exception */
    bool forced_window;      /* the same, wanted by choose() only: not in the recording */
    uint64_t pending_ns;     /* since when an interrupt waits; 0: none does */
    uint64_t retry_ns;       /* when to look for a forced point again */
    uint64_t retry_after_ns; /* how long the last wait for that was */
    uint64_t digest_at_ns;   /* when the next digest is due */
    uint64_t snapshot_at_ns; /* when the next snapshot is */
    uint64_t armed_ns;       /* what the timer is set to; 0: off */
    uint64_t output_ns; /* when console output that is held back must be shown; 0: there is none */
    timer_t timer;
    struct kick_target kick_target;
    unsigned syncs_to_hook_check;
    uint64_t stop_ns;      /* when the user wanted to stop; 0: not yet */
    bool ended_between;    /* ... and not at a sync point */
    enum end_reason ended; /* 0 while running */
    struct machine_stats stats;
};

/* The kernel and everything needed for symbols, for the caller to describe in the recording. */
struct machine_boot {
    uint8_t *vmlinux; /* the caller frees it */
    size_t vmlinux_len;
    char version[128];
    unsigned rdtsc_patched; /* sites in kernel text */
    struct bytes symbols;   /* as recorder_symbols() wants them; the caller frees it */
};

/* Build the machine and load its kernel. Nothing runs yet. */
int machine_create(struct machine *m, const struct machine_config *config, struct console *console,
                   struct machine_boot *boot, struct err *e);
void machine_destroy(struct machine *m);

/* From now on everything goes into this recorder, which stays the caller's. Call before the first
 * run: the initial state is written. */
int machine_record(struct machine *m, struct recorder *recorder, struct err *e);

/* Run until the machine ends; *reason says why. -1: the host, or the recording file, failed. */
int machine_run(struct machine *m, enum end_reason *reason, struct err *e);

/* Async-signal-safe: the machine ends, at a point that can be replayed, as soon as possible. */
void machine_stop(struct machine *m);

#endif
