#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/random.h"
#include "vmm/machine/net_wire.h"

static struct net_wire *wire;
static int peer;
static sem_t told;
static uint64_t seed = RANDOM_SEED;
static uint8_t frame[FRAME_MAX], got[FRAME_MAX];

static void tell(void *opaque)
{
    sem_post(opaque);
}

static void wait_until_told(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    assert_int_equal(sem_timedwait(&told, &until), 0);
}

static int setup(void **state)
{
    int pair[2];

    (void)state;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return -1;
    peer = pair[1];
    sem_init(&told, 0, 0);
    wire = net_wire_open(pair[0]);
    net_wire_listen(wire, tell, &told);
    for (size_t i = 0; i < sizeof frame; i++)
        frame[i] = (uint8_t)random_next(&seed);
    return wire ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    net_wire_close(wire);
    close(peer);
    sem_destroy(&told);
    return 0;
}

static void write_all(const void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        const ssize_t n = write(peer, (const uint8_t *)data + done, len - done);
        assert_true(n > 0);
        done += (size_t)n;
    }
}

static void read_all(void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        const ssize_t n = read(peer, (uint8_t *)data + done, len - done);
        assert_true(n > 0);
        done += (size_t)n;
    }
}

static void write_frame(size_t len)
{
    const uint32_t length = htonl((uint32_t)len);

    write_all(&length, sizeof length);
    write_all(frame, len);
}

/* The next frame, waited for. */
static size_t next_frame(void)
{
    while (!net_wire_has_frame(wire))
        wait_until_told();
    const size_t len = net_wire_peek(wire, got);
    net_wire_consume(wire);
    return len;
}

static void frames_come_in(void **state)
{
    static const size_t lengths[] = {1, 60, 1514, 9000, FRAME_MAX};

    (void)state;
    assert_false(net_wire_has_frame(wire));
    assert_int_equal(net_wire_peek(wire, got), 0);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        write_frame(lengths[i]);
        assert_int_equal(next_frame(), lengths[i]);
        assert_memory_equal(got, frame, lengths[i]);
    }
}

/* Byte by byte, and what is no frame between them. */
static void only_frames_come_in(void **state)
{
    const uint32_t none = 0, too_long = htonl(FRAME_MAX + 1);
    const uint32_t length = htonl(5);

    (void)state;
    write_all(&none, sizeof none);
    write_all(&too_long, sizeof too_long);
    write_all(frame, FRAME_MAX);
    write_all(frame, 1);
    for (unsigned i = 0; i < sizeof length; i++)
        write_all((const uint8_t *)&length + i, 1);
    for (unsigned i = 0; i < 5; i++)
        write_all(frame + i, 1);
    assert_int_equal(next_frame(), 5);
    assert_memory_equal(got, frame, 5);
    assert_false(net_wire_has_frame(wire));
}

static void frames_go_out(void **state)
{
    uint32_t length;

    (void)state;
    for (size_t len = 1; len <= FRAME_MAX; len = len * 3 + 7) {
        assert_true(net_wire_takes(wire));
        net_wire_send(wire, frame, len);
        read_all(&length, sizeof length);
        assert_int_equal(ntohl(length), len);
        read_all(got, len);
        assert_memory_equal(got, frame, len);
    }
}

/* What does not fit waits, is not lost, and somebody is told when more fits. */
static void a_peer_that_does_not_read_fills_the_wire(void **state)
{
    uint32_t length;
    unsigned sent = 0;

    (void)state;
    for (; net_wire_takes(wire); sent++) {
        frame[0] = (uint8_t)sent;
        net_wire_send(wire, frame, 30000);
        assert_true(sent < 1000);
    }
    assert_true(sent > 5);
    for (unsigned i = 0; i < sent; i++) {
        read_all(&length, sizeof length);
        assert_int_equal(ntohl(length), 30000);
        read_all(got, 30000);
        assert_int_equal(got[0], (uint8_t)i);
    }
    wait_until_told();
    assert_true(net_wire_takes(wire));
}

/* The peer is held back, not its frames lost. */
static void a_guest_that_does_not_read_holds_its_peer_back(void **state)
{
    const struct timeval soon = {.tv_usec = 100000};
    unsigned written = 0;
    const uint32_t length = htonl(1000);
    uint8_t packet[sizeof length + 1000];

    (void)state;
    setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
    memcpy(packet, &length, sizeof length);
    memcpy(packet + sizeof length, frame, 1000);
    size_t part = 0;
    for (;;) {
        const ssize_t n = write(peer, packet + part, sizeof packet - part);
        if (n <= 0)
            break;
        part = (part + (size_t)n) % sizeof packet;
        written += part == 0;
        assert_true(written < 100000);
    }
    for (unsigned i = 0; i < written; i++)
        assert_int_equal(next_frame(), 1000);
}

static void a_peer_that_ends_leaves_a_wire_that_swallows(void **state)
{
    (void)state;
    write_frame(100);
    shutdown(peer, SHUT_RDWR);
    assert_int_equal(next_frame(), 100);
    for (unsigned i = 0; i < 100; i++) {
        assert_true(net_wire_takes(wire));
        net_wire_send(wire, frame, FRAME_MAX);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(frames_come_in),
        TEST(only_frames_come_in),
        TEST(frames_go_out),
        TEST(a_peer_that_does_not_read_fills_the_wire),
        TEST(a_guest_that_does_not_read_holds_its_peer_back),
        TEST(a_peer_that_ends_leaves_a_wire_that_swallows),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
