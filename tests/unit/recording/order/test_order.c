/* The order logs (recording/order/order.h): what they say is enough, all of it is needed, and
 * nothing hostile in them does harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "recording/order/order.h"
#include "recording/order/order_check.h"
#include "tests/unit/recording/order/access_pattern.h"

static uint64_t seed = RANDOM_SEED;

static unsigned below(unsigned limit)
{
    return (unsigned)(random_next(&seed) % limit);
}

static struct access_pattern random_pattern(unsigned accesses)
{
    static const unsigned loads[] = {0, 250, 500, 750, 900, 1000}, shares[] = {0, 0, 500, 900},
                          objects[] = {1, 2, 3, 8, 60, 1000}, turns[] = {0, 0, 1, 7};

    return (struct access_pattern){
        .vcpus = 2 + below(MAX_VCPUS - 1),
        .accesses = 1 + below(accesses),
        .objects = objects[below(6)],
        .loads = loads[below(6)],
        .own = shares[below(4)],
        .again = shares[below(4)],
        .turn = turns[below(4)],
        .transitions = below(2),
    };
}

static void check_replays(const struct order_encoder *encoder, const struct order_log *log,
                          const struct access_list *list)
{
    struct err e = {0};

    for (unsigned schedule = 0; schedule < ORDER_SCHEDULES; schedule++)
        if (order_check(encoder, log, list, schedule, random_next(&seed), &e) < 0)
            fail_msg("%s (%zu accesses of %u vCPUs, schedule %u, prune %u)", e.text, list->count,
                     list->vcpus, schedule, log->prune);
}

/* Every log replays, however the vCPUs run. */
static void test_replay(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 150; round++) {
        const struct access_pattern pattern = random_pattern(300);
        struct access_list list = {0};

        pattern_make(&pattern, random_next(&seed), &list);
        for (unsigned i = 0; i < ORDER_ENCODERS; i++) {
            struct order_log log;
            order_log_init(&log, list.vcpus);
            order_record(order_encoders[i], &list, &log);
            check_replays(order_encoders[i], &log, &list);
            order_log_free(&log);
        }
        access_list_free(&list);
    }
}

/* Whatever Ditto is told to leave out, or not. */
static void test_replay_prunings(void **state)
{
    static const unsigned prunings[] = {
        0,
        ORDER_PRUNE_PROGRAM,
        ORDER_PRUNE_INTERACTIONS,
        ORDER_PRUNE_PROGRAM | ORDER_PRUNE_INTERACTIONS,
        ORDER_PRUNE_INTERACTIONS | ORDER_PRUNE_TRANSITIVE,
    };

    (void)state;
    for (unsigned round = 0; round < 150; round++) {
        const struct access_pattern pattern = random_pattern(200);
        struct access_list list = {0};

        pattern_make(&pattern, random_next(&seed), &list);
        for (unsigned i = 0; i < sizeof prunings / sizeof *prunings; i++) {
            struct order_log log;
            order_log_init(&log, list.vcpus);
            log.prune = prunings[i];
            order_record(&order_ditto, &list, &log);
            check_replays(&order_ditto, &log, &list);
            order_log_free(&log);
        }
        access_list_free(&list);
    }
}

/* ---- what is left out ---- */

#define STANZAS 40u

/* "0Sx 1Lx": vCPU 0 stores to x, vCPU 1 loads it; STANZAS times, each time with other objects. */
static void list_of(const char *text, struct access_list *list)
{
    unsigned points = 0;

    *list = (struct access_list){.vcpus = 4};
    for (unsigned stanza = 0; stanza < STANZAS; stanza++)
        for (const char *p = text; *p; p += p[3] ? 4 : 3) {
            const struct access a = {.vcpu = (uint8_t)(p[0] - '0'),
                                     .store = p[1] == 'S',
                                     .object = (uint64_t)p[2] + 256 * stanza,
                                     .point = points++};
            assert_true((p[1] == 'S' || p[1] == 'L') && (p[3] == ' ' || !p[3]));
            assert_int_equal(access_list_add(list, &a), 0);
        }
}

