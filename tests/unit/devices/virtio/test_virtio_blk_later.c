/* Requests of a block device that are completed some time behind their doorbell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/devices/virtio/virtio_blk_rig.h"

/* Request `i` of the usual layout, in descriptors of its own: a sector to or from DATA + 512 i. */
static void put_own(unsigned i, uint32_t type, uint64_t sector)
{
    put(&ram, HEADER + 0x10 * i, 4, type);
    put(&ram, HEADER + 0x10 * i + 8, 8, sector);
    put(&ram, STATUS + i, 1, 0xaa);
    put_desc(&ram, RING_DESC, 3 * i, HEADER + 0x10 * i, 16, D_NEXT, 3 * i + 1);
    put_desc(&ram, RING_DESC, 3 * i + 1, DATA + 512 * i, 512,
             D_NEXT | (type == VIRTIO_BLK_T_IN ? D_WRITE : 0), 3 * i + 2);
    put_desc(&ram, RING_DESC, 3 * i + 2, STATUS + i, 1, D_WRITE, 0);
    put_avail(&ram, SIZE, 3 * i);
}

static void requests_are_completed_when_they_are_done(void **state)
{
    (void)state;
    lane.waits = true;
    put_own(0, VIRTIO_BLK_T_OUT, 7);
    put_own(1, VIRTIO_BLK_T_IN, 7);
    put_own(2, VIRTIO_BLK_T_IN, 8);
    memset(ram.bytes + DATA, 0x11, 512);
    virtio_notify(&blk.vd, 0);
    memset(ram.bytes + DATA, 0x22, 512); /* too late */
    assert_false(virtio_blk_has_done(&blk));
    virtio_blk_complete(&blk);
    assert_int_equal(used_index(&ram), 0);
    assert_false(wire);
    assert_true(work() && work());
    assert_int_equal(get(&ram, STATUS, 1), 0xaa); /* memory is touched at a sync point only */
    assert_true(virtio_blk_has_done(&blk));
    virtio_blk_complete(&blk);
    assert_int_equal(used_index(&ram), 2);
    assert_int_equal(used_id(&ram, 0), 0);
    assert_int_equal(used_id(&ram, 1), 3);
    assert_true(wire);
    for (unsigned i = 0; i < 512; i++)
        assert_int_equal(ram.bytes[DATA + 512 + i], 0x11);
    assert_true(work() && !work());
    virtio_notify(&blk.vd, 0); /* a doorbell completes, too */
    assert_int_equal(used_index(&ram), 3);
    assert_memory_equal(ram.bytes + DATA + 1024, array.bytes + 8 * 512, 512);
}

/* What does not fit is taken when there is room again. */
static void the_ring_holds_what_is_too_much(void **state)
{
    const unsigned many = 256;

    (void)state;
    drive(&blk.vd, FEATURES, many);
    lane.waits = true;
    put_header(VIRTIO_BLK_T_IN, 0);
    put_desc(&ram, RING_DESC, 0, HEADER, 16, D_NEXT, 1);
    put_desc(&ram, RING_DESC, 1, DATA, 512, D_NEXT | D_WRITE, 2);
    put_desc(&ram, RING_DESC, 2, STATUS, 1, D_WRITE, 0);
    for (unsigned i = 0; i < many; i++)
        put_avail(&ram, many, 0);
    virtio_notify(&blk.vd, 0);
    assert_int_equal(blk.count, VIRTIO_BLK_REQUESTS);
    for (unsigned i = 1; i <= many; i++) {
        assert_true(work());
        virtio_blk_complete(&blk);
        assert_int_equal(used_index(&ram), i);
        assert_true(blk.count <= VIRTIO_BLK_REQUESTS);
    }
    assert_false(work());
    assert_int_equal(blk.held, 0);
}

