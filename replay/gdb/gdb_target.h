#ifndef REPLAY_GDB_GDB_TARGET_H
#define REPLAY_GDB_GDB_TARGET_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "vmm/kvm/vcpu_state.h"

/*
 * What the gdb server (gdb_server.h) needs of the thing that is debugged. The engine that moves
 * about in a recording implements it; the unit tests have a small one of their own.
 */

enum gdb_resume { GDB_STEP, GDB_CONTINUE, GDB_REVERSE_STEP, GDB_REVERSE_CONTINUE };

/* The numbers are those of gdb's Z packets. */
enum gdb_breakpoint_kind {
    GDB_SOFTWARE = 0,
    GDB_HARDWARE = 1,
    GDB_WATCH_WRITE = 2,
    GDB_WATCH_READ = 3,
    GDB_WATCH_ACCESS = 4,
};

struct gdb_stop {
    enum {
        GDB_STOP_STEP,
        GDB_STOP_BREAKPOINT, /* rip is the breakpoint's; kind: GDB_SOFTWARE or GDB_HARDWARE */
        GDB_STOP_WATCH,      /* watch_va and watch_kind */
        GDB_STOP_INTERRUPTED,
        GDB_STOP_LOG_BEGIN, /* reverse execution reached the recording's beginning */
        GDB_STOP_LOG_END,
        GDB_STOP_DIVERGED, /* the err that resume() was given may hold a sentence for the user */
    } reason;
    char note[320]; /* a sentence for the user's console; "": there is nothing to say */
    unsigned cpu;
    uint64_t watch_va;
    enum gdb_breakpoint_kind watch_kind;
};

struct gdb_target;

/* All but interrupt() are called by the thread of gdb_serve(), one at a time. Addresses, lengths
 * and the command of monitor() are the client's: anything. */
struct gdb_target_ops {
    unsigned (*cpus)(struct gdb_target *t); /* at least 1, always the same */
    int (*state)(struct gdb_target *t, unsigned cpu, struct vcpu_state *out, struct err *e);
    /* Bytes done: all up to the first that is not there. Read by the CPU's page tables. */
    size_t (*read)(struct gdb_target *t, unsigned cpu, uint64_t va, void *data, size_t len);
    size_t (*read_physical)(struct gdb_target *t, uint64_t gpa, void *data, size_t len);
    /* Change what is debugged: the registers that gdb knows, in a state that was just read; memory,
     * as it is read, all of it or nothing. -1: *e says why, for example that nothing may
     * be changed. */
    int (*set_state)(struct gdb_target *t, unsigned cpu, const struct vcpu_state *state,
                     struct err *e);
    int (*write)(struct gdb_target *t, unsigned cpu, uint64_t va, const void *data, size_t len,
                 struct err *e);
    int (*write_physical)(struct gdb_target *t, uint64_t gpa, const void *data, size_t len,
                          struct err *e);
    /* For all CPUs. Each is inserted once, and removed only when it is there. len: of a watched
     * range, 1 to GDB_WATCH_MAX, which does not wrap around; 1 for breakpoints. */
    int (*insert)(struct gdb_target *t, enum gdb_breakpoint_kind kind, uint64_t va, unsigned len,
                  struct err *e);
    int (*remove)(struct gdb_target *t, enum gdb_breakpoint_kind kind, uint64_t va, unsigned len,
                  struct err *e);
    /* Go to the beginning, or to a place that a user may have named behind `run` (argument, or
     * NULL); *cpu: that which runs there. -1: it did not get there. */
    int (*restart)(struct gdb_target *t, const char *argument, unsigned *cpu, struct err *e);
    /*
     * Run until something stops it. A breakpoint on the instruction where it starts does not count
     * until it is left. -1: nothing is known about where it is now.
     */
    int (*resume)(struct gdb_target *t, unsigned cpu, enum gdb_resume how, struct gdb_stop *stop,
                  struct err *e);
    /*
     * Any thread, at any time, async-signal-safe: resume(), restart() or monitor() return
     * soon. It may come
     * just before one of them is entered, and must count then: they forget it when they return, not
     * when they start. One that comes just after is sorted out by the server.
     */
    void (*interrupt)(struct gdb_target *t);
    /* `monitor COMMAND`: append text for the user. -1: *e is shown after it. */
    int (*monitor)(struct gdb_target *t, const char *command, struct bytes *out, struct err *e);
};

#define GDB_WATCH_MAX (1u << 20)

/* The first member of the engine's own structure. */
struct gdb_target {
    const struct gdb_target_ops *ops;
    /* Not NULL: sessions end, and nobody is waited for, within half a second after it became true,
     * by a signal handler for one. */
    const atomic_int *quit;
};

#endif
