#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/devices/virtio/virtio_rings.h"

#define SIZE 8

static struct ram ram;
static struct virtio_queue q;
static struct virtio_chain chain;
static const char *fault;

static int setup(void **state)
{
    (void)state;
    ram_init(&ram);
    q = (struct virtio_queue){.max_size = SIZE,
                              .size = SIZE,
                              .enabled = true,
                              .desc = RING_DESC,
                              .avail = RING_AVAIL,
                              .used = RING_USED};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ram_free(&ram);
    return 0;
}

static int pop(void)
{
    return virtio_queue_pop(&q, &ram.dma, true, &chain, &fault);
}

static void must_break(const char *because)
{
    assert_int_equal(pop(), -1);
    assert_string_equal(fault, because);
}

static void empty_ring_gives_nothing(void **state)
{
    (void)state;
    assert_int_equal(pop(), 0);
    assert_int_equal(virtio_queue_publish(&q, &ram.dma, false), 0);
    assert_int_equal(ram.written, 0);
}

static void chain_is_split_into_readable_and_writable(void **state)
{
    (void)state;
    put_desc(&ram, RING_DESC, 5, RING_DATA, 3, D_NEXT, 2);
    put_desc(&ram, RING_DESC, 2, RING_DATA + 100, 0, D_NEXT, 7);
    put_desc(&ram, RING_DESC, 7, RING_DATA + 200, 5, D_NEXT, 1);
    put_desc(&ram, RING_DESC, 1, RING_DATA + 300, 4, D_NEXT | D_WRITE, 0);
    put_desc(&ram, RING_DESC, 0, RING_DATA + 400, 4, D_WRITE, 3);
    put_avail(&ram, SIZE, 5);
    assert_int_equal(pop(), 1);
    assert_int_equal(chain.head, 5);
    assert_int_equal(chain.out_count, 2);
    assert_int_equal(chain.out_len, 8);
    assert_int_equal(chain.in_count, 2);
    assert_int_equal(chain.in_len, 8);

    uint8_t data[6];

    memcpy(ram.bytes + RING_DATA, "abc", 3);
    memcpy(ram.bytes + RING_DATA + 200, "defgh", 5);
    assert_int_equal(virtio_chain_read(&chain, &ram.dma, 2, data, 6), 0);
    assert_memory_equal(data, "cdefgh", 6);
    assert_int_equal(virtio_chain_write(&chain, &ram.dma, 3, "WXYZ", 4), 0);
    assert_memory_equal(ram.bytes + RING_DATA + 300, "\0\0\0W", 4);
    assert_memory_equal(ram.bytes + RING_DATA + 400, "XYZ\0", 4);

    assert_int_equal(virtio_queue_push(&q, &ram.dma, chain.head, 7), 0);
    assert_int_equal(used_index(&ram), 0); /* not yet published */
    assert_int_equal(virtio_queue_publish(&q, &ram.dma, false), 1);
    assert_int_equal(used_index(&ram), 1);
    assert_int_equal(used_id(&ram, 0), 5);
    assert_int_equal(used_len(&ram, 0), 7);
    assert_int_equal(pop(), 0);
}

static void driver_may_suppress_interrupts(void **state)
{
    (void)state;
    put(&ram, RING_AVAIL, 2, 1);
    assert_int_equal(virtio_queue_push(&q, &ram.dma, 0, 0), 0);
    assert_int_equal(virtio_queue_publish(&q, &ram.dma, false), 0);
    assert_int_equal(used_index(&ram), 1);
}

/* Sections 2.7.7 and 2.7.10, against what they say in so many words. */
static void event_indices_say_when_to_tell(void **state)
{
    const uint64_t used_event = RING_AVAIL + 4 + 2 * SIZE, avail_event = RING_USED + 4 + 8 * SIZE;

    (void)state;
    for (unsigned start = 0; start < 0x10000; start += 0x1fff)
        for (unsigned count = 1; count <= 4; count++)
            for (unsigned event = 0; event < 8; event++) {
                bool passes = false; /* the driver wants to hear of the buffer at that index */
                q.next_used = q.published = (uint16_t)(start - 2);
                put(&ram, used_event, 2, (uint16_t)(start - 4 + event));
                for (unsigned i = 0; i < count; i++) {
                    passes |= q.next_used == (uint16_t)(start - 4 + event);
                    assert_int_equal(virtio_queue_push(&q, &ram.dma, 0, 0), 0);
                }
                assert_int_equal(virtio_queue_publish(&q, &ram.dma, true), passes);
                assert_int_equal(virtio_queue_publish(&q, &ram.dma, true), 0);
            }
    q.next_avail = 0xffff;
    assert_int_equal(virtio_queue_want_bell(&q, &ram.dma), 0);
    assert_int_equal(get(&ram, avail_event, 2), 0xffff);
    const uint64_t written = ram.written;
    assert_int_equal(virtio_queue_want_bell(&q, &ram.dma), 0);
    assert_int_equal(ram.written, written); /* it says so already */
    q.used = RAM_BYTES - 4 - 8 * SIZE;
    assert_int_equal(virtio_queue_want_bell(&q, &ram.dma), -1);
    q.avail = RAM_BYTES - 4 - 2 * SIZE;
    q.used = RING_USED;
    assert_int_equal(virtio_queue_push(&q, &ram.dma, 0, 0), 0);
    assert_int_equal(virtio_queue_publish(&q, &ram.dma, true), -1);
}

