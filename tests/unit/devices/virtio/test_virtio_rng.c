#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "devices/virtio/virtio_rng.h"
#include "tests/unit/devices/virtio/virtio_rings.h"
#include "tests/unit/random.h"

#define SIZE 8

static struct ram ram;
static struct virtio_rng rng;
static unsigned drawn; /* bytes of entropy */

static void count_up(void *opaque, void *buf, size_t len)
{
    uint8_t *at = buf;

    for (size_t i = 0; i < len; i++)
        at[i] = (uint8_t)(++*(unsigned *)opaque * 3);
}

static int setup(void **state)
{
    (void)state;
    ram_init(&ram);
    drawn = 0;
    virtio_rng_init(&rng, &ram.dma, count_up, &drawn);
    drive(&rng.vd, VIRTIO_F_VERSION_1, SIZE);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ram_free(&ram);
    return 0;
}

static void buffers_are_filled(void **state)
{
    (void)state;
    put_desc(&ram, RING_DESC, 0, RING_DATA, 5, D_NEXT | D_WRITE, 1);
    put_desc(&ram, RING_DESC, 1, RING_DATA + 0x100, 6000, D_WRITE, 0);
    put_desc(&ram, RING_DESC, 2, RING_DATA + 0x4000, 1, D_WRITE, 0);
    put_avail(&ram, SIZE, 0);
    put_avail(&ram, SIZE, 2);
    virtio_notify(&rng.vd, 0);
    assert_int_equal(used_index(&ram), 2);
    assert_int_equal(used_len(&ram, 0), 6005);
    assert_int_equal(used_len(&ram, 1), 1);
    assert_int_equal(drawn, 6006);
    assert_int_equal(ram.bytes[RING_DATA], 3);
    assert_int_equal(ram.bytes[RING_DATA + 4], 15);
    assert_int_equal(ram.bytes[RING_DATA + 5], 0);
    assert_int_equal(ram.bytes[RING_DATA + 0x100], 18);
    assert_int_equal(ram.bytes[RING_DATA + 0x100 + 5999], (uint8_t)(6005 * 3));
    assert_int_equal(ram.bytes[RING_DATA + 0x100 + 6000], 0);
    assert_int_equal(ram.bytes[RING_DATA + 0x4000], (uint8_t)(6006 * 3));
}

static void one_request_draws_a_bounded_amount(void **state)
{
    (void)state;
    put_desc(&ram, RING_DESC, 0, RING_DATA, 0x20000, D_WRITE, 0);
    put_avail(&ram, SIZE, 0);
    virtio_notify(&rng.vd, 0);
    assert_int_equal(used_len(&ram, 0), VIRTIO_RNG_MAX);
    assert_int_equal(drawn, VIRTIO_RNG_MAX);
}

static void empty_and_readable_buffers_get_nothing(void **state)
{
    (void)state;
    put_desc(&ram, RING_DESC, 0, RING_DATA, 100, 0, 0);
    put_desc(&ram, RING_DESC, 1, RING_DATA, 0, D_WRITE, 0);
    put_avail(&ram, SIZE, 0);
    put_avail(&ram, SIZE, 1);
    virtio_notify(&rng.vd, 0);
    assert_int_equal(used_index(&ram), 2);
    assert_int_equal(used_len(&ram, 0), 0);
    assert_int_equal(used_len(&ram, 1), 0);
    assert_int_equal(drawn, 0);
}

/* A driver on another processor that makes buffers available faster than they are served. */
static int endless_read(struct dma *dma, uint64_t gpa, void *data, size_t len)
{
    if (gpa == RING_AVAIL + 2)
        put_avail((struct ram *)dma, SIZE, 0);
    return ram_read(dma, gpa, data, len);
}

static void one_visit_serves_a_bounded_number(void **state)
{
    (void)state;
    put_desc(&ram, RING_DESC, 0, RING_DATA, 1, D_WRITE, 0);
    ram.dma.peek = endless_read;
    virtio_notify(&rng.vd, 0);
    assert_int_equal(used_index(&ram), SIZE);
    assert_int_equal(drawn, SIZE);
}

static void a_buffer_outside_ram_breaks_the_device(void **state)
{
    (void)state;
    put_desc(&ram, RING_DESC, 0, RAM_BYTES - 10, 11, D_WRITE, 0);
    put_avail(&ram, SIZE, 0);
    virtio_notify(&rng.vd, 0);
    assert_true(rng.vd.status & VIRTIO_NEEDS_RESET);
    assert_string_equal(rng.vd.fault, "buffer is not in RAM");
    assert_int_equal(used_index(&ram), 0);
}

static void state_goes_round(void **state)
{
    struct bytes saved = {0};
    struct cursor in;

    (void)state;
    put_desc(&ram, RING_DESC, 0, RING_DATA, 1, D_WRITE, 0);
    put_avail(&ram, SIZE, 0);
    virtio_notify(&rng.vd, 0);
    rng.vd.device.ops->save(&rng.vd.device, &saved);
    virtio_rng_init(&rng, &ram.dma, count_up, &drawn);
    in = cursor_of(saved.data, saved.len);
    assert_int_equal(rng.vd.device.ops->restore(&rng.vd.device, &in), 0);
    put_avail(&ram, SIZE, 0);
    virtio_notify(&rng.vd, 0);
    assert_int_equal(used_index(&ram), 2);

    saved.data[1] = VIRTIO_ID_BLOCK; /* another kind's state */
    in = cursor_of(saved.data, saved.len);
    assert_int_equal(rng.vd.device.ops->restore(&rng.vd.device, &in), -1);
    assert_int_equal(rng.vd.status, 0);
    bytes_free(&saved);
}

static void hostile_rings_never_crash(void **state)
{
    uint64_t seed = 5;
    unsigned broken = 0;

    (void)state;
    for (unsigned round = 0; round < rounds(20000); round++) {
        drive(&rng.vd, rng.vd.offered, SIZE);
        memset(ram.bytes + RING_USED, 0, 4);
        for (unsigned i = 0; i < 16 * SIZE; i++)
            ram.bytes[RING_DESC + i] = 0;
        for (unsigned i = 0; i < SIZE; i++)
            put_desc(&ram, RING_DESC, i, random_next(&seed) % (RAM_BYTES + 0x100),
                     (uint32_t)(random_next(&seed) % 64),
                     D_WRITE | (random_next(&seed) % 3 ? 0 : (unsigned)random_next(&seed) % 8),
                     (unsigned)(random_next(&seed) % (SIZE + 1)));
        put(&ram, RING_AVAIL + 2, 2, random_next(&seed) % (SIZE + 2));
        for (unsigned i = 0; i < SIZE; i++)
            put(&ram, RING_AVAIL + 4 + 2 * i, 2, random_next(&seed) % (SIZE + 1));
        virtio_notify(&rng.vd, 0);
        broken += (rng.vd.status & VIRTIO_NEEDS_RESET) != 0;
    }
    assert_in_range(broken, rounds(20000) / 20, rounds(20000) - rounds(20000) / 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(buffers_are_filled, setup, teardown),
        cmocka_unit_test_setup_teardown(one_request_draws_a_bounded_amount, setup, teardown),
        cmocka_unit_test_setup_teardown(empty_and_readable_buffers_get_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(one_visit_serves_a_bounded_number, setup, teardown),
        cmocka_unit_test_setup_teardown(a_buffer_outside_ram_breaks_the_device, setup, teardown),
        cmocka_unit_test_setup_teardown(state_goes_round, setup, teardown),
        cmocka_unit_test_setup_teardown(hostile_rings_never_crash, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
