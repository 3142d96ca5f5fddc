#ifndef VMM_MACHINE_MACHINE_H
#define VMM_MACHINE_MACHINE_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "vmm/kvm/kick.h"
#include "vmm/kvm/hypercalls.h"
#include "base/now.h"
#include "boot/kernel_code.h"
#include "boot/kexec_image.h"
#include "devices/pc.h"
#include "recorder/recorder.h"
#include "vmm/kvm/views.h"
#include "vmm/machine/command_streams.h"
#include "vmm/machine/console.h"
#include "vmm/machine/disks.h"
#include "vmm/machine/nics.h"
#include "vmm/points/clock.h"
#include "vmm/points/gphook.h"

/*
 * A live machine: CPU, memory and devices, running plainly or recorded. (A replayed machine is
 * replay/player.h: it has no devices.)
 */
struct machine_config {
    uint64_t memory; /* bytes */
    unsigned cpus;   /* 1 to MAX_VCPUS */
    bool parallel;   /* several CPUs run at the same time (vmm/machine/crew/crew.h) */
    bool loose;      /* ... and nothing orders what they do to memory: it cannot be recorded */
    uint64_t chaos;  /* seed of random turns, or quanta, of several CPUs; 0: fair ones */
    const void *kernel, *initrd;
    size_t kernel_len, initrd_len;
    const char *command_line;
    const struct disk_set *disks; /* may be NULL; stays the caller's */
    /* Of a machine that runs one command, whose console is not the user's; else NULL. The caller's.
     */
    struct command_streams *command;
    struct nic_config nics[MAX_NICS];
    unsigned nic_count;
    bool owns_tsd; /* CR4.TSD is ours (vmm/kvm/cr4.h): false only for one that goes on from a
                      recording     in which it was not */
    const char *cpu_doubt; /* doctor_cpu_doubt(), of one that is recorded; may be NULL */
    const struct clock_ops *clock;
    /* What the RTC says at the start, ns since 1970 UTC; 0: the host's time, or where a machine
     * goes on from: what it says there. */
    uint64_t wall_ns;
    uint64_t slow;     /* device time passes so many times slower than the host's; at least 1 */
    uint64_t grace_ns; /* so long without a sync point, an interrupt has one forced */
    uint64_t
        digest_ns; /* how often all memory is digested into the recording; 0: at the end only */
    uint64_t snapshot_ns; /* how often a snapshot is put into the recording; 0: never */
    bool reboots;         /* a reboot is its next boot, and not its end */
};

struct machine_stats {
    uint64_t exits, kicks, interrupts, forced, forced_tries;
    uint64_t entries;                      /* forced points where the guest enters its kernel */
    uint64_t boots;                        /* beside the first one */
    uint64_t snapshot_ns, snapshot_max_ns; /* that the machine stood still for them */
};

enum cpu_state {
    CPU_RUNS,
    CPU_HALTED,  /* by HLT: until an interrupt that it can take, or an NMI */
    CPU_STOPPED, /* by INIT, or never started: until STARTUP */
};

struct machine_cpu {
    struct vcpu vcpu;
    struct clock clock;
    enum cpu_state state;
    uint64_t ran_ns;    /* when its last turn ended */
    bool window;        /* its next interruptible instruction is a sync point */
    bool fault_pending; /* the exit served last ends in an exception */
    bool nmi;           /* it is to get one */
    bool starts;        /* by STARTUP, at start_vector << 12, when its turn comes */
    uint8_t start_vector;
    struct trap trap; /* of the exit that it has come to, if that is one */
};

/* Whose turn it is, where there are several CPUs: vmm/machine/schedule.h. */
struct schedule {
    uint64_t turn_ns;    /* since when it is this CPU's turn */
    uint64_t quantum_ns; /* how long it may be, if others can run */
    uint64_t look_ns;    /* when to look whether it only waits for another CPU */
    uint64_t look_after_ns;
    bool waits;      /* it does */
    uint64_t random; /* state of the generator; 0: turns are fair */
    /* Whose turn this one has interrupted, to take what it was sent, and goes back to; NULL: none.
     * When that turn began, and how long it may be. */
    struct machine_cpu *interrupted;
    uint64_t interrupted_turn_ns, interrupted_quantum_ns;
};

struct crew;
struct code_watch;
struct boot_image;

/* How often a doubt was said, by its format. */
#define DOUBT_KINDS 16u
struct doubts_said {
    const char *kind; /* NULL: free */
    uint64_t times;
};