static void indices_run_through_their_wrap(void **state)
{
    (void)state;
    q.next_avail = q.next_used = q.published = 0xfffe;
    put(&ram, RING_AVAIL + 2, 2, 0xfffe);
    put_desc(&ram, RING_DESC, 3, RING_DATA, 1, D_WRITE, 0);
    for (unsigned i = 0; i < 4; i++)
        put_avail(&ram, SIZE, 3);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(pop(), 1);
        assert_int_equal(virtio_queue_push(&q, &ram.dma, chain.head, i), 0);
    }
    assert_int_equal(pop(), 0);
    assert_int_equal(virtio_queue_publish(&q, &ram.dma, false), 1);
    assert_int_equal(used_index(&ram), 2);
    assert_int_equal(used_len(&ram, 6), 0);
    assert_int_equal(used_len(&ram, 1), 3);
}

static void indirect_table_ends_a_chain(void **state)
{
    (void)state;
    put_desc(&ram, RING_DESC, 0, RING_DATA, 2, D_NEXT, 1);
    put_desc(&ram, RING_DESC, 1, RING_TABLE, 3 * 16, D_INDIRECT, 0);
    put_desc(&ram, RING_TABLE, 0, RING_DATA + 10, 4, D_NEXT, 2);
    put_desc(&ram, RING_TABLE, 2, RING_DATA + 20, 8, D_WRITE, 0);
    put_avail(&ram, SIZE, 0);
    assert_int_equal(pop(), 1);
    assert_int_equal(chain.out_len, 6);
    assert_int_equal(chain.in_len, 8);
}

static void indirect_may_be_longer_than_the_ring(void **state)
{
    (void)state;
    put_desc(&ram, RING_DESC, 0, RING_TABLE, 128 * 16, D_INDIRECT, 0);
    for (unsigned i = 0; i < 128; i++)
        put_desc(&ram, RING_TABLE, i, RING_DATA + i, 1, i < 127 ? D_NEXT : 0, i + 1);
    put_avail(&ram, SIZE, 0);
    assert_int_equal(pop(), 1);
    assert_int_equal(chain.out_count, 128);
}

static void broken_indirect_tables_are_found(void **state)
{
    (void)state;
    put_avail(&ram, SIZE, 0);
    put_desc(&ram, RING_DESC, 0, RING_TABLE, 16, D_INDIRECT, 0);
    assert_int_equal(virtio_queue_pop(&q, &ram.dma, false, &chain, &fault), -1);
    assert_string_equal(fault, "indirect descriptor where none may be");
    put_desc(&ram, RING_DESC, 0, RING_TABLE, 16, D_INDIRECT | D_NEXT, 1);
    must_break("indirect descriptor where none may be");
    put_desc(&ram, RING_DESC, 0, RING_TABLE, 17, D_INDIRECT, 0);
    must_break("indirect table of impossible size");
    put_desc(&ram, RING_DESC, 0, RING_TABLE, 0, D_INDIRECT, 0);
    must_break("indirect table of impossible size");
    put_desc(&ram, RING_DESC, 0, RING_TABLE, 257 * 16, D_INDIRECT, 0);
    must_break("indirect table of impossible size");
    put_desc(&ram, RING_DESC, 0, RAM_BYTES - 16, 32, D_INDIRECT, 0);
    must_break("indirect table is not in RAM");
    put_desc(&ram, RING_DESC, 0, RING_TABLE, 32, D_INDIRECT, 0);
    put_desc(&ram, RING_TABLE, 0, RING_TABLE, 16, D_INDIRECT, 0);
    must_break("indirect descriptor inside an indirect table");
    put_desc(&ram, RING_TABLE, 0, RING_DATA, 16, D_NEXT, 2);
    must_break("indirect descriptor index out of range");
    put_desc(&ram, RING_TABLE, 0, RING_DATA, 16, D_NEXT, 0);
    must_break("loop in an indirect table");
    /* 7 + 256 descriptors */
    for (unsigned i = 0; i < 7; i++)
        put_desc(&ram, RING_DESC, i, RING_DATA, 1, D_NEXT, i + 1);
    put_desc(&ram, RING_DESC, 7, RING_TABLE, 256 * 16, D_INDIRECT, 0);
    for (unsigned i = 0; i < 256; i++)
        put_desc(&ram, RING_TABLE, i, RING_DATA, 1, i < 255 ? D_NEXT : 0, i + 1);
    must_break("too many descriptors in one buffer");
}

