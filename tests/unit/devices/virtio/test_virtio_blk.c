#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/devices/virtio/virtio_blk_rig.h"
#include "tests/unit/random.h"

static void must_break(void)
{
    uint16_t before = used_index(&ram);

    put_avail(&ram, SIZE, 0);
    virtio_notify(&blk.vd, 0);
    assert_int_equal(used_index(&ram), before);
    assert_true(blk.vd.status & VIRTIO_NEEDS_RESET);
    assert_non_null(blk.vd.fault);
    assert_true(wire);
    assert_true(blk.vd.isr & VIRTIO_ISR_CONFIG);
    virtio_notify(&blk.vd, 0); /* stopped */
    assert_int_equal(used_index(&ram), before);
    memset(ram.bytes + RING_AVAIL, 0, 4);
    memset(ram.bytes + RING_USED, 0, 4);
    drive(&blk.vd, FEATURES, SIZE);
    assert_false(wire);
    assert_int_equal(request(VIRTIO_BLK_T_IN, 0, 512, true), VIRTIO_BLK_S_OK);
}

static void reads(void **state)
{
    (void)state;
    assert_int_equal(request(VIRTIO_BLK_T_IN, 7, 1024, true), VIRTIO_BLK_S_OK);
    assert_memory_equal(ram.bytes + DATA, array.bytes + 7 * 512, 1024);
    assert_int_equal(last_written(), 1025);
    assert_true(wire);
    assert_int_equal(virtio_take_isr(&blk.vd), VIRTIO_ISR_QUEUE);
    assert_false(wire);
}

static void reads_through_many_pieces(void **state)
{
    (void)state;
    assert_int_equal(request(VIRTIO_BLK_T_IN, 1, DISK_BYTES - 512, true), VIRTIO_BLK_S_OK);
    assert_memory_equal(ram.bytes + DATA, array.bytes + 512, DISK_BYTES - 512);
}

static void writes(void **state)
{
    (void)state;
    memset(ram.bytes + DATA, 0x5a, DISK_BYTES);
    assert_int_equal(request(VIRTIO_BLK_T_OUT, 2, 1024, false), VIRTIO_BLK_S_OK);
    assert_int_equal(array.bytes[1023], (uint8_t)(1 + 1023));
    assert_memory_equal(array.bytes + 1024, ram.bytes + DATA, 1024);
    assert_int_equal(array.bytes[2048], (uint8_t)(4 + 2048));
    assert_int_equal(last_written(), 1);
    assert_int_equal(array.flushes, 0);
    assert_int_equal(request(VIRTIO_BLK_T_FLUSH, 0, 0, false), VIRTIO_BLK_S_OK);
    assert_int_equal(array.flushes, 1);
}

static void without_flush_writes_are_stable(void **state)
{
    (void)state;
    drive(&blk.vd, FEATURES, SIZE);
    assert_int_equal(request(VIRTIO_BLK_T_OUT, 2, 512, false), VIRTIO_BLK_S_OK);
    assert_int_equal(array.flushes, 1);
}

