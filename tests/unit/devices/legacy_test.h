#ifndef TESTS_UNIT_DEVICES_LEGACY_TEST_H
#define TESTS_UNIT_DEVICES_LEGACY_TEST_H

/* What the tests of the PC's own devices share: a clock and a wire to look at, and rough use. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "devices/bus.h"
#include "devices/device.h"
#include "devices/device_request.h"
#include "tests/unit/random.h"

#define SECOND 1000000000ull

struct fake_time {
    struct device_time time;
    uint64_t now, wall;
};

static inline uint64_t fake_now(struct device_time *t)
{
    return ((struct fake_time *)t)->now;
}

static inline uint64_t fake_wall(struct device_time *t)
{
    return ((struct fake_time *)t)->wall;
}

static inline struct fake_time fake_time_at(uint64_t now, uint64_t wall)
{
    return (struct fake_time){
        .time = {.now = fake_now, .wall = fake_wall}, .now = now, .wall = wall};
}

struct fake_wire {
    bool level;
    unsigned rises;
};

static inline void fake_wire_set(void *opaque, unsigned irq, bool level)
{
    struct fake_wire *wire = opaque;

    (void)irq;
    wire->rises += level && !wire->level;
    wire->level = level;
}

static inline struct irq_pin fake_pin(struct fake_wire *wire)
{
    return (struct irq_pin){.set = fake_wire_set, .chip = wire};
}

struct fake_machine {
    unsigned poweroffs, resets;
};

static inline void fake_request(void *opaque, enum machine_request request)
{
    struct fake_machine *machine = opaque;

    *(request == MACHINE_RESET ? &machine->resets : &machine->poweroffs) += 1;
}

static inline uint64_t next_random(uint64_t *state)
{
    return random_next(state) >> 11;
}

/* A device used as a machine would use it: its deadline asked for, polled, saved. */
static inline void exercise(struct device *dev, uint64_t now)
{
    struct bytes out = {0};

    if (dev->ops->deadline)
        dev->ops->deadline(dev);
    if (dev->ops->poll)
        dev->ops->poll(dev, now);
    dev->ops->save(dev, &out);
    bytes_free(&out);
}

/* A million random accesses to the ports first to last while time goes on. */
static inline void use_roughly(struct device *dev, const struct bus *pio, struct fake_time *time,
                               unsigned first, unsigned last)
{
    static const unsigned sizes[] = {1, 1, 1, 2, 4};
    uint64_t random = 0x9e3779b97f4a7c15ull;

    for (unsigned i = 0; i < 1000000; i++) {
        uint64_t r = next_random(&random);
        unsigned port = first + (unsigned)(r % (last - first + 1)), size = sizes[(r >> 16) % 5];
        if (r >> 20 & 1)
            bus_write(pio, port, size, r >> 21);
        else
            bus_read(pio, port, size);
        time->now += r >> 24 & 0xffff;
        time->wall += r >> 24 & 0xfffffff;
        if (i % 64 == 0)
            exercise(dev, time->now);
    }
}

/* What a has saved, b takes over, and saves the same. */
static inline void check_round_trip(const struct device *a, struct device *b)
{
    struct bytes first = {0}, second = {0};

    a->ops->save(a, &first);
    struct cursor in = cursor_of(first.data, first.len);
    assert_int_equal(b->ops->restore(b, &in), 0);
    assert_int_equal(cursor_left(&in), 0);
    b->ops->save(b, &second);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);
    bytes_free(&first);
    bytes_free(&second);
}

/*
 * States that nobody saved: random bytes, and a true state with bytes changed or cut off. Whatever
 * comes of them, the device can be used, and what it then saves it can restore.
 */
static inline void restore_garbage(struct device *dev, struct device *other, struct fake_time *time)
{
    uint64_t random = 0x2545f4914f6cdd1dull;
    struct bytes state = {0};
    unsigned refused = 0;

    dev->ops->save(dev, &state);
    for (unsigned round = 0; round < 2000; round++) {
        uint8_t garbage[512];
        size_t len;
        assert_true(state.len <= sizeof(garbage));
        if (round % 2) {
            len = next_random(&random) % sizeof(garbage);
            for (size_t i = 0; i < len; i++)
                garbage[i] = (uint8_t)next_random(&random);
            if (len)
                garbage[0] = state.data[0]; /* else the version byte would refuse them all */
        } else {
            len = round % 8 ? state.len : next_random(&random) % state.len;
            memcpy(garbage, state.data, state.len);
            for (unsigned i = 0; i < 1 + round / 2 % 4; i++)
                garbage[next_random(&random) % state.len] = (uint8_t)next_random(&random);
        }
        struct cursor in = cursor_of(garbage, len);
        refused += dev->ops->restore(dev, &in) != 0;
        exercise(dev, time->now);
        check_round_trip(dev, other);
    }
    assert_true(refused > 0);
    bytes_free(&state);
}

#endif
