/*
 * DejaVu's order log (Choi, Srinivasan: Deterministic replay of Java multithreaded applications):
 * one count of all accesses, and for each vCPU the *intervals* of it that are its own. In a replay
 * an access waits until the count has come to it: vCPUs never run at the same time.
 *
 * The log has a part for each vCPU, of its intervals:
 *
 *   varint(first - end of the interval before)   at first the end before is 0
 *   varint(accesses)                             at least 1
 */
#include <assert.h>
#include <stdlib.h>

#include "recording/order/order.h"

/* ---- recording ---- */

struct recording {
    struct order_log *log;
    uint64_t count;
    uint64_t first[MAX_VCPUS], end[MAX_VCPUS]; /* of each one's interval that is not written yet */
    uint64_t written[MAX_VCPUS];               /* end of the last that is */
};

static void *record(struct order_log *log)
{
    struct recording *r = order_allocate(sizeof *r);

    r->log = log;
    return r;
}

static void put_interval(struct recording *r, unsigned vcpu)
{
    if (r->first[vcpu] == r->end[vcpu])
        return;
    bytes_put_varint(&r->log->part[vcpu], r->first[vcpu] - r->written[vcpu]);
    bytes_put_varint(&r->log->part[vcpu], r->end[vcpu] - r->first[vcpu]);
    r->written[vcpu] = r->end[vcpu];
    r->log->constraints++;
}

static void record_access(void *recording, const struct access *a)
{
    struct recording *r = recording;

    assert(a->vcpu < r->log->vcpus);
    if (r->end[a->vcpu] != r->count || !r->count) {
        put_interval(r, a->vcpu);
        r->first[a->vcpu] = r->count;
    }
    r->end[a->vcpu] = ++r->count;
}

static void finish(void *recording)
{
    struct recording *r = recording;

    for (unsigned i = 0; i < r->log->vcpus; i++)
        put_interval(r, i);
    free(r);
}

/* ---- replay ---- */

struct part {
    struct cursor in;
    uint64_t next, left; /* what is left of its interval; 0 left: there are no more */
};

struct replay {
    unsigned vcpus;
    uint64_t count;
    struct part part[MAX_VCPUS];
};

static void read_interval(struct part *p)
{
    if (!cursor_left(&p->in))
        return;
    const uint64_t gap = cursor_varint(&p->in);
    p->next += gap;
    p->left = cursor_varint(&p->in);
    if (!p->left)
        p->in.bad = true;
}

static void *replay(const struct order_log *log)
{
    struct replay *r = order_allocate(sizeof *r);

    r->vcpus = log->vcpus;
    for (unsigned i = 0; i < log->vcpus; i++) {
        r->part[i].in = cursor_of(log->part[i].data, log->part[i].len);
        read_interval(&r->part[i]);
    }
    return r;
}

static enum order_answer may(void *replay, const struct access *a)
{
    struct replay *r = replay;
    const struct part *p = &r->part[a->vcpu];

    assert(a->vcpu < r->vcpus);
    if (p->in.bad || !p->left || p->next < r->count)
        return ORDER_WRONG;
    return p->next == r->count ? ORDER_GO : ORDER_WAIT;
}

static void did(void *replay, const struct access *a)
{
    struct replay *r = replay;
    struct part *p = &r->part[a->vcpu];

    assert(p->left);
    r->count++;
    p->next++;
    if (!--p->left)
        read_interval(p);
}

static bool ended(const void *replay)
{
    const struct replay *r = replay;

    for (unsigned i = 0; i < r->vcpus; i++)
        if (r->part[i].in.bad || r->part[i].left)
            return false;
    return true;
}

static void close_replay(void *replay)
{
    free(replay);
}

const struct order_encoder order_global = {
    .name = "dejavu",
    .unit = "intervals",
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