static void broken_chains_are_found(void **state)
{
    (void)state;
    put_avail(&ram, SIZE, SIZE);
    must_break("descriptor index out of range");
    put(&ram, RING_AVAIL + 4, 2, 0);
    put_desc(&ram, RING_DESC, 0, RING_DATA, 1, D_NEXT, SIZE);
    must_break("descriptor index out of range");
    put_desc(&ram, RING_DESC, 0, RING_DATA, 0, D_NEXT, 0);
    ram.reads = 0;
    must_break("loop in a descriptor chain");
    assert_true(ram.reads <= SIZE + 2); /* each descriptor once, and the available ring */
    put_desc(&ram, RING_DESC, 0, RING_DATA, 1, D_NEXT | D_WRITE, 1);
    put_desc(&ram, RING_DESC, 1, RING_DATA, 1, 0, 0);
    must_break("readable descriptor behind a writable one");
    put_desc(&ram, RING_DESC, 0, UINT64_MAX - 3, 5, 0, 0);
    must_break("buffer address wraps");
    put(&ram, RING_AVAIL + 2, 2, SIZE + 1);
    must_break("available index jumped");
    put(&ram, RING_AVAIL + 2, 2, 0xffff); /* backwards */
    must_break("available index jumped");
    q.desc = RAM_BYTES - 16 * SIZE + 16;
    put(&ram, RING_AVAIL + 2, 2, 1);
    put(&ram, RING_AVAIL + 4, 2, SIZE - 1);
    must_break("descriptor table is not in RAM");
    q.avail = RAM_BYTES;
    must_break("available ring is not in RAM");
    q.used = RAM_BYTES;
    assert_int_equal(virtio_queue_push(&q, &ram.dma, 0, 0), -1);
    assert_int_equal(q.next_used, 0);
}

static void buffers_outside_ram_are_refused_when_used(void **state)
{
    uint8_t data[8];

    (void)state;
    put_desc(&ram, RING_DESC, 0, RAM_BYTES - 4, 8, D_NEXT, 1);
    put_desc(&ram, RING_DESC, 1, 1ull << 40, 0xffffffff, D_WRITE, 0);
    put_avail(&ram, SIZE, 0);
    assert_int_equal(pop(), 1);
    assert_int_equal(virtio_chain_read(&chain, &ram.dma, 0, data, 8), -1);
    assert_int_equal(virtio_chain_write(&chain, &ram.dma, 0, data, 8), -1);
}

static void queue_set_up_is_checked(void **state)
{
    struct virtio_queue good = q;

    (void)state;
    assert_null(virtio_queue_check(&q));
    for (unsigned size = 0; size < 70; size++) {
        q.size = (uint16_t)size;
        assert_int_equal(virtio_queue_check(&q) == NULL,
                         size == 1 || size == 2 || size == 4 || size == 8);
    }
    q = good;
    q.desc += 8;
    assert_non_null(virtio_queue_check(&q));
    q = good;
    q.avail += 1;
    assert_non_null(virtio_queue_check(&q));
    q = good;
    q.used += 2;
    assert_non_null(virtio_queue_check(&q));
    q = good;
    q.desc = UINT64_MAX - 15;
    assert_non_null(virtio_queue_check(&q));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(empty_ring_gives_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(chain_is_split_into_readable_and_writable, setup, teardown),
        cmocka_unit_test_setup_teardown(driver_may_suppress_interrupts, setup, teardown),
        cmocka_unit_test_setup_teardown(event_indices_say_when_to_tell, setup, teardown),
        cmocka_unit_test_setup_teardown(indices_run_through_their_wrap, setup, teardown),
        cmocka_unit_test_setup_teardown(indirect_table_ends_a_chain, setup, teardown),
        cmocka_unit_test_setup_teardown(indirect_may_be_longer_than_the_ring, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_indirect_tables_are_found, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_chains_are_found, setup, teardown),
        cmocka_unit_test_setup_teardown(buffers_outside_ram_are_refused_when_used, setup, teardown),
        cmocka_unit_test_setup_teardown(queue_set_up_is_checked, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
