#ifndef TESTS_UNIT_VMM_POINTS_PMU_PMU_SIM_H
#define TESTS_UNIT_VMM_POINTS_PMU_PMU_SIM_H

#include <stdatomic.h>
#include <string.h>

#include "tests/unit/random.h"
#include "vmm/points/pmu/pmu_land.h"

/*
 * A simulated CPU with a branch counter, for the tests of the pmu clock. Overflows are late, lost,
 * or come for no reason, and the host adds to the counts. None of this says what hardware does.
 */
#define SKID      200u
#define CODE      256u
#define REGISTERS 8u /* the upper half is hidden: memory that no landmark describes */

static uint64_t seed;

static inline uint64_t below(uint64_t limit)
{
    return random_next(&seed) % limit;
}

/* ---- a CPU ---- */

enum opcode { NOP, ADD, SET, LOOP, JUMP, FLAGS, EXIT }; /* LOOP is the conditional branch */

struct op {
    enum opcode opcode;
    unsigned reg, value, target;
};

struct cpu {
    struct op code[CODE];
    unsigned length;
    uint64_t pc, regs[REGISTERS], retired, branches;
};

/* What is wrong with the counter: chances in 1000. */
struct faults {
    unsigned skid, lost, spurious, polluted;
    bool never_lost_twice;
};

struct sim {
    struct pmu_target target; /* first, as ... */
    struct pmu_counter counter;
    struct cpu cpu;
    struct faults faults;
    uint64_t offset, pollution; /* of the count */
    uint64_t period, next;      /* overflow when this many branches have retired; 0: never */
    uint64_t kick_at; /* branches at which an overflow is noticed; 0: none is on its way */
    bool kicked, lost_last, taken_away;
    unsigned searches;
};

static inline struct sim *sim_of(struct pmu_counter *c)
{
    return (struct sim *)((char *)c - offsetof(struct sim, counter));
}

/* One instruction; false at an EXIT, which is not passed. */
static inline bool execute(struct cpu *c)
{
    const struct op *op = &c->code[c->pc];

    if (op->opcode == EXIT)
        return false;
    c->pc++;
    c->retired++;
    if (op->opcode == ADD)
        c->regs[op->reg] += op->value;
    else if (op->opcode == SET)
        c->regs[op->reg] = op->value;
    else if (op->opcode == JUMP)
        c->pc = op->target;
    else if (op->opcode == LOOP) {
        c->branches++;
        if (--c->regs[op->reg])
            c->pc = op->target;
    }
    return true;
}

static inline void count_overflows(struct sim *s)
{
    while (s->period && s->cpu.branches >= s->next) {
        bool lost = below(1000) < s->faults.lost && !(s->faults.never_lost_twice && s->lost_last);
        if (!lost && !s->kick_at) /* one that is on its way already comes first */
            s->kick_at = s->next + below(s->faults.skid + 1);
        s->lost_last = lost;
        s->next += s->period;
    }
    if (s->kick_at && s->cpu.branches >= s->kick_at) {
        s->kick_at = 0;
        s->kicked = true;
    }
}

static inline int leave(struct sim *s, enum exit_kind kind, struct vcpu_exit *exit)
{
    if (below(1000) < s->faults.polluted)
        s->pollution += 1 + below(5);
    *exit = (struct vcpu_exit){.kind = kind};
    return 0;
}

static inline int sim_advance(struct sim *s, uint64_t limit, struct vcpu_exit *exit)
{
    for (uint64_t done = 0; done < limit; done++) {
        if (s->kicked || (s->faults.spurious && below(1000000) < s->faults.spurious)) {
            s->kicked = false;
            return leave(s, EXIT_KICK, exit);
        }
        if (!execute(&s->cpu))
            return leave(s, EXIT_HLT, exit);
        count_overflows(s);
    }
    return leave(s, EXIT_STEP, exit);
}

static inline int sim_run(struct pmu_target *t, struct vcpu_exit *exit, struct err *e)
{
    (void)e;
    return sim_advance((struct sim *)t, UINT64_MAX, exit);
}

static inline int sim_step(struct pmu_target *t, struct vcpu_exit *exit, struct err *e)
{
    (void)e;
    return sim_advance((struct sim *)t, 1, exit);
}

static inline bool sim_can_step(struct pmu_target *t)
{
    const struct cpu *c = &((struct sim *)t)->cpu;

    return c->code[c->pc].opcode != FLAGS;
}

static inline bool sim_matches(struct pmu_target *t, const struct landmark *l)
{
    const struct cpu *c = &((struct sim *)t)->cpu;

    return c->pc == l->regs[REGISTER_RIP] && !memcmp(c->regs, l->regs, sizeof c->regs / 2);
}

static inline enum clock_landing sim_search(struct pmu_target *t, const struct landmark *l,
                                            struct vcpu_exit *exit, const atomic_bool *interrupted,
                                            struct err *e)
{
    struct sim *s = (struct sim *)t;

    (void)e;
    (void)interrupted;
    s->searches++;
    do {
        if (sim_matches(t, l))
            return LANDED;
    } while (execute(&s->cpu));
    leave(s, EXIT_HLT, exit);
    return LAND_MISSED;
}

static const struct pmu_target_ops sim_target = {
    .run = sim_run,
    .step = sim_step,
    .can_step = sim_can_step,
    .matches = sim_matches,
    .search = sim_search,
};

/* ---- a counter ---- */

static inline int sim_read(struct pmu_counter *c, uint64_t *count, struct err *e)
{
    struct sim *s = sim_of(c);

    *count = s->offset + s->cpu.branches + s->pollution;
    return s->taken_away ? err_set(e, STATUS_ERROR, "taken away") : 0;
}

static inline int sim_arm(struct pmu_counter *c, uint64_t period, struct err *e)
{
    struct sim *s = sim_of(c);

    (void)e;
    assert_true(period >= PMU_LEAST_PERIOD);
    s->period = period;
    s->next = s->cpu.branches + period;
    return 0;
}

static inline int sim_disarm(struct pmu_counter *c, struct err *e)
{
    (void)e;
    sim_of(c)->period = 0;
    return 0;
}

static const struct pmu_counter_ops sim_counter = {
    .read = sim_read, .arm = sim_arm, .disarm = sim_disarm};

static inline void put(struct cpu *c, enum opcode opcode, unsigned reg, unsigned value,
                       unsigned target)
{
    assert_true(c->length < CODE);
    c->code[c->length++] = (struct op){opcode, reg, value, target};
}

static inline void make_sim(struct sim *s, const struct cpu *program, const struct faults *faults)
{
    *s = (struct sim){
        .target = {.ops = &sim_target, .skid = SKID},
        .counter = {.ops = &sim_counter},
        .cpu = *program,
        .faults = *faults,
        .offset = below(1u << 30),
    };
    s->target.counter = &s->counter;
}

#endif