/* Section 2.7.4: no assumption on framing. Header, data and status cut at every odd place. */
static void any_framing_is_understood(void **state)
{
    (void)state;
    for (unsigned cut = 1; cut < 500; cut += 7) {
        put_header(VIRTIO_BLK_T_OUT, 3);
        for (unsigned i = 0; i < 512; i++)
            ram.bytes[DATA + i] = (uint8_t)(i * cut);
        memcpy(ram.bytes + HEADER + 16, ram.bytes + DATA, 512);
        /* header and data back to back, the cut anywhere */
        put_desc(&ram, RING_DESC, 0, HEADER, cut, D_NEXT, 4);
        put_desc(&ram, RING_DESC, 4, HEADER + cut, 528 - cut, D_NEXT, 2);
        put_desc(&ram, RING_DESC, 2, DATA + 0x1000, 1, D_WRITE, 0);
        put_avail(&ram, SIZE, 0);
        virtio_notify(&blk.vd, 0);
        assert_int_equal(get(&ram, DATA + 0x1000, 1), VIRTIO_BLK_S_OK);
        assert_memory_equal(array.bytes + 3 * 512, ram.bytes + DATA, 512);

        /* data and status in shared descriptors */
        put_header(VIRTIO_BLK_T_IN, 3);
        put_desc(&ram, RING_DESC, 0, HEADER, 16, D_NEXT, 1);
        put_desc(&ram, RING_DESC, 1, DATA + 0x2000, cut, D_NEXT | D_WRITE, 2);
        put_desc(&ram, RING_DESC, 2, DATA + 0x2000 + cut, 513 - cut, D_WRITE, 0);
        ram.bytes[DATA + 0x2000 + 512] = 0xaa;
        put_avail(&ram, SIZE, 0);
        virtio_notify(&blk.vd, 0);
        assert_int_equal(ram.bytes[DATA + 0x2000 + 512], VIRTIO_BLK_S_OK);
        assert_memory_equal(ram.bytes + DATA + 0x2000, ram.bytes + DATA, 512);
    }
}

static void indirect_requests_work(void **state)
{
    (void)state;
    put_header(VIRTIO_BLK_T_IN, 1);
    put_desc(&ram, RING_DESC, 0, RING_TABLE, 48, D_INDIRECT, 0);
    put_desc(&ram, RING_TABLE, 0, HEADER, 16, D_NEXT, 1);
    put_desc(&ram, RING_TABLE, 1, DATA, 512, D_NEXT | D_WRITE, 2);
    put_desc(&ram, RING_TABLE, 2, STATUS, 1, D_WRITE, 0);
    assert_int_equal(submit(), VIRTIO_BLK_S_OK);
    assert_memory_equal(ram.bytes + DATA, array.bytes + 512, 512);
}

static void many_requests_are_served_in_one_visit(void **state)
{
    (void)state;
    put_header(VIRTIO_BLK_T_IN, 0);
    put_desc(&ram, RING_DESC, 0, HEADER, 16, D_NEXT, 1);
    put_desc(&ram, RING_DESC, 1, DATA, 512, D_NEXT | D_WRITE, 2);
    put_desc(&ram, RING_DESC, 2, STATUS, 1, D_WRITE, 0);
    for (unsigned i = 0; i < SIZE; i++)
        put_avail(&ram, SIZE, 0);
    virtio_notify(&blk.vd, 0);
    assert_int_equal(used_index(&ram), SIZE);
}

static void ranges_are_discarded_and_zeroed(void **state)
{
    (void)state;
    put(&ram, DATA, 8, 10);
    put(&ram, DATA + 8, 4, 2);
    put(&ram, DATA + 12, 4, 0);
    put(&ram, DATA + 16, 8, 20);
    put(&ram, DATA + 24, 4, 1);
    put(&ram, DATA + 28, 4, 0);
    assert_int_equal(request(VIRTIO_BLK_T_DISCARD, 0, 32, false), VIRTIO_BLK_S_OK);
    assert_int_equal(array.bytes[10 * 512 - 1], (uint8_t)(9 + 10 * 512 - 1));
    assert_int_equal(array.bytes[12 * 512 - 1], 0xdd);
    assert_int_equal(array.bytes[12 * 512], 12);
    assert_int_equal(array.bytes[20 * 512], 0xdd);
    put(&ram, DATA + 12, 4, 1);
    assert_int_equal(request(VIRTIO_BLK_T_DISCARD, 0, 16, false), VIRTIO_BLK_S_UNSUPP);
    assert_int_equal(request(VIRTIO_BLK_T_WRITE_ZEROES, 0, 16, false), VIRTIO_BLK_S_OK);
    assert_int_equal(array.bytes[12 * 512 - 1], 0);
    assert_int_equal(array.bytes[12 * 512], 12);
    put(&ram, DATA + 12, 4, 2);
    assert_int_equal(request(VIRTIO_BLK_T_WRITE_ZEROES, 0, 16, false), VIRTIO_BLK_S_UNSUPP);
    put(&ram, DATA + 12, 4, 0);
    put(&ram, DATA, 8, DISK_BYTES / 512 - 1); /* 2 sectors from the last one on */
    assert_int_equal(request(VIRTIO_BLK_T_WRITE_ZEROES, 0, 16, false), VIRTIO_BLK_S_IOERR);
    put(&ram, DATA, 8, UINT64_MAX);
    assert_int_equal(request(VIRTIO_BLK_T_DISCARD, 0, 16, false), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(VIRTIO_BLK_T_DISCARD, 0, 15, false), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(VIRTIO_BLK_T_DISCARD, 0, 17 * 16, false), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(VIRTIO_BLK_T_DISCARD, 0, 0, false), VIRTIO_BLK_S_IOERR);
}