static void the_ring_holds_what_is_too_large(void **state)
{
    const unsigned bytes =
        DISK_BYTES; /* as much as there is, in as many requests as there may be */

    (void)state;
    lane.waits = true;
    put_header(VIRTIO_BLK_T_IN, 0);
    put_desc(&ram, RING_DESC, 0, HEADER, 16, D_NEXT, 1);
    put_desc(&ram, RING_DESC, 1, DATA, bytes, D_NEXT | D_WRITE, 2);
    put_desc(&ram, RING_DESC, 2, STATUS, 1, D_WRITE, 0);
    put_avail(&ram, SIZE, 0);
    blk.held = VIRTIO_BLK_HELD_MAX - 1; /* of others */
    virtio_notify(&blk.vd, 0);
    assert_int_equal(blk.count, 1);
    put_avail(&ram, SIZE, 0);
    virtio_notify(&blk.vd, 0);
    assert_int_equal(blk.count, 1);
    blk.held = bytes;
    assert_true(work());
    virtio_blk_complete(&blk);
    assert_int_equal(used_index(&ram), 1);
    assert_int_equal(blk.count, 1);
    assert_int_equal(blk.held, bytes);
}

/* Section 2.7.10: with event index the driver rings where it is asked to. */
static void the_driver_is_asked_to_ring(void **state)
{
    const uint64_t avail_event = RING_USED + 4 + 8 * SIZE;

    (void)state;
    assert_true(blk.vd.accepted & VIRTIO_F_EVENT_IDX);
    put_own(0, VIRTIO_BLK_T_IN, 0);
    virtio_notify(&blk.vd, 0);
    assert_int_equal(get(&ram, avail_event, 2), 1);
    lane.waits = true;
    put_own(0, VIRTIO_BLK_T_IN, 0);
    put_own(1, VIRTIO_BLK_T_IN, 0);
    virtio_notify(&blk.vd, 0);
    assert_int_equal(get(&ram, avail_event, 2), 3);
    put_own(2, VIRTIO_BLK_T_IN,
            0); /* while they wait, without a bell: a completion goes on with it */
    lane_settle(NULL);
    virtio_blk_complete(&blk);
    assert_int_equal(get(&ram, avail_event, 2), 4);
    assert_int_equal(blk.count, 1);
}

static bool is_no_master(void *transport)
{
    (void)transport;
    return false;
}

/* A driver that takes its right away, and the next kernel's may find other things there. */
static void memory_stays_as_it_is_where_the_device_is_no_master(void **state)
{
    (void)state;
    lane.waits = true;
    put_own(0, VIRTIO_BLK_T_IN, 0);
    virtio_notify(&blk.vd, 0);
    lane_settle(NULL);
    blk.vd.is_master = is_no_master;
    assert_false(virtio_blk_has_done(&blk));
    virtio_blk_complete(&blk);
    assert_int_equal(used_index(&ram), 0);
    blk.vd.is_master = NULL;
    assert_true(virtio_blk_has_done(&blk));
    virtio_blk_complete(&blk);
    assert_int_equal(used_index(&ram), 1);
}

static void one_by_one_each_is_completed_first(void **state)
{
    (void)state;
    lane.link.one_by_one = true;
    for (unsigned i = 0; i < 4; i++)
        put_own(i, VIRTIO_BLK_T_IN, i);
    virtio_notify(&blk.vd, 0);
    assert_int_equal(used_index(&ram), 4);
    lane.waits = true;
    put_own(0, VIRTIO_BLK_T_IN, 0);
    put_own(1, VIRTIO_BLK_T_IN, 1);
    virtio_notify(&blk.vd, 0);
    assert_int_equal(blk.count, 1);
}

static void a_reset_waits_for_what_was_begun(void **state)
{
    (void)state;
    lane.waits = true;
    memset(ram.bytes + DATA, 0x33, 1024);
    put_own(0, VIRTIO_BLK_T_OUT, 4);
    put_own(1, VIRTIO_BLK_T_IN, 4);
    virtio_notify(&blk.vd, 0);
    virtio_set_status(&blk.vd, 0);
    assert_int_equal(lane.settled, 1);
    assert_int_equal(blk.count, 0);
    assert_int_equal(array.bytes[4 * 512], 0x33);
    assert_int_equal(used_index(&ram), 0);
    assert_int_equal(ram.bytes[DATA + 512], 0x33);
}

