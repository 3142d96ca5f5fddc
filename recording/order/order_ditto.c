/*
 * Ditto's order log (Silva, Simão, Veiga: Ditto - Deterministic Execution
 * Replayability-as-a-Service for Java VM on Multiprocessors, sections 3.2 to 3.4 and 3.7), for
 * vCPUs and pages.
 *
 * An object has a clock, and counts the loads since its last store. A load waits until the object's
 * clock is what it was, a store also until it was loaded as often. These *constraints* are the log,
 * and not even all of them: most follow from what the vCPU has waited for before. What follows is
 * left out; accesses in a row without a constraint are a *free run*.
 *
 * The log has a part for each vCPU, a bit string (base/bits.h). Which access a constraint is of,
 * replay knows from the program. For each constraint:
 *
 *     bit                      only behind a plain one of a store: whether this one is plain, too;
 *                              if so, its increment is all that follows
 *     gamma(1 + n)             a free run of n accesses before it
 *     bit                      of a store: whether it waits for loads
 *     bit                      of a store that does: whether it waits for the clock, too; if not,
 *                              that follows
 *     gamma(increment)         of what waits for the clock: since this vCPU accessed the object
 *                              last, or since the beginning
 *     gamma(loads)             of what waits for loads
 *
 * and behind the last one:
 *
 *     bit                      only behind a plain one of a store: 0
 *     gamma(1 + n)             the last free run
 *
 * and zeroes to the end of the byte. A constraint is *plain* that has no free run before it and
 * waits for the clock alone: where vCPUs compete for one object, most are. Without
 * ORDER_PRUNE_PROGRAM increments may be 0, and 1 is added.
 *
 * Where this is not the paper's:
 * - An object's clock is the number of its stores. Ditto's are Lamport clocks, kept by vCPUs, too,
 *   and written as increments to the last one in the stream. The replay needs no more than to tell
 *   an object's stores apart, and so the increments are small: how often others stored to this
 *   object meanwhile. That is why bits do better than bytes.
 * - What a vCPU has waited for is kept as positions in the others' programs, so that loads can be
 *   among it; and by ORDER_PRUNE_TRANSITIVE it includes what those had waited for (Netzer's
 *   transitive reduction, which Ditto left because threads are many; vCPUs are 8).
 * - A store that other vCPUs' loads must precede is left out only when these follow, too. By the
 *   paper's text the last store would suffice, but then a load could come too late.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/bits.h"
#include "recording/order/order.h"
#include "recording/order/order_objects.h"

/* What both sides follow of an object. */
struct object_clock {
    uint64_t clock;           /* stores so far */
    uint64_t loads;           /* since the last one */
    uint64_t seen[MAX_VCPUS]; /* the clock when each accessed it last */
};

static void tick(struct object_clock *object, const struct access *a)
{
    if (a->store) {
        object->clock++;
        object->loads = 0;
    } else {
        object->loads++;
    }
    object->seen[a->vcpu] = object->clock;
}

/* What is added to an increment so that it can be coded: without pruning it may be 0. */
static unsigned increment_bias(uint64_t prune)
{
    return prune & ORDER_PRUNE_PROGRAM ? 0 : 1;
}

/* ---- recording ---- */

/* How far each vCPU's program has come by some moment, as somebody knows: accesses, counted from 1.
 */
struct knowledge {
    uint64_t of[MAX_VCPUS];
};

struct object {
    struct object_clock clock;
    uint64_t stored_at; /* position of the last store in its vCPU's program */
    unsigned storer;
    uint64_t loaded_at[MAX_VCPUS]; /* of each one's last load since that store, 0: none */
    struct knowledge store, loads; /* what the storer knew; what all who loaded since knew */
};

struct recording {
    struct order_log *log;
    struct order_objects objects;
    struct bit_writer out[MAX_VCPUS];
    uint64_t run[MAX_VCPUS];
    bool was_plain[MAX_VCPUS];         /* the last constraint was a plain one of a store */
    struct knowledge known[MAX_VCPUS]; /* of itself: the position of its last access */
};

