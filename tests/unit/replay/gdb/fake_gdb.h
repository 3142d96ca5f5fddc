#ifndef TESTS_UNIT_REPLAY_GDB_FAKE_GDB_H
#define TESTS_UNIT_REPLAY_GDB_FAKE_GDB_H

/*
 * A target for gdb without a machine: "instructions" at FAKE_CODE, FAKE_LOOP of them, each one byte
 * (a NOP), executed in a ring. A counter at FAKE_COUNTER grows when the ring begins anew. Position
 * 0 is the log's beginning, FAKE_END its end.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "replay/gdb/gdb_target.h"

#define FAKE_CODE    0x401000ull
#define FAKE_LOOP    16u
#define FAKE_COUNTER 0x402000ull
#define FAKE_DATA    0x403000ull /* 64 KiB of an easy pattern */
#define FAKE_END     100000u
#define FAKE_BREAKS  64u

struct fake {
    struct gdb_target target;
    uint64_t position;
    unsigned cpu_count;
    struct {
        bool used;
        enum gdb_breakpoint_kind kind;
        uint64_t va;
        unsigned len;
    } breaks[FAKE_BREAKS];
    atomic_bool interrupted;
    bool endless;  /* continuing never ends but by an interrupt */
    bool broken;   /* everything fails */
    bool writable; /* registers and the data can be changed: to these */
    struct vcpu_state written_state;
    uint8_t written[64];
    uint64_t written_at;
    size_t written_len;
    uint64_t diverge_at;  /* 0: nowhere */
    atomic_bool released; /* the end of the command `wait` */
    unsigned resumes, interrupts, monitors;
};

static inline struct fake *fake_of(struct gdb_target *t)
{
    return (struct fake *)t;
}

static inline unsigned fake_cpus(struct gdb_target *t)
{
    return fake_of(t)->cpu_count;
}

static inline int fake_state(struct gdb_target *t, unsigned cpu, struct vcpu_state *out,
                             struct err *e)
{
    struct fake *f = fake_of(t);
    static const uint8_t one[10] = {0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f};

    if (f->broken)
        return err_set(e, STATUS_ERROR, "the fake is broken");
    memset(out, 0, sizeof *out);
    out->regs.rip = FAKE_CODE + f->position % FAKE_LOOP;
    out->regs.rax = f->position;
    out->regs.rsp = FAKE_DATA + 0x1000 + cpu;
    out->regs.rflags = 0x10246; /* RF is not shown */
    out->sregs.cs = (struct kvm_segment){.selector = 0x33, .l = 1};
    out->sregs.cr0 = 0x80050033;
    out->sregs.cr3 = 0x1234000;
    out->sregs.cr4 = 0x6b0;
    out->sregs.efer = 0xd01;
    out->sregs.fs.base = 0x7f0000001000;
    out->fpu.fcw = 0x37f;
    out->fpu.fsw = 7 << 11; /* one number on the stack: physical register 7 */
    out->fpu.ftwx = 0x80;
    memcpy(out->fpu.fpr[0], one, sizeof one);
    out->fpu.mxcsr = 0x1f80;
    memset(out->fpu.xmm[15], 0x5a, 16);
    out->msrs[10] = 0xffff888000001000; /* KERNEL_GS_BASE */
    return 0;
}

/* One byte of memory, or -1. */
static inline int fake_byte(struct fake *f, uint64_t va)
{
    uint64_t counter = f->position / FAKE_LOOP;

    if (va >= FAKE_CODE && va < FAKE_CODE + 4096)
        return 0x90;
    if (va >= FAKE_COUNTER && va < FAKE_COUNTER + 8)
        return (int)(counter >> 8 * (va - FAKE_COUNTER) & 255);
    if (va >= FAKE_DATA && va < FAKE_DATA + 65536)
        return (int)(va * 7 & 255);
    return -1;
}

static inline size_t fake_read(struct gdb_target *t, unsigned cpu, uint64_t va, void *data,
                               size_t len)
{
    size_t done;

    (void)cpu;
    for (done = 0; done < len; done++) {
        int byte = fake_byte(fake_of(t), va + done);
        if (byte < 0)
            break;
        ((uint8_t *)data)[done] = (uint8_t)byte;
    }
    return done;
}

/* The first 64 KiB. */
static inline size_t fake_read_physical(struct gdb_target *t, uint64_t gpa, void *data, size_t len)
{
    if (gpa >= 65536)
        return 0;
    return fake_read(t, 0, FAKE_DATA + gpa, data, len);
}

static inline int fake_set_state(struct gdb_target *t, unsigned cpu, const struct vcpu_state *state,
                                 struct err *e)
{
    (void)cpu;
    if (!fake_of(t)->writable)
        return err_set(e, STATUS_ERROR, "the fake's registers cannot be changed");
    fake_of(t)->written_state = *state;
    return 0;
}

static inline int fake_write(struct gdb_target *t, unsigned cpu, uint64_t va, const void *data,
                             size_t len, struct err *e)
{
    struct fake *f = fake_of(t);

    (void)cpu;
    if (!f->writable || len > sizeof f->written)
        return err_set(e, STATUS_ERROR, "the fake's memory cannot be changed");
    memcpy(f->written, data, len);
    f->written_at = va;
    f->written_len = len;
    return 0;
}

static inline int fake_write_physical(struct gdb_target *t, uint64_t gpa, const void *data,
                                      size_t len, struct err *e)
{
    return fake_write(t, 0, FAKE_DATA + gpa, data, len, e);
}