static void serial_is_given(void **state)
{
    (void)state;
    memset(ram.bytes + DATA, 0xee, 32);
    assert_int_equal(request(VIRTIO_BLK_T_GET_ID, 0, 20, true), VIRTIO_BLK_S_OK);
    assert_memory_equal(ram.bytes + DATA, "ditto\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xee", 21);
    assert_int_equal(last_written(), 21);
    assert_int_equal(request(VIRTIO_BLK_T_GET_ID, 0, 3, true), VIRTIO_BLK_S_OK);
}

static void impossible_requests_get_an_error(void **state)
{
    (void)state;
    assert_int_equal(request(99, 0, 512, true), VIRTIO_BLK_S_UNSUPP);
    assert_int_equal(request(VIRTIO_BLK_T_IN, 0, 511, true), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(VIRTIO_BLK_T_IN, DISK_BYTES / 512 - 1, 1024, true),
                     VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(VIRTIO_BLK_T_OUT, UINT64_MAX, 512, false), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(VIRTIO_BLK_T_IN, 1ull << 55, 512, true), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(VIRTIO_BLK_T_IN, DISK_BYTES / 512, 0, true), VIRTIO_BLK_S_OK);
    assert_false(blk.vd.status & VIRTIO_NEEDS_RESET);
}

static void host_failures_are_io_errors(void **state)
{
    (void)state;
    array.good = 1; /* the second piece fails */
    assert_int_equal(request(VIRTIO_BLK_T_IN, 0, 2 * BLK_PIECE, true), VIRTIO_BLK_S_IOERR);
    assert_int_equal(last_written(), BLK_PIECE);
    assert_int_equal(request(VIRTIO_BLK_T_OUT, 0, 512, false), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(VIRTIO_BLK_T_FLUSH, 0, 0, false), VIRTIO_BLK_S_IOERR);
    put(&ram, DATA, 8, 0);
    put(&ram, DATA + 8, 8, 1);
    assert_int_equal(request(VIRTIO_BLK_T_DISCARD, 0, 16, false), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(VIRTIO_BLK_T_WRITE_ZEROES, 0, 16, false), VIRTIO_BLK_S_IOERR);
    array.good = UINT32_MAX;
    assert_int_equal(request(VIRTIO_BLK_T_IN, 0, 512, true), VIRTIO_BLK_S_OK);
}