static void *record(struct order_log *log)
{
    struct recording *r = order_allocate(sizeof *r);

    r->log = log;
    order_objects_init(&r->objects, sizeof(struct object));
    for (unsigned i = 0; i < log->vcpus; i++)
        r->out[i].out = &log->part[i];
    return r;
}

static void learn(struct knowledge *known, const struct knowledge *more)
{
    for (unsigned i = 0; i < MAX_VCPUS; i++)
        if (more->of[i] > known->of[i])
            known->of[i] = more->of[i];
}

/* Whether it follows, from what `vcpu` has waited for, that `other` has come so far. */
static bool is_implied(const struct recording *r, unsigned vcpu, unsigned other, uint64_t position)
{
    const unsigned by = other == vcpu ? ORDER_PRUNE_PROGRAM : ORDER_PRUNE_INTERACTIONS;

    return (r->log->prune & by) && r->known[vcpu].of[other] >= position;
}

static bool must_wait_for_store(const struct recording *r, const struct object *object,
                                unsigned vcpu)
{
    /* No store, or one that the vCPU made itself or was behind already when it was here last. */
    if (object->clock.clock == object->clock.seen[vcpu])
        return !(r->log->prune & ORDER_PRUNE_PROGRAM);
    return !is_implied(r, vcpu, object->storer, object->stored_at);
}

static bool must_wait_for_loads(const struct recording *r, const struct object *object,
                                unsigned vcpu)
{
    for (unsigned i = 0; i < r->log->vcpus; i++)
        if (object->loaded_at[i] && !is_implied(r, vcpu, i, object->loaded_at[i]))
            return true;
    return false;
}

/* The bit that says whether a constraint is plain, where there is one. True: with it all is said
 * of the constraint's form. */
static bool put_plain(struct recording *r, unsigned vcpu, bool is_plain, bool store)
{
    const bool is_said = r->was_plain[vcpu] && is_plain;

    if (r->was_plain[vcpu])
        bits_put(&r->out[vcpu], is_plain, 1);
    r->was_plain[vcpu] = is_plain && store;
    return is_said;
}

static void put_run(struct recording *r, unsigned vcpu)
{
    bits_put_gamma(&r->out[vcpu], r->run[vcpu] + 1);
    r->run[vcpu] = 0;
}

static void put_constraint(struct recording *r, const struct access *a, const struct object *object,
                           bool for_clock, bool for_loads)
{
    struct bit_writer *out = &r->out[a->vcpu];
    const bool is_plain = !r->run[a->vcpu] && !for_loads;

    r->log->constraints++;
    if (!put_plain(r, a->vcpu, is_plain, a->store)) {
        put_run(r, a->vcpu);
        if (a->store)
            bits_put(out, for_loads, 1);
        if (for_loads)
            bits_put(out, for_clock, 1);
    }
    if (for_clock)
        bits_put_gamma(out, object->clock.clock - object->clock.seen[a->vcpu] +
                                increment_bias(r->log->prune));
    if (for_loads)
        bits_put_gamma(out, object->clock.loads);
}

/* The vCPU is now behind the store whose value it found, and if it stores itself behind the loads
 * of that value. */
static void follow(struct recording *r, const struct access *a, struct object *object)
{
    struct knowledge *mine = &r->known[a->vcpu];

    if (object->clock.clock && object->stored_at > mine->of[object->storer])
        mine->of[object->storer] = object->stored_at;
    if (r->log->prune & ORDER_PRUNE_TRANSITIVE) {
        learn(mine, &object->store);
        if (a->store)
            learn(mine, &object->loads);
    }
    mine->of[a->vcpu]++;
    if (a->store) {
        *object = (struct object){
            .clock = object->clock,
            .stored_at = mine->of[a->vcpu],
            .storer = a->vcpu,
            .store = *mine,
        };
    } else {
        object->loaded_at[a->vcpu] = mine->of[a->vcpu];
        learn(&object->loads, mine);
    }
}

static void record_access(void *recording, const struct access *a)
{
    struct recording *r = recording;
    struct object *object = order_objects_get(&r->objects, a->object);

    assert(a->vcpu < r->log->vcpus);
    const bool for_clock = must_wait_for_store(r, object, a->vcpu);
    const bool for_loads = a->store && must_wait_for_loads(r, object, a->vcpu);
    if (for_clock || for_loads)
        put_constraint(r, a, object, for_clock, for_loads);
    else
        r->run[a->vcpu]++;
    follow(r, a, object);
    tick(&object->clock, a);
}

