#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "devices/virtio/virtio_net.h"
#include "tests/unit/devices/virtio/virtio_rings.h"
#include "tests/unit/random.h"

#define SIZE 8
/* The ring of what the driver sends, beside that of virtio_rings.h, which is for what it receives.
 */
#define SEND_DESC  0x5000u
#define SEND_AVAIL 0x6000u
#define SEND_USED  0x7000u

static const uint8_t mac[MAC_BYTES] = {0x52, 0x54, 0, 1, 2, 3};

static struct ram ram;
static struct virtio_net net;
static uint64_t seed = RANDOM_SEED;

static uint64_t rnd(void)
{
    return random_next(&seed);
}

/* A link that keeps what happened to it. */
static struct test_link {
    struct net_link link;
    bool full;
    unsigned begun, sent;
    uint32_t begun_len;
    unsigned begun_segments;
    uint8_t frame[FRAME_MAX];
    size_t len;
} wire;

static bool link_takes(struct net_link *link)
{
    return !((struct test_link *)link)->full;
}

static void link_begin(struct net_link *link, uint32_t len, const struct net_segment *segment,
                       unsigned count)
{
    struct test_link *l = (struct test_link *)link;

    l->begun++;
    l->begun_len = len;
    l->begun_segments = segment ? count : 0;
}

static void link_send(struct net_link *link, const uint8_t *frame, size_t len)
{
    struct test_link *l = (struct test_link *)link;

    l->sent++;
    memcpy(l->frame, frame, len);
    l->len = len;
}

static void drive_both(uint64_t features)
{
    virtio_set_status(&net.vd, 0);
    virtio_set_status(&net.vd, VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER);
    for (unsigned half = 0; half < 2; half++) {
        net.vd.accepted_select = half;
        virtio_accept(&net.vd, (uint32_t)((features | VIRTIO_F_VERSION_1) >> (32 * half)));
    }
    virtio_set_status(&net.vd, VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK);
    for (unsigned i = 0; i < VIRTIO_NET_QUEUES; i++) {
        net.vd.queue_select = (uint16_t)i;
        virtio_set_queue_size(&net.vd, SIZE);
        net.vd.queue[i].desc = i ? SEND_DESC : RING_DESC;
        net.vd.queue[i].avail = i ? SEND_AVAIL : RING_AVAIL;
        net.vd.queue[i].used = i ? SEND_USED : RING_USED;
        virtio_enable_queue(&net.vd);
    }
    virtio_set_status(&net.vd,
                      VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK | VIRTIO_DRIVER_OK);
}

static int setup(void **state)
{
    (void)state;
    ram_init(&ram);
    wire = (struct test_link){
        .link = {.takes = link_takes, .begin = link_begin, .send = link_send},
    };
    virtio_net_init(&net, &ram.dma, &wire.link, mac);
    drive_both(VIRTIO_NET_F_CSUM | VIRTIO_NET_F_MAC | VIRTIO_NET_F_MRG_RXBUF);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ram_free(&ram);
    return 0;
}

/* The driver has a frame of two segments: header and start, and the rest. */
static void make_available(unsigned slot, uint64_t at, uint32_t first, uint32_t second)
{
    const uint16_t index = (uint16_t)get(&ram, SEND_AVAIL + 2, 2);

    put_desc(&ram, SEND_DESC, 2 * slot, at, first, second ? D_NEXT : 0, 2 * slot + 1);
    put_desc(&ram, SEND_DESC, 2 * slot + 1, at + 0x10000, second, 0, 0);
    put(&ram, SEND_AVAIL + 4 + 2 * (index % SIZE), 2, 2 * slot);
    put(&ram, SEND_AVAIL + 2, 2, index + 1u);
}

static unsigned sent_index(void)
{
    return (unsigned)get(&ram, SEND_USED + 2, 2);
}

static void give_buffers(unsigned count, uint32_t len)
{
    for (unsigned i = 0; i < count; i++) {
        put_desc(&ram, RING_DESC, i, RING_DATA + i * 0x4000, len, D_WRITE, 0);
        put_avail(&ram, SIZE, i);
    }
}

static void a_frame_is_sent_from_its_pieces(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        ram.bytes[0x20000 + VIRTIO_NET_HEADER + i] = (uint8_t)i;
        ram.bytes[0x30000 + i] = (uint8_t)(20 + i);
    }
    make_available(0, 0x20000, VIRTIO_NET_HEADER + 20, 15);
    virtio_notify(&net.vd, VIRTIO_NET_SENDS);
    assert_int_equal(wire.sent, 1);
    assert_int_equal(wire.len, 35);
    assert_int_equal(wire.begun_len, 35);
    assert_int_equal(wire.begun_segments, 2);
    for (unsigned i = 0; i < 35; i++)
        assert_int_equal(wire.frame[i], i);
    assert_int_equal(sent_index(), 1);
    assert_int_equal(net.vd.isr, VIRTIO_ISR_QUEUE);
}