static void a_read_only_disk_stays_as_it_is(void **state)
{
    static uint8_t before[DISK_BYTES];

    (void)state;
    make(true);
    assert_true(blk.vd.offered & VIRTIO_BLK_F_RO);
    assert_false(blk.vd.offered & (VIRTIO_BLK_F_DISCARD | VIRTIO_BLK_F_WRITE_ZEROES));
    memcpy(before, array.bytes, DISK_BYTES);
    put(&ram, DATA, 8, 0);
    put(&ram, DATA + 8, 8, 1);
    assert_int_equal(request(VIRTIO_BLK_T_OUT, 0, 512, false), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(VIRTIO_BLK_T_OUT, 0, 0, false), VIRTIO_BLK_S_IOERR);
    assert_int_equal(request(VIRTIO_BLK_T_DISCARD, 0, 16, false), VIRTIO_BLK_S_UNSUPP);
    assert_int_equal(request(VIRTIO_BLK_T_WRITE_ZEROES, 0, 16, false), VIRTIO_BLK_S_UNSUPP);
    assert_int_equal(request(VIRTIO_BLK_T_FLUSH, 0, 0, false), VIRTIO_BLK_S_OK);
    assert_int_equal(request(VIRTIO_BLK_T_IN, 0, 512, true), VIRTIO_BLK_S_OK);
    assert_memory_equal(array.bytes, before, DISK_BYTES);
}

static void broken_requests_break_only_until_reset(void **state)
{
    (void)state;
    put_header(VIRTIO_BLK_T_IN, 0);
    put_desc(&ram, RING_DESC, 0, HEADER, 15, D_NEXT, 1); /* short header */
    put_desc(&ram, RING_DESC, 1, STATUS, 1, D_WRITE, 0);
    must_break();
    put_desc(&ram, RING_DESC, 0, HEADER, 16, 0, 0); /* no status */
    must_break();
    put_desc(&ram, RING_DESC, 0, HEADER, 16, D_NEXT, 0); /* loop */
    must_break();
    put_desc(&ram, RING_DESC, 0, RAM_BYTES, 16, D_NEXT, 1);
    must_break();
    put_desc(&ram, RING_DESC, 0, HEADER, 16, D_NEXT, 1);
    put_desc(&ram, RING_DESC, 1, RAM_BYTES - 512, 513, D_WRITE, 0); /* data in, status out of RAM */
    put_header(VIRTIO_BLK_T_IN, 0);
    must_break();
    put_desc(&ram, RING_DESC, 0, HEADER, 16, D_NEXT, 1);
    put_desc(&ram, RING_DESC, 1, 0xfffffffff000, 512, D_NEXT | D_WRITE, 2);
    put_header(VIRTIO_BLK_T_IN, 0);
    must_break();
}

static void nothing_happens_before_the_driver_is_ready(void **state)
{
    (void)state;
    put_header(VIRTIO_BLK_T_IN, 0);
    put_desc(&ram, RING_DESC, 0, HEADER, 16, D_NEXT, 1);
    put_desc(&ram, RING_DESC, 1, DATA, 513, D_WRITE, 0);
    put_avail(&ram, SIZE, 0);
    virtio_notify(&blk.vd, 1); /* no such queue */
    blk.vd.queue[0].enabled = false;
    virtio_notify(&blk.vd, 0);
    blk.vd.queue[0].enabled = true;
    blk.vd.status = VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK;
    virtio_notify(&blk.vd, 0);
    assert_int_equal(used_index(&ram), 0);
    virtio_set_status(&blk.vd, 0);
    /* DRIVER_OK without agreement on features, or on ones that were not offered */
    virtio_set_status(&blk.vd, VIRTIO_DRIVER_OK);
    assert_false(virtio_is_live(&blk.vd));
    drive(&blk.vd, 1ull << 28, SIZE);
    assert_false(blk.vd.status & VIRTIO_FEATURES_OK);
    drive(&blk.vd, VIRTIO_F_VERSION_1 | 1ull << 40, SIZE);
    assert_false(blk.vd.status & VIRTIO_FEATURES_OK);
    assert_false(virtio_is_live(&blk.vd));
    drive(&blk.vd, VIRTIO_F_VERSION_1, SIZE);
    assert_true(virtio_is_live(&blk.vd));
    virtio_accept(&blk.vd, 0xffffffff); /* too late */
    assert_int_equal(blk.vd.accepted, VIRTIO_F_VERSION_1);
    virtio_set_queue_size(&blk.vd, 3);
    assert_int_equal(blk.vd.queue[0].size, SIZE);
}