static void finish(void *recording)
{
    struct recording *r = recording;

    for (unsigned i = 0; i < r->log->vcpus; i++) {
        put_plain(r, i, false, false);
        put_run(r, i);
        bits_flush(&r->out[i]);
    }
    order_objects_free(&r->objects);
    free(r);
}

/* ---- replay ---- */

struct part {
    struct bit_reader in;
    unsigned bias;
    uint64_t run;           /* what is left of a free run; 0: a constraint comes next, or the end */
    bool had_run, is_plain; /* the log has said of the constraint that it is plain */
    /* The constraint, once it is read: what it waits for. */
    bool is_read, for_clock, for_loads;
    uint64_t clock, loads;
};

struct replay {
    unsigned vcpus;
    struct part part[MAX_VCPUS];
    struct order_objects objects; /* struct object_clock */
};

/* was_plain: the constraint before was a plain one of a store. */
static void read_run(struct part *p, bool was_plain)
{
    p->is_plain = was_plain && bits_get(&p->in, 1);
    p->run = p->is_plain ? 0 : bits_get_gamma(&p->in) - 1;
    p->had_run = p->run != 0;
    p->is_read = false;
}

static void *replay(const struct order_log *log)
{
    struct replay *r = order_allocate(sizeof *r);

    r->vcpus = log->vcpus;
    order_objects_init(&r->objects, sizeof(struct object_clock));
    for (unsigned i = 0; i < log->vcpus; i++) {
        struct part *p = &r->part[i];
        p->in = bits_of(log->part[i].data, log->part[i].len);
        p->bias = increment_bias(log->prune);
        read_run(p, false);
    }
    return r;
}

static void read_constraint(struct part *p, uint64_t seen, bool store)
{
    p->is_read = true;
    p->for_loads = store && !p->is_plain && bits_get(&p->in, 1);
    p->for_clock = !p->for_loads || bits_get(&p->in, 1);
    if (p->for_clock)
        p->clock = seen + bits_get_gamma(&p->in) - p->bias;
    if (p->for_loads)
        p->loads = bits_get_gamma(&p->in);
}

static enum order_answer may(void *replay, const struct access *a)
{
    struct replay *r = replay;
    struct part *p = &r->part[a->vcpu];

    assert(a->vcpu < r->vcpus);
    if (p->in.bad)
        return ORDER_WRONG;
    if (p->run)
        return ORDER_GO;
    const struct object_clock *object = order_objects_get(&r->objects, a->object);
    if (!p->is_read)
        read_constraint(p, object->seen[a->vcpu], a->store);
    /* What is past its mark comes to it no more. */
    if (p->in.bad)
        return ORDER_WRONG;
    if (p->for_clock && object->clock != p->clock)
        return object->clock < p->clock ? ORDER_WAIT : ORDER_WRONG;
    if (p->for_loads && object->loads != p->loads)
        return object->loads < p->loads ? ORDER_WAIT : ORDER_WRONG;
    return ORDER_GO;
}

static void did(void *replay, const struct access *a)
{
    struct replay *r = replay;
    struct part *p = &r->part[a->vcpu];

    assert(p->run || p->is_read);
    if (p->run)
        p->run--;
    else
        read_run(p, a->store && !p->had_run && !p->for_loads);
    tick(order_objects_get(&r->objects, a->object), a);
}

static bool ended(const void *replay)
{
    const struct replay *r = replay;

    for (unsigned i = 0; i < r->vcpus; i++)
        if (r->part[i].run || r->part[i].is_read || !bits_at_end(&r->part[i].in))
            return false;
    return true;
}

static void close_replay(void *replay)
{
    struct replay *r = replay;

    order_objects_free(&r->objects);
    free(r);
}

const struct order_encoder order_ditto = {
    .name = "ditto",
    .unit = "constraints",
    .streams = true,
    .record = record,
    .access = record_access,
    .finish = finish,
    .replay = replay,
    .may = may,
    .did = did,
    .ended = ended,
    .close = close_replay,
};
