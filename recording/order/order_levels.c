/*
 * Levels: JaRec's idea with Ditto's distinction, our own. Every access has a level, one above the
 * last one of its vCPU; and a load's is above that of the store it finds, a store's above those of
 * the store before and of its loads. In a replay an access waits until all of lower levels have
 * happened; those of one level have nothing to do with each other. So vCPUs that go on side by side
 * need no log at all, however much they share, as long as nobody meets what is fresh from another.
 *
 * What that costs is that a vCPU also waits for accesses that it has nothing to do with, when their
 * vCPU takes long to come to them.
 *
 * The log has a part for each vCPU, a bit string (base/bits.h), of the *jumps*:
 *
 *   gamma(1 + n), gamma(jump)   n accesses, each one level above the one before, and one that is
 *                               1 + jump above
 *   gamma(1 + n)                at the end
 *
 * and zeroes to the end of the byte.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/bits.h"
#include "recording/order/order.h"
#include "recording/order/order_objects.h"

struct object {
    uint64_t store, loads; /* level of the last store, the highest of the loads since; 0: none */
};

/* The level of an access of a vCPU whose last one's is `last`. */
static uint64_t next_level(const struct object *object, uint64_t last, bool store)
{
    uint64_t below = last > object->store ? last : object->store;

    if (store && object->loads > below)
        below = object->loads;
    return below + 1;
}

static void note_level(struct object *object, uint64_t level, bool store)
{
    if (store)
        *object = (struct object){.store = level};
    else if (level > object->loads)
        object->loads = level;
}

/* ---- recording ---- */

struct recording {
    struct order_log *log;
    struct order_objects objects; /* struct object */
    struct bit_writer out[MAX_VCPUS];
    uint64_t level[MAX_VCPUS], steady[MAX_VCPUS];
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

static void record_access(void *recording, const struct access *a)
{
    struct recording *r = recording;
    struct object *object = order_objects_get(&r->objects, a->object);

    assert(a->vcpu < r->log->vcpus);
    const uint64_t level = next_level(object, r->level[a->vcpu], a->store);
    const uint64_t jump = level - r->level[a->vcpu] - 1;
    if (jump) {
        bits_put_gamma(&r->out[a->vcpu], r->steady[a->vcpu] + 1);
        bits_put_gamma(&r->out[a->vcpu], jump);
        r->steady[a->vcpu] = 0;
        r->log->constraints++;
    } else {
        r->steady[a->vcpu]++;
    }
    r->level[a->vcpu] = level;
    note_level(object, level, a->store);
}

static void finish(void *recording)
{
    struct recording *r = recording;

    for (unsigned i = 0; i < r->log->vcpus; i++) {
        bits_put_gamma(&r->out[i], r->steady[i] + 1);
        bits_flush(&r->out[i]);
    }
    order_objects_free(&r->objects);
    free(r);
}

/* ---- replay ---- */

struct part {
    struct bit_reader in;
    uint64_t level;
    uint64_t steady; /* accesses before the jump */
    uint64_t jump;   /* 0: the part ends before it */
};

struct replay {
    unsigned vcpus;
    struct part part[MAX_VCPUS];
    struct order_objects objects; /* struct object */
};

static void read_jump(struct part *p)
{
    p->steady = bits_get_gamma(&p->in) - 1;
    p->jump = bits_at_end(&p->in) ? 0 : bits_get_gamma(&p->in);
}

static void *replay(const struct order_log *log)
{
    struct replay *r = order_allocate(sizeof *r);

    r->vcpus = log->vcpus;
    order_objects_init(&r->objects, sizeof(struct object));
    for (unsigned i = 0; i < log->vcpus; i++) {
        r->part[i].in = bits_of(log->part[i].data, log->part[i].len);
        read_jump(&r->part[i]);
    }
    return r;
}

static bool is_at_end(const struct part *p)
{
    return !p->in.bad && !p->steady && !p->jump;
}

/* The level of the vCPU's next access; the highest there is when it has none. */
static uint64_t level_of(const struct part *p)
{
    if (is_at_end(p))
        return UINT64_MAX;
    return p->level + 1 + (p->steady ? 0 : p->jump);
}

static enum order_answer may(void *replay, const struct access *a)
{
    struct replay *r = replay;
    const struct part *p = &r->part[a->vcpu];

    assert(a->vcpu < r->vcpus);
    if (p->in.bad || is_at_end(p))
        return ORDER_WRONG;
    const uint64_t level = level_of(p);
    for (unsigned i = 0; i < r->vcpus; i++)
        if (level_of(&r->part[i]) < level)
            return ORDER_WAIT;
    /* Everything below has happened, so this must come out by itself. */
    const struct object *object = order_objects_get(&r->objects, a->object);
    return next_level(object, p->level, a->store) == level ? ORDER_GO : ORDER_WRONG;
}

static void did(void *replay, const struct access *a)
{
    struct replay *r = replay;
    struct part *p = &r->part[a->vcpu];

    p->level = level_of(p);
    note_level(order_objects_get(&r->objects, a->object), p->level, a->store);
    if (p->steady)
        p->steady--;
    else
        read_jump(p);
}

static bool ended(const void *replay)
{
    const struct replay *r = replay;

    for (unsigned i = 0; i < r->vcpus; i++)
        if (!is_at_end(&r->part[i]))
            return false;
    return true;
}

static void close_replay(void *replay)
{
    struct replay *r = replay;

    order_objects_free(&r->objects);
    free(r);
}

const struct order_encoder order_levels = {
    .name = "levels",
    .unit = "jumps",
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