static void impossible_queues_need_a_reset(void **state)
{
    (void)state;
    drive(&blk.vd, FEATURES, 3);
    assert_true(blk.vd.status & VIRTIO_NEEDS_RESET);
    assert_true(wire); /* told with DRIVER_OK */
    drive(&blk.vd, FEATURES, 512);
    assert_true(blk.vd.status & VIRTIO_NEEDS_RESET);
    drive(&blk.vd, FEATURES, 256);
    assert_false(blk.vd.status & VIRTIO_NEEDS_RESET);
    assert_false(wire);
}

static void state_goes_round(void **state)
{
    struct bytes saved = {0}, again = {0};
    struct cursor in;

    (void)state;
    assert_int_equal(request(VIRTIO_BLK_T_IN, 0, 512, true), VIRTIO_BLK_S_OK);
    blk.vd.device.ops->save(&blk.vd.device, &saved);
    make(false);
    virtio_set_status(&blk.vd, 0);
    assert_false(wire);
    in = cursor_of(saved.data, saved.len);
    assert_int_equal(blk.vd.device.ops->restore(&blk.vd.device, &in), 0);
    assert_int_equal(cursor_left(&in), 0);
    assert_true(wire);
    blk.vd.device.ops->save(&blk.vd.device, &again);
    assert_int_equal(again.len, saved.len);
    assert_memory_equal(again.data, saved.data, saved.len);
    assert_int_equal(request(VIRTIO_BLK_T_IN, 5, 512, true), VIRTIO_BLK_S_OK);
    assert_int_equal(used_index(&ram), 2);

    for (size_t len = 0; len < saved.len; len++) {
        in = cursor_of(saved.data, len);
        assert_int_equal(blk.vd.device.ops->restore(&blk.vd.device, &in), -1);
        assert_int_equal(blk.vd.status, 0);
    }
    bytes_free(&saved);
    bytes_free(&again);
}

static void hostile_state_never_crashes(void **state)
{
    struct bytes saved = {0};
    uint64_t seed = 3;

    (void)state;
    put_header(VIRTIO_BLK_T_GET_ID, 0);
    put_desc(&ram, RING_DESC, 0, HEADER, 16, D_NEXT, 1);
    put_desc(&ram, RING_DESC, 1, DATA, 21, D_WRITE, 0);
    lane.waits = true;
    put_avail(&ram, SIZE, 0);
    virtio_notify(&blk.vd, 0);
    lane_settle(NULL);
    lane.waits = false;
    assert_int_equal(blk.count, 1);
    blk.vd.device.ops->save(&blk.vd.device, &saved);
    for (unsigned i = 0; i < 5000; i++) {
        uint8_t bytes[256];
        struct cursor in = cursor_of(bytes, saved.len);

        assert_true(saved.len <= sizeof bytes);
        memcpy(bytes, saved.data, saved.len);
        for (unsigned n = 0; n < (i % 4 ? 2 : saved.len); n++)
            bytes[random_next(&seed) % saved.len] = (uint8_t)(random_next(&seed) >> 20);
        blk.vd.device.ops->restore(&blk.vd.device, &in);
        if (virtio_blk_has_done(&blk))
            virtio_blk_complete(&blk);
        virtio_notify(&blk.vd, 0);
    }
    bytes_free(&saved);
    drive(&blk.vd, FEATURES, SIZE);
    memset(ram.bytes, 0, RING_DATA);
    assert_int_equal(request(VIRTIO_BLK_T_IN, 0, 512, true), VIRTIO_BLK_S_OK);
}

