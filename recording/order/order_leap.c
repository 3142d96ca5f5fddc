/*
 * LEAP's order log (Huang, Liu, Zhang: LEAP, lightweight deterministic multi-processor replay of
 * concurrent Java programs): for each object an *access vector*, which says whose turn it is, with
 * accesses in a row by one vCPU as one turn. Loads are accesses like any other.
 *
 * All vectors are in the first part, because an object may be accessed at any time until the end:
 *
 *   for each object, in the order of first accesses:
 *     svarint(object - last object)      modulo 2^64; at first the last one is 0
 *     varint(turns)                      at least 1
 *     for each turn: varint(vCPU), varint(accesses), at least 1
 */
#include <assert.h>
#include <stdlib.h>

#include "recording/order/order.h"
#include "recording/order/order_objects.h"

/* ---- recording ---- */

/* In memory turns are in the order in which they came, each with the number of the object's next
 * one, counted from 1. */
struct turn {
    uint32_t next;
    uint32_t vcpu;
    uint64_t accesses;
};

struct vector {
    uint32_t first, last; /* numbers of turns, 0: none yet */
    uint64_t turns;
};

struct recording {
    struct order_log *log;
    struct order_objects objects; /* struct vector */
    struct bytes turns;
};

static struct turn *turn_at(const struct recording *r, uint32_t number)
{
    return (struct turn *)(void *)r->turns.data + (number - 1);
}

static void *record(struct order_log *log)
{
    struct recording *r = order_allocate(sizeof *r);

    r->log = log;
    order_objects_init(&r->objects, sizeof(struct vector));
    return r;
}

static void record_access(void *recording, const struct access *a)
{
    struct recording *r = recording;
    struct vector *v = order_objects_get(&r->objects, a->object);

    assert(a->vcpu < r->log->vcpus);
    if (v->last && turn_at(r, v->last)->vcpu == a->vcpu) {
        turn_at(r, v->last)->accesses++;
        return;
    }
    const struct turn turn = {.vcpu = a->vcpu, .accesses = 1};
    bytes_put(&r->turns, &turn, sizeof turn);
    assert(r->turns.len / sizeof turn <= UINT32_MAX);
    const uint32_t number = (uint32_t)(r->turns.len / sizeof turn);
    if (v->last)
        turn_at(r, v->last)->next = number;
    else
        v->first = number;
    v->last = number;
    v->turns++;
    r->log->constraints++;
}

static void finish(void *recording)
{
    struct recording *r = recording;
    struct bytes *out = &r->log->part[0];
    uint64_t last = 0;

    for (size_t i = 0; i < r->objects.count; i++) {
        const struct vector *v = order_objects_state(&r->objects, i);
        const uint64_t object = order_objects_name(&r->objects, i);
        bytes_put_svarint(out, (int64_t)(object - last));
        bytes_put_varint(out, v->turns);
        for (uint32_t number = v->first; number; number = turn_at(r, number)->next) {
            bytes_put_varint(out, turn_at(r, number)->vcpu);
            bytes_put_varint(out, turn_at(r, number)->accesses);
        }
        last = object;
    }
    order_objects_free(&r->objects);
    bytes_free(&r->turns);
    free(r);
}

/* ---- replay ---- */

/* Where the replay is in an object's vector. The turn that began last is `vcpu`'s, with `accesses`
 * left of it; behind it `turns` more are at `next` in the log. */
struct place {
    uint64_t next, turns;
    uint64_t accesses, vcpu;
};

struct replay {
    const struct order_log *log;
    struct order_objects objects; /* struct place */
    uint64_t left;                /* accesses of all vectors */
};

/* Read one turn; false when it makes no sense. */
static bool read_turn(const struct order_log *log, struct cursor *in, uint64_t *vcpu,
                      uint64_t *accesses)
{
    *vcpu = cursor_varint(in);
    *accesses = cursor_varint(in);
    return !in->bad && *vcpu < log->vcpus && *accesses >= 1;
}

static void begin_turn(struct replay *r, struct place *p)
{
    const struct bytes *part = &r->log->part[0];
    struct cursor in = cursor_of(part->data + p->next, part->len - p->next);

    assert(p->turns);
    if (!read_turn(r->log, &in, &p->vcpu, &p->accesses))
        abort(); /* find_vectors() has read it before */
    p->next = part->len - cursor_left(&in);
    p->turns--;
}

/* Find where each object's vector is. */
static bool find_vectors(struct replay *r)
{
    const struct bytes *part = &r->log->part[0];
    struct cursor in = cursor_of(part->data, part->len);
    uint64_t object = 0, vcpu, accesses;

    while (cursor_left(&in)) {
        object += (uint64_t)cursor_svarint(&in);
        const uint64_t turns = cursor_varint(&in);
        if (in.bad || turns == 0 || order_objects_find(&r->objects, object))
            return false;
        struct place *p = order_objects_get(&r->objects, object);
        *p = (struct place){.next = part->len - cursor_left(&in), .turns = turns};
        for (uint64_t i = 0; i < turns; i++) {
            if (!read_turn(r->log, &in, &vcpu, &accesses) || r->left + accesses < accesses)
                return false;
            r->left += accesses;
        }
        begin_turn(r, p);
    }
    return true;
}

static void close_replay(void *replay)
{
    struct replay *r = replay;

    order_objects_free(&r->objects);
    free(r);
}

static void *replay(const struct order_log *log)
{
    struct replay *r = order_allocate(sizeof *r);

    r->log = log;
    order_objects_init(&r->objects, sizeof(struct place));
    if (find_vectors(r))
        return r;
    close_replay(r);
    return NULL;
}

static enum order_answer may(void *replay, const struct access *a)
{
    struct replay *r = replay;
    struct place *p = order_objects_find(&r->objects, a->object);

    assert(a->vcpu < r->log->vcpus);
    if (!p || (!p->accesses && !p->turns))
        return ORDER_WRONG;
    if (!p->accesses)
        begin_turn(r, p);
    return p->vcpu == a->vcpu ? ORDER_GO : ORDER_WAIT;
}

static void did(void *replay, const struct access *a)
{
    struct replay *r = replay;
    struct place *p = order_objects_find(&r->objects, a->object);

    assert(p && p->accesses && p->vcpu == a->vcpu);
    p->accesses--;
    r->left--;
}

static bool ended(const void *replay)
{
    return ((const struct replay *)replay)->left == 0;
}

const struct order_encoder order_leap = {
    .name = "leap",
    .unit = "turns",
    .record = record,
    .access = record_access,
    .finish = finish,
    .replay = replay,
    .may = may,
    .did = did,
    .ended = ended,
    .close = close_replay,
};