/* Saved between a job's end and its completion, which finds the same bytes. */
static void requests_that_are_done_are_saved(void **state)
{
    struct bytes saved = {0}, again = {0};

    (void)state;
    lane.waits = true;
    put_own(0, VIRTIO_BLK_T_IN, 9);
    put_own(1, VIRTIO_BLK_T_OUT, 9);
    put_own(2, 77, 0);
    virtio_notify(&blk.vd, 0);
    lane_settle(NULL);
    blk.vd.device.ops->save(&blk.vd.device, &saved);
    const uint32_t held = blk.held;
    assert_int_equal(held, 1024);
    virtio_blk_close(&blk);
    make(false);
    virtio_set_status(&blk.vd, 0);
    memset(array.bytes, 0xee, DISK_BYTES);
    for (size_t len = 0; len < saved.len; len++) {
        struct cursor part = cursor_of(saved.data, len);
        assert_int_equal(blk.vd.device.ops->restore(&blk.vd.device, &part), -1);
        assert_int_equal(blk.count, 0);
    }
    struct cursor in = cursor_of(saved.data, saved.len);
    assert_int_equal(blk.vd.device.ops->restore(&blk.vd.device, &in), 0);
    assert_int_equal(cursor_left(&in), 0);
    assert_int_equal(blk.held, held); /* or else more requests would be taken than were */
    blk.vd.device.ops->save(&blk.vd.device, &again);
    assert_int_equal(again.len, saved.len);
    assert_memory_equal(again.data, saved.data, saved.len);
    assert_true(virtio_blk_has_done(&blk));
    virtio_blk_complete(&blk);
    assert_int_equal(used_index(&ram), 3);
    for (unsigned i = 0; i < 512; i++)
        assert_int_equal(ram.bytes[DATA + i], (uint8_t)(9 + i + 9 * 512));
    assert_int_equal(get(&ram, STATUS, 1), VIRTIO_BLK_S_OK);
    assert_int_equal(get(&ram, STATUS + 1, 1), VIRTIO_BLK_S_OK);
    assert_int_equal(get(&ram, STATUS + 2, 1), VIRTIO_BLK_S_UNSUPP);
    bytes_free(&saved);
    bytes_free(&again);
}

/* As recordings before version 25 have it, of devices without event index. */
static void old_state_has_no_requests(void **state)
{
    struct bytes saved = {0};

    (void)state;
    blk.vd.offered &= ~VIRTIO_F_EVENT_IDX;
    drive(&blk.vd, blk.vd.offered, SIZE);
    virtio_save(&blk.vd.device, &saved);
    make(false);
    virtio_set_status(&blk.vd, 0);
    struct cursor in = cursor_of(saved.data, saved.len);
    assert_int_equal(blk.vd.device.ops->restore(&blk.vd.device, &in), 0);
    assert_int_equal(cursor_left(&in), 0);
    assert_false(blk.vd.offered & VIRTIO_F_EVENT_IDX);
    assert_int_equal(request(VIRTIO_BLK_T_IN, 5, 512, true), VIRTIO_BLK_S_OK);
    bytes_free(&saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_are_completed_when_they_are_done, setup, teardown),
        cmocka_unit_test_setup_teardown(the_ring_holds_what_is_too_much, setup, teardown),
        cmocka_unit_test_setup_teardown(the_ring_holds_what_is_too_large, setup, teardown),
        cmocka_unit_test_setup_teardown(the_driver_is_asked_to_ring, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_stays_as_it_is_where_the_device_is_no_master, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(one_by_one_each_is_completed_first, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reset_waits_for_what_was_begun, setup, teardown),
        cmocka_unit_test_setup_teardown(requests_that_are_done_are_saved, setup, teardown),
        cmocka_unit_test_setup_teardown(old_state_has_no_requests, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