static void a_full_link_leaves_frames_where_they_are(void **state)
{
    (void)state;
    make_available(0, 0x20000, 100, 0);
    wire.full = true;
    virtio_notify(&net.vd, VIRTIO_NET_SENDS);
    assert_int_equal(wire.begun, 0);
    assert_int_equal(sent_index(), 0);
    assert_true(virtio_net_has_to_send(&net));
    wire.full = false;
    virtio_net_send(&net);
    assert_int_equal(wire.sent, 1);
    assert_int_equal(sent_index(), 1);
    assert_false(virtio_net_has_to_send(&net));
}

/* RFC 1071's own example, behind ten bytes of something else: the sum of 00 01 f2 03 f4 f5 f6 f7 is
 * ddf2, so its checksum 220d. */
static void a_checksum_is_put_in(void **state)
{
    static const uint8_t data[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7, 0, 0};

    (void)state;
    memcpy(ram.bytes + 0x20000 + VIRTIO_NET_HEADER + 10, data, sizeof data);
    put(&ram, 0x20000, 1, 1);
    put(&ram, 0x20000 + 6, 2, 10);
    put(&ram, 0x20000 + 8, 2, 8);
    make_available(0, 0x20000, VIRTIO_NET_HEADER + 20, 0);
    virtio_notify(&net.vd, VIRTIO_NET_SENDS);
    assert_int_equal(wire.frame[18], 0x22);
    assert_int_equal(wire.frame[19], 0x0d);
}

static void a_checksum_outside_the_frame_is_left_alone(void **state)
{
    uint8_t header[VIRTIO_NET_HEADER] = {1}, frame[64], same[64] = {0};

    (void)state;
    memset(frame, 0, sizeof frame);
    for (unsigned i = 0; i < rounds(200000); i++) {
        const unsigned start = (unsigned)(rnd() % 3 ? rnd() % 70 : rnd() % 65536);
        const unsigned offset = (unsigned)(rnd() % 3 ? rnd() % 70 : rnd() % 65536);
        header[6] = (uint8_t)start;
        header[7] = (uint8_t)(start >> 8);
        header[8] = (uint8_t)offset;
        header[9] = (uint8_t)(offset >> 8);
        virtio_net_finish(header, frame, sizeof frame);
        if (start + offset + 2 > sizeof frame)
            assert_memory_equal(frame, same, sizeof frame);
        memset(frame, 0, sizeof frame);
    }
}

static void frames_of_impossible_length_are_dropped(void **state)
{
    (void)state;
    make_available(0, 0x20000, VIRTIO_NET_HEADER, 0);
    make_available(1, 0x20000, VIRTIO_NET_HEADER + 10, FRAME_MAX);
    make_available(2, 0x20000, VIRTIO_NET_HEADER, FRAME_MAX);
    virtio_notify(&net.vd, VIRTIO_NET_SENDS);
    assert_int_equal(wire.sent, 1);
    assert_int_equal(wire.len, FRAME_MAX);
    assert_int_equal(sent_index(), 3);
    make_available(3, 0x20000, VIRTIO_NET_HEADER - 1, 0);
    virtio_notify(&net.vd, VIRTIO_NET_SENDS);
    assert_true(net.vd.status & VIRTIO_NEEDS_RESET);
    assert_int_equal(wire.sent, 1);
}

static void a_frame_outside_memory_breaks_the_device(void **state)
{
    (void)state;
    make_available(0, RAM_BYTES - 4, 100, 0);
    virtio_notify(&net.vd, VIRTIO_NET_SENDS);
    assert_int_equal(wire.sent, 0);
    assert_true(net.vd.status & VIRTIO_NEEDS_RESET);
}

static uint8_t incoming[FRAME_MAX];

static void a_frame_comes_in_behind_a_header(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 300; i++)
        incoming[i] = (uint8_t)(i * 7);
    give_buffers(1, 2000);
    assert_int_equal(virtio_net_receive(&net, incoming, 300), NET_RECEIVED);
    assert_int_equal(wire.begun_len, 300);
    assert_int_equal(used_index(&ram), 1);
    assert_int_equal(used_len(&ram, 0), VIRTIO_NET_HEADER + 300);
    assert_int_equal(get(&ram, RING_DATA + 10, 2), 1);
    assert_memory_equal(ram.bytes + RING_DATA + VIRTIO_NET_HEADER, incoming, 300);
    assert_int_equal(net.vd.isr, VIRTIO_ISR_QUEUE);
}

static void a_long_frame_takes_several_buffers(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3000; i++)
        incoming[i] = (uint8_t)rnd();
    give_buffers(4, 1000);
    assert_int_equal(virtio_net_receive(&net, incoming, 2500), NET_RECEIVED);
    assert_int_equal(used_index(&ram), 3);
    assert_int_equal(get(&ram, RING_DATA + 10, 2), 3);
    assert_int_equal(used_len(&ram, 0), 1000);
    assert_int_equal(used_len(&ram, 1), 1000);
    assert_int_equal(used_len(&ram, 2), VIRTIO_NET_HEADER + 500);
    assert_memory_equal(ram.bytes + RING_DATA + VIRTIO_NET_HEADER, incoming, 988);
    assert_memory_equal(ram.bytes + RING_DATA + 0x4000, incoming + 988, 1000);
    assert_memory_equal(ram.bytes + RING_DATA + 0x8000, incoming + 1988, 512);
}