struct machine {
    struct machine_config config;
    struct vm vm;
    struct views views; /* of CPUs that run at the same time; */
    struct crew *crew;  /* how they do; else NULL */
    struct machine_cpu cpus[MAX_VCPUS];
    /* Where they take turns, whose turn it is: the others stand at sync points of theirs. */
    struct machine_cpu *cpu;
    struct schedule schedule;
    struct pc pc;
    struct nics nics;
    struct disks disks;
    uint64_t start_ns; /* when device time was 0, by the host's clock; it may wrap */
    struct recorder *recorder;
    struct recorded_dma dma;
    struct gp_hook hook;
    struct kernel_code kernel_code;
    struct boot_image *boot_image; /* of one that boots again; NULL: it ends */
    struct kexec_jump kexec;       /* to a kernel that is being started; .at 0: none is */
    bool kexec_began;              /* at some time: its first kernel is not what runs */
    struct code_watch *code_watch; /* of one that is recorded */
    bool marks_left_out;           /* there were too many, as was said */
    bool forced_inexactly;         /* its recording has a landmark that is not exact */
    struct doubts_said doubts[DOUBT_KINDS];
    struct hypercalls hypercalls; /* of one that is recorded */
    struct clock_host clock_host;
    struct console *console;
    struct control *control; /* vmm/machine/control.h; the caller's, may be NULL */

    /* The run loop's state. */
    bool resumed;            /* it was not made by booting: device time goes on when it runs */
    bool at_sync;            /* the vCPU stands at a sync point whose events are still to come */
    bool entry_wanted;       /* the vCPU is to stop where it enters its kernel next */
    bool forced_window;      /* a window that is wanted by choose() only: not in the recording */
    uint64_t left_ns;        /* when the vCPU left its last sync point */
    uint64_t pending_ns;     /* since when an interrupt waits; 0: none does */
    uint64_t retry_ns;       /* when to look for a forced point again */
    uint64_t retry_after_ns; /* how long the last wait for that was */
    uint64_t loop_look_ns;   /* when to look again whether the CPU is in a loop */
    uint64_t digest_at_ns;   /* when the next digest is due */
    uint64_t snapshot_at_ns; /* when the next snapshot is */
    uint64_t armed_ns;       /* what the timer is set to; 0: off */
    uint64_t output_ns; /* when console output that is held back must be shown; 0: there is none */
    timer_t timer;
    struct kick_target kick_target; /* the thread that runs the vCPUs in turns */
    atomic_bool stop_wanted;        /* by the user: machine_stop() */
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
    struct bytes symbols; /* as recorder_symbols() wants them; the caller frees it */
};

/* Build the machine and load its kernel. Nothing runs yet. */
int machine_create(struct machine *m, const struct machine_config *config, struct console *console,
                   struct machine_boot *boot, struct err *e);

/* A machine that has already run: where another one goes on. */
struct machine_state {
    struct guest_memory memory;
    struct vcpu_state cpu;
    struct vcpu_pending pending;
    struct gp_hook hook;
    bool halted;          /* the last instruction was a HLT, and nothing has woken it yet */
    struct bytes devices; /* of pc_save() */
};
void machine_state_free(struct machine_state *state);

/* Build a machine that goes on from `state`, whose memory it takes over (also when it fails). Of
 * the config, memory, kernel, initrd and command line do not matter; it has one CPU. */
int machine_create_from(struct machine *m, const struct machine_config *config,
                        struct console *console, struct machine_state *state, struct err *e);
/* What code of the kernel is as it should be, for forced points (vmm/points/clock.h): a range of
 * it, as it is in memory now. Ranges that are not in memory, or too many, are left out. */
void machine_trust_code(struct machine *m, uint64_t va, uint64_t gpa, uint64_t len);
/* All code of a kernel that is loaded so far above where its file wants it. */
void machine_trust_kernel(struct machine *m, const struct elf_view *elf, uint64_t moved);
/* None of it is any more. */
void machine_forget_code(struct machine *m);
void machine_destroy(struct machine *m);

/* To be called with the landmark of each forced point: one by which the point may not be found is
 * a doubt. */
void machine_forced(struct machine *m, const struct landmark *l);
/* Something cannot be made exact from here on: said on stderr, and marked in the recording. A guest
 * can bring it about again and again: only the first DOUBTS_SAID of one `format`, a literal, are
 * said. */
#define DOUBTS_SAID 8u
__attribute__((format(printf, 2, 3))) void machine_doubt(struct machine *m, const char *format,
                                                         ...);

/* Name the place where it stands, a sync point: see recorder_mark(). That there are too many is
 * said once. */
bool machine_mark(struct machine *m, const char *text, bool by_guest);

/* The host's time of day, ns since 1970 UTC: what a machine's RTC says when it starts. */
uint64_t machine_wall_ns(void);

/* Look whether the guest has made any, when it is time to, or at once (NEVER): that is a doubt. */
void machine_look_for_hypercalls(struct machine *m, uint64_t now);

/* From now on everything goes into this recorder, which stays the caller's. Call before the first
 * run: the initial state is written. */
int machine_record(struct machine *m, struct recorder *recorder, struct err *e);

/* Run until the machine ends; *reason says why. -1: the host, or the recording file, failed. */
int machine_run(struct machine *m, enum end_reason *reason, struct err *e);

/* Async-signal-safe: the machine ends, at a point that can be replayed, as soon as possible. */
void machine_stop(struct machine *m);
/* The same from any thread, which sends the vCPU thread a kick then. */
void machine_want_stop(struct machine *m);

#endif
