#include "vmm/machine/schedule.h"

#include "base/random.h"

/* Longer turns mean fewer forced points, which cost a replay most; shorter ones, quicker answers.
 */
#define QUANTUM_NS 20000000ull
/* The least turn of a CPU while an interrupt is there to wake another one. */
#define URGENT_NS 1000000ull
/* The turn of one that was sent an interrupt: it takes it and does what it is asked to. */
#define ANSWER_NS 1000000ull
/* When to look for the first time whether a CPU only waits; each time twice as long after the last.
 */
#define LOOK_NS      2000000ull
#define LOOK_LAST_NS 32000000ull

/* After a turn that could not be ended in time the next one is longer too: else a CPU that is hard
 * to stop while it waits for another one would have most of the time. */
static void begin_turn(struct machine *m, uint64_t now)
{
    struct schedule *s = &m->schedule;
    const uint64_t last = (now - s->turn_ns) / 2;

    s->turn_ns = now;
    s->quantum_ns = last > QUANTUM_NS ? last : QUANTUM_NS;
    if (s->random)
        s->quantum_ns = random_next(&s->random) % (2 * QUANTUM_NS);
    s->look_after_ns = LOOK_NS;
    s->look_ns = now + LOOK_NS;
    s->waits = false;
}

/* `next` comes in between, to take what it was sent, or the CPU it has interrupted goes on. */
static void interrupt_turn(struct machine *m, struct machine_cpu *last, struct machine_cpu *next,
                           const struct schedule *then)
{
    struct schedule *s = &m->schedule;

    if (next == s->interrupted) {
        s->turn_ns = s->interrupted_turn_ns;
        s->quantum_ns = s->interrupted_quantum_ns;
        s->interrupted = NULL;
    } else if (s->random || !(m->pc.apics.signalled >> next->vcpu.index & 1)) {
        s->interrupted = NULL;
    } else {
        s->quantum_ns = ANSWER_NS;
        if (s->interrupted || !cpu_can_run(m, last))
            return;
        s->interrupted = last;
        s->interrupted_turn_ns = then->turn_ns;
        s->interrupted_quantum_ns = then->quantum_ns;
    }
}

void schedule_init(struct machine *m, uint64_t now)
{
    const uint64_t random = m->schedule.random;

    m->schedule = (struct schedule){.turn_ns = now, .random = random ? random : m->config.chaos};
    begin_turn(m, now);
}

/* ---- what a CPU has to take ---- */

static bool irq_pending(const struct machine *m, const struct machine_cpu *cpu)
{
    return pc_irq_pending(&m->pc, cpu->vcpu.index);
}

bool cpu_can_run(const struct machine *m, const struct machine_cpu *cpu)
{
    switch (cpu->state) {
    case CPU_RUNS:
        return true;
    case CPU_HALTED:
        return cpu->nmi || (cpu->vcpu.run->if_flag && irq_pending(m, cpu));
    case CPU_STOPPED:
        break;
    }
    return false;
}

bool schedule_can_wake(const struct machine *m)
{
    for (unsigned i = 0; i < m->config.cpus; i++)
        if (m->cpus[i].state == CPU_HALTED && m->cpus[i].vcpu.run->if_flag)
            return true;
    return false;
}

/* ---- turns ---- */

enum urgency {
    ANY,       /* it can run */
    WOKEN,     /* it had halted, and can run again */
    SIGNALLED, /* another CPU has sent it something, and may wait for the answer */
};

static bool is_urgent(const struct machine *m, const struct machine_cpu *cpu, enum urgency least)
{
    switch (least) {
    case SIGNALLED:
        return (m->pc.apics.signalled >> cpu->vcpu.index & 1) &&
               (cpu->nmi || cpu->starts || irq_pending(m, cpu));
    case WOKEN:
        return cpu->state == CPU_HALTED;
    case ANY:
        break;
    }
    return true;
}