/* Expects so many constraints in each stanza, and returns the bytes of the log. */
static uint64_t expect_constraints(const char *text, unsigned prune, unsigned constraints)
{
    struct access_list list;
    struct order_log log;

    list_of(text, &list);
    order_log_init(&log, list.vcpus);
    log.prune = prune;
    order_record(&order_ditto, &list, &log);
    check_replays(&order_ditto, &log, &list);
    if (log.constraints != constraints * STANZAS)
        fail_msg("'%s' with %u: %.2f constraints, not %u", text, prune,
                 (double)log.constraints / STANZAS, constraints);
    const uint64_t bytes = order_log_bytes(&log);
    order_log_free(&log);
    access_list_free(&list);
    return bytes;
}

enum {
    P = ORDER_PRUNE_PROGRAM,
    PI = ORDER_PRUNE_PROGRAM | ORDER_PRUNE_INTERACTIONS,
    PIT = ORDER_PRUNE_ALL,
};

static void expect_pruned(const char *text, unsigned with, unsigned left, unsigned without,
                          unsigned all)
{
    const uint64_t bytes = expect_constraints(text, with, left);

    assert_true(bytes < expect_constraints(text, without, all));
}

/* What the vCPU's own program implies: section 3.4.1, and constraints 7 and 8 of figure 1. */
static void test_prune_program(void **state)
{
    (void)state;
    expect_pruned("0Sx 0Lx 0Lx 0Sx", P, 0, 0, 4);
    expect_pruned("0Lx 0Sx", P, 0, 0, 2);
    expect_pruned("0Sx 1Lx 1Lx 1Lx", P, 1, 0, 4);
    expect_pruned("0Sx 1Lx 1Sx 1Sx", P, 1, 0, 4);
    /* What does not follow. */
    expect_constraints("0Sx 1Lx 0Sx", P, 2);
    expect_constraints("0Sx 1Sx 0Lx", P, 2);
    expect_constraints("0Lx 1Sx", P, 1);
}

/* What follows from an earlier wait for the same vCPU: section 3.4.2, thesis figure 3.3. */
static void test_prune_interactions(void **state)
{
    (void)state;
    expect_pruned("0Sa 0Sb 0Sc 0Sd 0Sy 1Ly 1La 1Lb 1Lc 1Ld", PI, 1, P, 5);
    expect_pruned("0Sa 0Sb 0Sc 0Sd 0Sy 1Sy 1Sa 1Sb 1Sc 1Sd", PI, 1, P, 5);
    expect_pruned("0La 0Lb 0Lc 0Ld 0Sy 1Ly 1Sa 1Sb 1Sc 1Sd", PI, 1, P, 5);
    /* A store that was later than the one waited for; one of another vCPU. */
    expect_constraints("0Sz 0Sy 1Lz 1Ly", PI, 2);
    expect_constraints("0Sz 2Sy 1Ly 1Lz", PI, 2);
    /* A load behind the store that was waited for. */
    expect_constraints("0Sz 0Sy 1Ly 0Lz 1Sz", PI, 2);
}

/* What follows from what others had waited for: thesis figure 3.3, constraint 4. */
static void test_prune_transitive(void **state)
{
    (void)state;
    expect_pruned("0Sx 0Sx 1Lx 1Sy 2Ly 2Lx", PIT, 2, PI, 3);
    /* From a wait for loads, and through a load. */
    expect_pruned("0Sy 0Sy 0Lx 1Sx 1Ly", PIT, 1, PI, 2);
    expect_pruned("0Sx 0Sx 1Lx 2Lx 1Sy 3Ly 3Lx", PIT, 3, PI, 4);
    expect_pruned("0Sy 0Sy 1Ly 1Lx 2Sx 2Ly", PIT, 2, PI, 3);
    /* Who loaded the same knows nothing of the other. */
    expect_constraints("0Sx 1Sy 1Lx 2Lx 2Ly", PIT, 3);
}

/* A store does not follow from the store before alone: the others' loads must have been. */
static void test_store_behind_loads(void **state)
{
    (void)state;
    expect_constraints("0Sx 1Lx 2Lx 1Sx", PIT, 3);
    expect_constraints("0Sx 0Sy 1Ly 2Lx 1Sx", PIT, 3);
    expect_constraints("0Sx 1Lx 0Lx 1Sx", PIT, 2);
}