/* A ring full of sane requests, direct and indirect, of all types. */
static void put_sane_ring(uint64_t *seed)
{
    static const uint32_t types[] = {VIRTIO_BLK_T_IN,
                                     VIRTIO_BLK_T_OUT,
                                     VIRTIO_BLK_T_FLUSH,
                                     VIRTIO_BLK_T_GET_ID,
                                     VIRTIO_BLK_T_DISCARD,
                                     VIRTIO_BLK_T_WRITE_ZEROES,
                                     77};

    memset(ram.bytes, 0, RING_DATA);
    for (unsigned i = 0; i < 4; i++) {
        uint32_t type = types[random_next(seed) % (sizeof types / sizeof *types)];
        bool to_driver = type == VIRTIO_BLK_T_IN || type == VIRTIO_BLK_T_GET_ID;
        bool indirect = random_next(seed) & 1;
        uint64_t table = indirect ? RING_TABLE + 0x100 * i : RING_DESC;
        unsigned first = indirect ? 0 : 3 * i;
        uint64_t header = HEADER + 0x20 * i;

        put(&ram, header, 8, type);
        put(&ram, header + 8, 8, random_next(seed) % (DISK_BYTES / 512));
        if (indirect)
            put_desc(&ram, RING_DESC, 3 * i, table, 48, D_INDIRECT, 0);
        put_desc(&ram, table, first, header, 16, D_NEXT, first + 1);
        put_desc(&ram, table, first + 1, DATA + 0x800 * i, type == VIRTIO_BLK_T_DISCARD ? 16 : 512,
                 D_NEXT | (to_driver ? D_WRITE : 0), first + 2);
        put_desc(&ram, table, first + 2, STATUS + i, 1, D_WRITE, 0);
        put_avail(&ram, SIZE, 3 * i);
    }
}

static void hostile_rings_never_crash(void **state)
{
    uint64_t seed = 11;
    unsigned broken = 0, served = 0;

    (void)state;
    for (unsigned round = 0; round < rounds(20000); round++) {
        put_sane_ring(&seed);
        drive(&blk.vd, FEATURES, SIZE);
        for (unsigned n = random_next(&seed) % 4; n; n--) {
            uint64_t where[] = {
                RING_DESC + random_next(&seed) % 192, RING_AVAIL + random_next(&seed) % 12,
                RING_TABLE + random_next(&seed) % 0x400, HEADER + random_next(&seed) % 0x80};

            ram.bytes[where[random_next(&seed) % 4]] ^= (uint8_t)(1u << random_next(&seed) % 8);
        }
        lane.waits = random_next(&seed) % 2;
        virtio_notify(&blk.vd, 0);
        for (bool worked = lane.waits; worked;) {
            worked = work();
            if (random_next(&seed) % 2)
                virtio_blk_complete(&blk);
        }
        virtio_blk_complete(&blk);
        broken += (blk.vd.status & VIRTIO_NEEDS_RESET) != 0;
        served += used_index(&ram) == 4;
        assert_true(used_index(&ram) <= SIZE);
    }
    /* Both outcomes were really exercised. */
    assert_true(broken > rounds(20000) / 20);
    assert_true(served > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads, setup, teardown),
        cmocka_unit_test_setup_teardown(reads_through_many_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(writes, setup, teardown),
        cmocka_unit_test_setup_teardown(without_flush_writes_are_stable, setup, teardown),
        cmocka_unit_test_setup_teardown(any_framing_is_understood, setup, teardown),
        cmocka_unit_test_setup_teardown(indirect_requests_work, setup, teardown),
        cmocka_unit_test_setup_teardown(many_requests_are_served_in_one_visit, setup, teardown),
        cmocka_unit_test_setup_teardown(ranges_are_discarded_and_zeroed, setup, teardown),
        cmocka_unit_test_setup_teardown(serial_is_given, setup, teardown),
        cmocka_unit_test_setup_teardown(impossible_requests_get_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(host_failures_are_io_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(a_read_only_disk_stays_as_it_is, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_requests_break_only_until_reset, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_happens_before_the_driver_is_ready, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(impossible_queues_need_a_reset, setup, teardown),
        cmocka_unit_test_setup_teardown(state_goes_round, setup, teardown),
        cmocka_unit_test_setup_teardown(hostile_state_never_crashes, setup, teardown),
        cmocka_unit_test_setup_teardown(hostile_rings_never_crash, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