static void a_frame_waits_for_a_buffer(void **state)
{
    (void)state;
    assert_false(virtio_net_can_receive(&net));
    assert_int_equal(virtio_net_receive(&net, incoming, 60), NET_NO_BUFFERS);
    assert_int_equal(wire.begun, 0);
    give_buffers(1, 1000);
    assert_true(virtio_net_can_receive(&net));
    assert_int_equal(virtio_net_receive(&net, incoming, 60), NET_RECEIVED);
    assert_false(virtio_net_can_receive(&net));
}

/* One that would never fit must not stop those behind it. */
static void a_frame_for_which_there_is_too_little_is_dropped(void **state)
{
    (void)state;
    give_buffers(2, 1000);
    assert_int_equal(virtio_net_receive(&net, incoming, 2500), NET_DROPPED);
    assert_int_equal(wire.begun, 0);
    assert_int_equal(used_index(&ram), 0);
    assert_true(virtio_net_can_receive(&net));
    assert_int_equal(virtio_net_receive(&net, incoming, 80), NET_RECEIVED);
}

/* Who follows the device hears of the frame at which it breaks. */
static void a_broken_ring_is_announced(void **state)
{
    (void)state;
    put_desc(&ram, RING_DESC, 0, RING_DATA, 1000, D_WRITE | D_NEXT, SIZE + 1);
    put_avail(&ram, SIZE, 0);
    assert_int_equal(virtio_net_receive(&net, incoming, 60), NET_DROPPED);
    assert_int_equal(wire.begun, 1);
    assert_true(net.vd.status & VIRTIO_NEEDS_RESET);
}

static void without_mergeable_buffers_one_must_hold_it(void **state)
{
    (void)state;
    drive_both(VIRTIO_NET_F_MAC);
    give_buffers(2, 1000);
    assert_int_equal(virtio_net_receive(&net, incoming, 1000), NET_DROPPED);
    assert_true(virtio_net_can_receive(&net));
    assert_int_equal(virtio_net_receive(&net, incoming, 988), NET_RECEIVED);
    assert_int_equal(used_index(&ram), 1);
    assert_int_equal(used_id(&ram, 0), 0);
}

static void nobody_home(void **state)
{
    (void)state;
    virtio_set_status(&net.vd, 0);
    assert_true(virtio_net_can_receive(&net));
    assert_int_equal(virtio_net_receive(&net, incoming, 60), NET_DROPPED);
    virtio_notify(&net.vd, VIRTIO_NET_SENDS);
    assert_int_equal(wire.begun, 0);
}

/* A driver that writes anything anywhere: the device stays within memory, and says no frame that it
 * has not announced. */
static void hostile_rings(void **state)
{
    (void)state;
    for (unsigned round = 0; round < rounds(30000); round++) {
        drive_both(rnd() % 2 ? VIRTIO_NET_F_MRG_RXBUF : VIRTIO_NET_F_CSUM);
        for (unsigned i = 0; i < 64; i++) {
            const uint64_t at = 0x1000 + rnd() % 0x7000;
            put(&ram, at, 2, rnd() % 4 ? rnd() % 16 : rnd());
        }
        for (unsigned i = 0; i < SIZE; i++) {
            put_desc(&ram, SEND_DESC, i, rnd() % (RAM_BYTES + 0x1000), (uint32_t)(rnd() % 70000),
                     rnd() % 8, rnd() % (SIZE + 1));
            put_desc(&ram, RING_DESC, i, rnd() % (RAM_BYTES + 0x1000), (uint32_t)(rnd() % 3000),
                     rnd() % 8, rnd() % (SIZE + 1));
        }
        wire.begun = wire.sent = 0;
        virtio_notify(&net.vd, VIRTIO_NET_SENDS);
        assert_true(wire.begun >= wire.sent && wire.begun <= wire.sent + 1);
        if (virtio_net_can_receive(&net))
            virtio_net_receive(&net, incoming, 1 + rnd() % FRAME_MAX);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_frame_is_sent_from_its_pieces),
        TEST(a_full_link_leaves_frames_where_they_are),
        TEST(a_checksum_is_put_in),
        TEST(a_checksum_outside_the_frame_is_left_alone),
        TEST(frames_of_impossible_length_are_dropped),
        TEST(a_frame_outside_memory_breaks_the_device),
        TEST(a_frame_comes_in_behind_a_header),
        TEST(a_long_frame_takes_several_buffers),
        TEST(a_frame_waits_for_a_buffer),
        TEST(a_frame_for_which_there_is_too_little_is_dropped),
        TEST(a_broken_ring_is_announced),
        TEST(without_mergeable_buffers_one_must_hold_it),
        TEST(nobody_home),
        TEST(hostile_rings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