/* ---- the formats ---- */

static void expect_part(const struct order_log *log, unsigned part, const void *bytes, size_t len)
{
    assert_int_equal(log->part[part].len, len);
    assert_memory_equal(log->part[part].data, bytes, len);
}

#define EXPECT_PART(log, part, ...)                                                                \
    expect_part(log, part, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static struct order_log log_of(const struct order_encoder *encoder, const struct access *at,
                               size_t count, unsigned vcpus)
{
    struct access_list list = {.vcpus = vcpus};
    struct order_log log;

    for (size_t i = 0; i < count; i++)
        assert_int_equal(access_list_add(&list, &at[i]), 0);
    order_log_init(&log, vcpus);
    order_record(encoder, &list, &log);
    access_list_free(&list);
    return log;
}

/* Byte for byte, as the heads of the files say. */
static void test_formats(void **state)
{
    static const struct access at[] = {
        {.vcpu = 0, .object = 'x', .store = true},
        {.vcpu = 1, .object = 'x'},
        {.vcpu = 1, .object = 'x'},
        {.vcpu = 2, .object = 'x'},
        {.vcpu = 1, .object = 'x', .store = true},
        {.vcpu = 0, .object = 'y', .store = true},
    };
    const size_t count = sizeof at / sizeof *at;

    (void)state;
    struct order_log log = log_of(&order_ditto, at, count, 3);
    assert_int_equal(log.constraints, 3);
    /* 011 (two free) */
    EXPECT_PART(&log, 0, 0x06);
    /* 1 (none free) 1 (increment 1); 010 (one free) 1 (waits for loads) 0 (not for the clock) 011
     * (3 loads); 1 */
    EXPECT_PART(&log, 1, 0x2b, 0x07);
    EXPECT_PART(&log, 2, 0x07);
    order_log_free(&log);

    static const struct access in_turn[] = {
        {.vcpu = 0, .store = true}, {.vcpu = 1, .store = true}, {.vcpu = 0, .store = true},
        {.vcpu = 1, .store = true}, {.vcpu = 0, .store = true},
    };
    log = log_of(&order_ditto, in_turn, 5, 2);
    assert_int_equal(log.constraints, 4);
    /* 010 (one free) 0 1; 1 (none free) 0 1; 0 (not plain) 1 */
    EXPECT_PART(&log, 0, 0xb2, 0x02);
    /* 1 0 1; 1 (plain) 1; 0 1 */
    EXPECT_PART(&log, 1, 0x5d);
    order_log_free(&log);

    log = log_of(&order_leap, at, count, 3);
    assert_int_equal(log.constraints, 5);
    EXPECT_PART(&log, 0, 0xf0, 1, 4, 0, 1, 1, 2, 2, 1, 1, 1, /* x */ 2, 1, 0, 1 /* y */);
    assert_int_equal(log.part[1].len + log.part[2].len, 0);
    order_log_free(&log);

    log = log_of(&order_jarec, at, count, 3); /* times 1 2 3 4 5 2 */
    assert_int_equal(log.constraints, 3);
    EXPECT_PART(&log, 0, 2);
    EXPECT_PART(&log, 1, 0, 1, 1, 1, 0);
    EXPECT_PART(&log, 2, 0, 3, 0);
    order_log_free(&log);

    log = log_of(&order_global, at, count, 3);
    assert_int_equal(log.constraints, 5);
    EXPECT_PART(&log, 0, 0, 1, 4, 1);
    EXPECT_PART(&log, 1, 1, 2, 1, 1);
    EXPECT_PART(&log, 2, 3, 1);
    order_log_free(&log);

    log = log_of(&order_levels, at, count, 3); /* levels 1 2 3 2 4 2 */
    assert_int_equal(log.constraints, 2);
    EXPECT_PART(&log, 0, 0x06); /* 011 (two, each one above) */
    EXPECT_PART(&log, 1, 0x1b); /* 1 (none) 1 (jump 1) 011 */
    EXPECT_PART(&log, 2, 0x07); /* 1 1 1 */
    order_log_free(&log);
}

/* A recorder may write out what there is of a log at any time. */
static void test_parts_grow(void **state)
{
    const struct access_pattern pattern = {.vcpus = 3, .accesses = 400, .objects = 5, .loads = 500};
    struct access_list list = {0};

    (void)state;
    pattern_make(&pattern, 3, &list);
    for (unsigned i = 0; i < ORDER_ENCODERS; i++) {
        const struct order_encoder *encoder = order_encoders[i];
        struct order_log whole, piece;
        struct bytes taken[MAX_VCPUS] = {0};
        size_t early = 0;

        order_log_init(&whole, list.vcpus);
        order_record(encoder, &list, &whole);
        order_log_init(&piece, list.vcpus);
        void *recording = encoder->record(&piece);
        for (size_t k = 0; k <= list.count; k++) {
            if (k < list.count)
                encoder->access(recording, &list.at[k]);
            else
                encoder->finish(recording);
            for (unsigned v = 0; v < list.vcpus; v++) {
                bytes_put(&taken[v], piece.part[v].data, piece.part[v].len);
                early += k < list.count ? piece.part[v].len : 0;
                bytes_clear(&piece.part[v]);
            }
        }
        assert_int_equal(early > 0, encoder->streams);
        for (unsigned v = 0; v < list.vcpus; v++) {
            expect_part(&whole, v, taken[v].data, taken[v].len);
            bytes_free(&taken[v]);
        }
        order_log_free(&whole);
        order_log_free(&piece);
    }
    access_list_free(&list);
}

static double time_of(const struct order_encoder *encoder, const struct access_list *list,
                      uint64_t pace)
{
    struct order_log log;
    struct err e;
    double time = 0;

    order_log_init(&log, list->vcpus);
    order_record(encoder, list, &log);
    assert_int_equal(order_time(encoder, &log, list, pace, &time, &e), 0);
    order_log_free(&log);
    return time;
}

/* By the 1/1000. */
static void expect_times(const struct access_list *list, unsigned ditto, unsigned leap,
                         unsigned jarec, unsigned dejavu, unsigned levels)
{
    assert_int_equal(1000 * time_of(&order_ditto, list, 0), ditto);
    assert_int_equal(1000 * time_of(&order_leap, list, 0), leap);
    assert_int_equal(1000 * time_of(&order_jarec, list, 0), jarec);
    assert_int_equal(1000 * time_of(&order_global, list, 0), dejavu);
    assert_int_equal(1000 * time_of(&order_levels, list, 0), levels);
}

static void expect_pattern_times(const struct access_pattern *pattern, unsigned ditto,
                                 unsigned leap, unsigned jarec, unsigned dejavu, unsigned levels)
{
    struct access_list list = {0};

    pattern_make(pattern, 1, &list);
    expect_times(&list, ditto, leap, jarec, dejavu, levels);
    access_list_free(&list);
}

/* How much of a replay can go on at the same time: Ditto's waits for what it must, LEAP's makes
 * loads wait for each other, DejaVu's everything. */
static void test_time(void **state)
{
    const struct access_pattern loads = {.vcpus = 4, .accesses = 500, .objects = 1, .loads = 1000},
                                apart = {.vcpus = 4, .accesses = 500, .objects = 1, .own = 1000};
    /* One that is long in coming makes those wait that have nothing to do with it, but for Ditto's
     * and LEAP's. */
    static const struct access slow[] = {
        {.vcpu = 0, .object = 'x', .store = true},
        {.vcpu = 0, .object = 'x', .store = true, .point = 1},
        {.vcpu = 0, .object = 'x', .store = true, .point = 2},
        {.vcpu = 0, .object = 'x', .store = true, .point = 3},
        {.vcpu = 1, .object = 'y', .store = true, .point = 0},
        {.vcpu = 1, .object = 'y', .store = true, .point = 100},
    };
    struct access_list list = {.vcpus = 2};

    (void)state;
    expect_pattern_times(&loads, 1000, 4000, 4000, 4000, 1000);
    expect_pattern_times(&apart, 1000, 1000, 1000, 4000, 1000);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(access_list_add(&list, &slow[i]), 0);
    /* 101 points are vCPU 1's own; it begins 4 later where one comes after another. */
    expect_times(&list, 1000, 1000, 1000 * 103 / 101, 1000 * 105 / 101, 1000 * 103 / 101);
    access_list_free(&list);
}

/* At another pace than the recording's nobody is late for Ditto's log who is not for the others. */
static void test_pace(void **state)
{
    const struct access_pattern pattern = {
        .vcpus = 4, .accesses = 2000, .objects = 50, .loads = 500, .work = 50, .transitions = true};
    struct access_list list = {0};

    (void)state;
    pattern_make(&pattern, 1, &list);
    /* As it was: what happened before is there in time. */
    expect_times(&list, 1000, 1000, 1000 * time_of(&order_jarec, &list, 0), 1000,
                 1000 * time_of(&order_levels, &list, 0));
    assert_true(time_of(&order_levels, &list, 0) > 1.1);
    for (uint64_t pace = 1; pace < 10; pace++) {
        const double ditto = time_of(&order_ditto, &list, pace);
        assert_true(ditto > 1 && ditto < 4);
        assert_true(ditto <= time_of(&order_leap, &list, pace));
        assert_true(ditto < time_of(&order_levels, &list, pace));
        assert_true(ditto < time_of(&order_global, &list, pace));
        assert_true(time_of(&order_leap, &list, pace) < time_of(&order_jarec, &list, pace));
    }
    access_list_free(&list);
}

/* ---- logs that lack something ---- */

/* One of Ditto's constraints as its numbers: read and written here as the format says, not by the
 * code that is tested. */
struct constraint {
    uint64_t run, increment, loads;
    bool store, for_clock, for_loads, last;
};

static size_t read_constraints(const struct order_log *log, const struct access_list *list,
                               unsigned vcpu, struct constraint *out, size_t max)
{
    struct bit_reader in = bits_of(log->part[vcpu].data, log->part[vcpu].len);
    size_t count = 0, done = 0, at = 0;
    bool was_plain = false;

    for (;;) {
        const bool is_plain = was_plain && bits_get(&in, 1);
        struct constraint c = {.run = is_plain ? 0 : bits_get_gamma(&in) - 1};
        assert_true(count < max);
        if (bits_at_end(&in)) {
            c.last = true;
            out[count++] = c;
            return count;
        }
        /* Which access it is: the vCPU's number done + run. */
        for (done += c.run + 1; at < list->count; at++)
            if (list->at[at].vcpu == vcpu && --done == 0)
                break;
        assert_true(at < list->count);
        c.store = list->at[at++].store;
        c.for_loads = c.store && !is_plain && bits_get(&in, 1);
        c.for_clock = !c.for_loads || bits_get(&in, 1);
        c.increment = c.for_clock ? bits_get_gamma(&in) : 0;
        c.loads = c.for_loads ? bits_get_gamma(&in) : 0;
        assert_false(in.bad);
        was_plain = c.store && !c.run && !c.for_loads;
        out[count++] = c;
    }
}

/* The part again, with one constraint turned into a free access. */
static void write_without(struct bytes *part, const struct constraint *c, size_t count, size_t gone)
{
    struct bit_writer out = {.out = part};
    uint64_t run = 0;
    bool was_plain = false;

    bytes_clear(part);
    for (size_t i = 0; i < count; i++) {
        run += c[i].run;
        if (i == gone) {
            run++;
            continue;
        }
        const bool is_plain = !run && !c[i].for_loads && !c[i].last;
        if (was_plain)
            bits_put(&out, is_plain, 1);
        if (!was_plain || !is_plain) {
            bits_put_gamma(&out, run + 1);
            if (c[i].last)
                break;
            if (c[i].store)
                bits_put(&out, c[i].for_loads, 1);
            if (c[i].for_loads)
                bits_put(&out, c[i].for_clock, 1);
        }
        was_plain = is_plain && c[i].store;
        run = 0;
        if (c[i].for_clock)
            bits_put_gamma(&out, c[i].increment);
        if (c[i].for_loads)
            bits_put_gamma(&out, c[i].loads);
    }
    bits_flush(&out);
}

static bool some_schedule_fails(const struct order_log *log, const struct access_list *list)
{
    struct err e;

    for (unsigned schedule = 0; schedule < ORDER_SCHEDULES; schedule++)
        if (order_check(&order_ditto, log, list, schedule, random_next(&seed), &e) < 0)
            return true;
    return false;
}

/* Every constraint is needed: without it some schedule goes wrong, and that is seen. */
static void test_removed_constraint(void **state)
{
    static struct constraint c[1000];
    unsigned removed = 0, caught = 0;

    (void)state;
    for (unsigned round = 0; round < 80; round++) {
        const struct access_pattern pattern = random_pattern(60);
        struct access_list list = {0};
        struct order_log log;

        pattern_make(&pattern, random_next(&seed), &list);
        order_log_init(&log, list.vcpus);
        order_record(&order_ditto, &list, &log);
        for (unsigned vcpu = 0; vcpu < list.vcpus; vcpu++) {
            const struct bytes whole = log.part[vcpu];
            const size_t count = read_constraints(&log, &list, vcpu, c, 1000);
            log.part[vcpu] = (struct bytes){0};
            write_without(&log.part[vcpu], c, count, count);
            expect_part(&log, vcpu, whole.data, whole.len);
            for (size_t gone = 0; gone + 1 < count; gone++) {
                write_without(&log.part[vcpu], c, count, gone);
                removed++;
                caught += some_schedule_fails(&log, &list);
            }
            bytes_free(&log.part[vcpu]);
            log.part[vcpu] = whole;
        }
        order_log_free(&log);
        access_list_free(&list);
    }
    assert_true(removed > 1000);
    assert_true(caught > removed / 10 * 9);
}

/* Bits flipped, bytes cut off or put on: never a crash, and never a replay that is not the
 * recording and passes for it. */
static void test_damaged(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ORDER_ENCODERS; i++) {
        unsigned refused = 0;
        for (unsigned round = 0; round < 300; round++) {
            const struct access_pattern pattern = random_pattern(60);
            struct access_list list = {0};
            struct order_log log;
            struct err e = {0};

            pattern_make(&pattern, random_next(&seed), &list);
            order_log_init(&log, list.vcpus);
            order_record(order_encoders[i], &list, &log);
            struct bytes *part = &log.part[order_encoders[i]->streams ? below(list.vcpus) : 0];
            if (!part->len || round % 3 == 2)
                for (unsigned k = 1 + below(20); k; k--)
                    bytes_put_u8(part, (uint8_t)random_next(&seed));
            else if (round % 3 == 1)
                part->len = below((unsigned)part->len);
            else
                part->data[below((unsigned)part->len)] ^= (uint8_t)(1 << below(8));
            if (order_check(order_encoders[i], &log, &list, ORDER_SCHEDULE_RANDOM,
                            random_next(&seed), &e) < 0) {
                refused++;
                assert_int_equal(e.status, STATUS_DIVERGED);
            }
            order_log_free(&log);
            access_list_free(&list);
        }
        assert_in_range(refused, 200, 300);
    }
}

/* A log that is another program's. */
static void test_other_program(void **state)
{
    const struct access_pattern pattern = {
        .vcpus = 4, .accesses = 300, .objects = 10, .loads = 500};

    (void)state;
    for (unsigned i = 0; i < ORDER_ENCODERS; i++) {
        struct access_list one = {0}, two = {0};
        struct order_log log;
        struct err e = {0};

        pattern_make(&pattern, 1, &one);
        pattern_make(&pattern, 2, &two);
        order_log_init(&log, one.vcpus);
        order_record(order_encoders[i], &one, &log);
        assert_int_equal(order_check(order_encoders[i], &log, &two, ORDER_SCHEDULE_RANDOM, 1, &e),
                         -1);
        assert_non_null(strstr(e.text, order_encoders[i]->name));
        order_log_free(&log);
        access_list_free(&one);
        access_list_free(&two);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_replay_prunings),
        cmocka_unit_test(test_prune_program),
        cmocka_unit_test(test_prune_interactions),
        cmocka_unit_test(test_prune_transitive),
        cmocka_unit_test(test_store_behind_loads),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_parts_grow),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_pace),
        cmocka_unit_test(test_removed_constraint),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_other_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