/* Of the others that can run and are so urgent, the one whose last turn is longest ago, so that
 * none starves; NULL: there is none. An interrupt for one that only lost its turn waits until that
 * comes. */
static struct machine_cpu *find(struct machine *m, enum urgency least)
{
    struct machine_cpu *best = NULL;

    for (unsigned i = 0; i < m->config.cpus; i++) {
        struct machine_cpu *cpu = &m->cpus[i];
        if (cpu != m->cpu && cpu_can_run(m, cpu) && is_urgent(m, cpu, least) &&
            (!best || cpu->ran_ns < best->ran_ns))
            best = cpu;
    }
    return best;
}

/* Any one that can run, if turns are random. */
static struct machine_cpu *find_random(struct machine *m)
{
    const unsigned count = m->config.cpus,
                   first = (unsigned)(random_next(&m->schedule.random) % count);

    for (unsigned i = 0; i < count; i++) {
        struct machine_cpu *cpu = &m->cpus[(first + i) % count];
        if (cpu != m->cpu && cpu_can_run(m, cpu))
            return cpu;
    }
    return NULL;
}

struct machine_cpu *schedule_next(struct machine *m, uint64_t now)
{
    const struct schedule *s = &m->schedule;
    const uint64_t turn = now - s->turn_ns;
    struct machine_cpu *const any = find(m, ANY), *next;

    if (!any)
        return cpu_can_run(m, m->cpu) ? m->cpu : NULL;
    const bool over = !cpu_can_run(m, m->cpu) || turn >= s->quantum_ns || s->waits;
    if (s->random)
        return over ? find_random(m) : m->cpu;
    if ((next = find(m, SIGNALLED)))
        return next;
    if (over && s->interrupted && cpu_can_run(m, s->interrupted))
        return s->interrupted;
    if (!over && turn >= URGENT_NS && (next = find(m, WOKEN)))
        return next;
    return over ? any : m->cpu;
}

int schedule_switch(struct machine *m, struct machine_cpu *next, uint64_t now, struct err *e)
{
    if (next != m->cpu) {
        const struct schedule then = m->schedule;
        struct machine_cpu *const last = m->cpu;
        if (vcpu_complete(&last->vcpu, e) < 0)
            return -1;
        if (vcpu_is_halfway(&last->vcpu)) /* the turn ends behind the instruction */
            return 0;
        last->ran_ns = now;
        m->cpu = next;
        if (last->vcpu.kicked) /* that was for the CPU whose turn it is */
            vcpu_kick(&next->vcpu);
        recorder_schedule(m->recorder, next->vcpu.index);
        vcpu_flush_tlb(&next->vcpu);
        clock_sync(&next->clock);
        begin_turn(m, now);
        interrupt_turn(m, last, next, &then);
        m->pc.apics.signalled &= ~(1u << last->vcpu.index); /* it has had its turn */
    } else if (next->state == CPU_HALTED) {
        begin_turn(m, now);
    }
    m->pc.apics.signalled &= ~(1u << next->vcpu.index);
    next->state = CPU_RUNS;
    if (!next->starts)
        return 0;
    next->starts = next->window = next->fault_pending = false;
    recorder_start(m->recorder, next->start_vector);
    return vcpu_start(&next->vcpu, next->start_vector, e);
}

static bool others_wait(const struct machine *m)
{
    return find((struct machine *)m, ANY) != NULL;
}

uint64_t schedule_deadline(const struct machine *m)
{
    return others_wait(m) ? m->schedule.turn_ns + m->schedule.quantum_ns : NEVER;
}

uint64_t schedule_look(const struct machine *m)
{
    return others_wait(m) ? m->schedule.look_ns : NEVER;
}

void schedule_looked(struct machine *m, uint64_t now, bool waits)
{
    struct schedule *s = &m->schedule;

    s->waits = waits;
    if (s->look_after_ns < LOOK_LAST_NS)
        s->look_after_ns *= 2;
    s->look_ns = now + s->look_after_ns;
}
