/*
 * JaRec's order log (Georges, Christiaens, Ronsse, De Bosschere: JaRec, a portable record/replay
 * environment for multi-threaded Java applications; its clocks are RecPlay's): every object and
 * every vCPU has a Lamport clock, and an access, be it a load or a store, sets both to one more
 * than the greater of them. That is its time. In a replay an access waits until all that have a
 * lesser time have happened; two of the same time have nothing to do with each other.
 *
 * Mostly a vCPU's clock goes on by one. The log has a part for each vCPU, of the *jumps*:
 *
 *   varint(n), varint(jump)   n accesses, each one later than the one before, and one that is
 *                             1 + jump later, jump >= 1
 *
 * and at the end varint(n) alone.
 */
#include <assert.h>
#include <stdlib.h>

#include "recording/order/order.h"
#include "recording/order/order_objects.h"

/* An access at this time, whose clocks these are. */
static uint64_t next_time(const uint64_t *object, uint64_t vcpu)
{
    return 1 + (*object > vcpu ? *object : vcpu);
}

/* ---- recording ---- */

struct recording {
    struct order_log *log;
    struct order_objects objects; /* uint64_t: the clock */
    uint64_t clock[MAX_VCPUS], steady[MAX_VCPUS];
};

static void *record(struct order_log *log)
{
    struct recording *r = order_allocate(sizeof *r);

    r->log = log;
    order_objects_init(&r->objects, sizeof(uint64_t));
    return r;
}

static void record_access(void *recording, const struct access *a)
{
    struct recording *r = recording;
    uint64_t *object = order_objects_get(&r->objects, a->object);

    assert(a->vcpu < r->log->vcpus);
    const uint64_t time = next_time(object, r->clock[a->vcpu]);
    const uint64_t jump = time - r->clock[a->vcpu] - 1;
    if (jump) {
        bytes_put_varint(&r->log->part[a->vcpu], r->steady[a->vcpu]);
        bytes_put_varint(&r->log->part[a->vcpu], jump);
        r->steady[a->vcpu] = 0;
        r->log->constraints++;
    } else {
        r->steady[a->vcpu]++;
    }
    *object = r->clock[a->vcpu] = time;
}

static void finish(void *recording)
{
    struct recording *r = recording;

    for (unsigned i = 0; i < r->log->vcpus; i++)
        bytes_put_varint(&r->log->part[i], r->steady[i]);
    order_objects_free(&r->objects);
    free(r);
}

/* ---- replay ---- */

struct part {
    struct cursor in;
    uint64_t clock;
    uint64_t steady; /* accesses before the jump */
    uint64_t jump;   /* 0: the part ends before it */
};

struct replay {
    unsigned vcpus;
    struct part part[MAX_VCPUS];
    struct order_objects objects; /* uint64_t: the clock */
};

static void read_jump(struct part *p)
{
    p->steady = cursor_varint(&p->in);
    p->jump = 0;
    if (cursor_left(&p->in)) {
        p->jump = cursor_varint(&p->in);
        /* The end is written out, so something must follow. */
        if (!p->jump || !cursor_left(&p->in))
            p->in.bad = true;
    }
}

static void *replay(const struct order_log *log)
{
    struct replay *r = order_allocate(sizeof *r);

    r->vcpus = log->vcpus;
    order_objects_init(&r->objects, sizeof(uint64_t));
    for (unsigned i = 0; i < log->vcpus; i++) {
        r->part[i].in = cursor_of(log->part[i].data, log->part[i].len);
        read_jump(&r->part[i]);
    }
    return r;
}

static bool is_at_end(const struct part *p)
{
    return !p->in.bad && !p->steady && !p->jump;
}

/* The time of the vCPU's next access; the greatest there is when it has none. */
static uint64_t time_of(const struct part *p)
{
    if (is_at_end(p))
        return UINT64_MAX;
    return p->clock + 1 + (p->steady ? 0 : p->jump);
}

static enum order_answer may(void *replay, const struct access *a)
{
    struct replay *r = replay;
    const struct part *p = &r->part[a->vcpu];

    assert(a->vcpu < r->vcpus);
    if (p->in.bad || is_at_end(p))
        return ORDER_WRONG;
    const uint64_t time = time_of(p);
    for (unsigned i = 0; i < r->vcpus; i++)
        if (time_of(&r->part[i]) < time)
            return ORDER_WAIT;
    /* Everything before has happened, so the clocks must come to this by themselves. */
    const uint64_t *object = order_objects_get(&r->objects, a->object);
    return next_time(object, p->clock) == time ? ORDER_GO : ORDER_WRONG;
}

static void did(void *replay, const struct access *a)
{
    struct replay *r = replay;
    struct part *p = &r->part[a->vcpu];
    uint64_t *object = order_objects_get(&r->objects, a->object);

    p->clock = *object = time_of(p);
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

const struct order_encoder order_jarec = {
    .name = "jarec",
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