static inline int fake_insert(struct gdb_target *t, enum gdb_breakpoint_kind kind, uint64_t va,
                              unsigned len, struct err *e)
{
    struct fake *f = fake_of(t);

    if (va == 0xbad)
        return err_set(e, STATUS_ERROR, "no breakpoint is possible there");
    for (unsigned i = 0; i < FAKE_BREAKS; i++) {
        if (f->breaks[i].used)
            continue;
        f->breaks[i].used = true;
        f->breaks[i].kind = kind;
        f->breaks[i].va = va;
        f->breaks[i].len = len;
        return 0;
    }
    return err_set(e, STATUS_ERROR, "the fake has no more breakpoints");
}

static inline int fake_remove(struct gdb_target *t, enum gdb_breakpoint_kind kind, uint64_t va,
                              unsigned len, struct err *e)
{
    struct fake *f = fake_of(t);

    for (unsigned i = 0; i < FAKE_BREAKS; i++) {
        if (f->breaks[i].used && f->breaks[i].kind == kind && f->breaks[i].va == va &&
            f->breaks[i].len == len) {
            f->breaks[i].used = false;
            return 0;
        }
    }
    return err_set(e, STATUS_ERROR, "nothing was inserted there");
}

static inline unsigned fake_break_count(const struct fake *f)
{
    unsigned count = 0;

    for (unsigned i = 0; i < FAKE_BREAKS; i++)
        count += f->breaks[i].used;
    return count;
}

/* Whether going from one position to the next has met something. */
static inline bool fake_stops(struct fake *f, uint64_t before, struct gdb_stop *stop)
{
    bool wrote = before / FAKE_LOOP != f->position / FAKE_LOOP;

    for (unsigned i = 0; i < FAKE_BREAKS; i++) {
        if (!f->breaks[i].used)
            continue;
        stop->watch_kind = f->breaks[i].kind;
        if (f->breaks[i].kind <= GDB_HARDWARE &&
            f->breaks[i].va == FAKE_CODE + f->position % FAKE_LOOP) {
            stop->reason = GDB_STOP_BREAKPOINT;
            return true;
        }
        if (f->breaks[i].kind >= GDB_WATCH_WRITE && wrote && f->breaks[i].va < FAKE_COUNTER + 8 &&
            f->breaks[i].va + f->breaks[i].len > FAKE_COUNTER) {
            stop->reason = GDB_STOP_WATCH;
            stop->watch_va = f->breaks[i].va;
            return true;
        }
    }
    return false;
}

static inline int fake_resume(struct gdb_target *t, unsigned cpu, enum gdb_resume how,
                              struct gdb_stop *stop, struct err *e)
{
    struct fake *f = fake_of(t);
    const bool back = how == GDB_REVERSE_STEP || how == GDB_REVERSE_CONTINUE;
    const bool once = how == GDB_STEP || how == GDB_REVERSE_STEP;

    f->resumes++;
    stop->cpu = cpu;
    if (f->broken)
        return err_set(e, STATUS_ERROR, "the fake is broken");
    for (;;) {
        uint64_t before = f->position;
        if (atomic_exchange(&f->interrupted, false)) {
            stop->reason = GDB_STOP_INTERRUPTED;
            return 0;
        }
        if (f->endless && !once) {
            usleep(1000);
            continue;
        }
        if (f->position == (back ? 0 : FAKE_END)) {
            stop->reason = back ? GDB_STOP_LOG_BEGIN : GDB_STOP_LOG_END;
            return 0;
        }
        if (!back && f->diverge_at && f->position == f->diverge_at) {
            stop->reason = GDB_STOP_DIVERGED;
            err_set(e, STATUS_DIVERGED, "the fake diverged");
            return 0;
        }
        f->position += back ? UINT64_MAX : 1;
        stop->reason = GDB_STOP_STEP;
        if (fake_stops(f, before, stop) || once)
            return 0;
    }
}

static inline int fake_restart(struct gdb_target *t, const char *argument, unsigned *cpu,
                               struct err *e)
{
    const uint64_t to = argument ? strtoull(argument, NULL, 0) : 0;

    if (to > FAKE_END)
        return err_set(e, STATUS_ERROR, "the fake has no such place");
    fake_of(t)->position = to;
    *cpu = 0;
    return 0;
}

static inline void fake_interrupt(struct gdb_target *t)
{
    fake_of(t)->interrupts++;
    atomic_store(&fake_of(t)->interrupted, true);
}

static inline int fake_monitor(struct gdb_target *t, const char *command, struct bytes *out,
                               struct err *e)
{
    struct fake *f = fake_of(t);
    char text[64];

    f->monitors++;
    if (!strcmp(command, "help")) {
        bytes_put(out, "help, where, long\n", 18);
    } else if (!strcmp(command, "where")) {
        int n = snprintf(text, sizeof text, "position %llu\n", (unsigned long long)f->position);
        bytes_put(out, text, (size_t)n);
    } else if (!strcmp(command, "long")) {
        for (unsigned i = 0; i < 3000; i++)
            bytes_put(out, "0123456789\n", 11);
    } else if (!strcmp(command, "wait")) {
        while (!atomic_load(&f->released))
            usleep(1000);
    } else {
        return err_set(e, STATUS_ERROR, "no command '%.40s'", command);
    }
    return 0;
}

static const struct gdb_target_ops fake_ops = {
    .cpus = fake_cpus,
    .state = fake_state,
    .read = fake_read,
    .read_physical = fake_read_physical,
    .set_state = fake_set_state,
    .write = fake_write,
    .write_physical = fake_write_physical,
    .insert = fake_insert,
    .remove = fake_remove,
    .resume = fake_resume,
    .restart = fake_restart,
    .interrupt = fake_interrupt,
    .monitor = fake_monitor,
};

static inline void fake_init(struct fake *f)
{
    memset(f, 0, sizeof *f);
    f->target.ops = &fake_ops;
    f->cpu_count = 1;
    f->position = 5 * FAKE_LOOP;
}

#endif
