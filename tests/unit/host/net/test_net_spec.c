#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "host/net/net_spec.h"
#include "tests/unit/random.h"

static struct net_spec spec;
static struct err e;

static void assert_taken(const char *text)
{
    if (net_spec_parse(&spec, text, &e) < 0)
        fail_msg("'%s' is refused: %s", text, e.text);
}

static void assert_refused(const char *text, const char *why)
{
    if (net_spec_parse(&spec, text, &e) == 0)
        fail_msg("'%s' is taken", text);
    assert_int_equal(e.status, STATUS_USAGE);
    if (!strstr(e.text, why))
        fail_msg("'%s': '%s' does not say '%s'", text, e.text, why);
}

static void kinds(void **state)
{
    (void)state;
    assert_taken("user");
    assert_int_equal(spec.kind, NET_USER);
    assert_false(spec.has_mac || spec.restricted || spec.forward_count);
    assert_taken("passt");
    assert_taken("none");
    assert_int_equal(spec.kind, NET_NONE);
    assert_string_equal(net_spec_kind(&spec), "none");
    assert_taken("tap:tap0");
    assert_string_equal(spec.address, "tap0");
    assert_taken("bridge:br0");
    assert_int_equal(spec.kind, NET_BRIDGE);
    assert_string_equal(spec.address, "br0");
    assert_taken("stream:unix:/tmp/a:b,server");
    assert_string_equal(spec.address, "unix:/tmp/a:b");
    assert_true(spec.server);
}

static void settings(void **state)
{
    static const uint8_t mac[] = {0x52, 0x54, 0, 0xab, 0xcd, 0xef};

    (void)state;
    assert_taken("user,hostfwd=tcp::2222-:22,hostfwd=udp:0.0.0.0:53-10.0.2.20:5353,restrict=on,"
                 "mac=52:54:00:aB:cd:EF");
    assert_int_equal(spec.forward_count, 2);
    assert_false(spec.forwards[0].udp);
    assert_int_equal(ntohl(spec.forwards[0].host.s_addr), INADDR_LOOPBACK);
    assert_int_equal(spec.forwards[0].host_port, 2222);
    assert_int_equal(spec.forwards[0].guest.s_addr, 0);
    assert_int_equal(spec.forwards[0].guest_port, 22);
    assert_true(spec.forwards[1].udp);
    assert_int_equal(spec.forwards[1].host.s_addr, 0);
    assert_int_equal(ntohl(spec.forwards[1].guest.s_addr), 0x0a000214);
    assert_true(spec.restricted);
    assert_memory_equal(spec.mac, mac, sizeof mac);
    assert_taken("none,mac=52:54:00:00:00:01");
}

static void refused(void **state)
{
    (void)state;
    assert_refused("", "takes user");
    assert_refused("usr", "takes user");
    assert_refused("none:x", "no address");
    assert_refused("user:x", "no address");
    assert_refused("tap", "wants an address");
    assert_refused("bridge", "wants an address");
    assert_refused("user,", "does not take ''");
    assert_refused("user,server", "does not take 'server'");
    assert_refused("passt,restrict=on", "does not take");
    assert_refused("user,restrict=maybe", "does not take");
    assert_refused("user,mac=", "mac takes");
    assert_refused("user,mac=52:54:00:12:34", "mac takes");
    assert_refused("user,mac=52:54:00:12:34:5", "mac takes");
    assert_refused("user,mac=53:54:00:12:34:56", "mac takes");
    assert_refused("user,mac=5::54:0:012:34:56", "mac takes");
    assert_refused("user,hostfwd=tcp::0-:22", "hostfwd takes");
    assert_refused("user,hostfwd=tcp::65536-:22", "hostfwd takes");
    assert_refused("user,hostfwd=tcp::80", "hostfwd takes");
    assert_refused("user,hostfwd=tcp:80-:80", "hostfwd takes");
    assert_refused("user,hostfwd=tcp:300.0.0.1:80-:80", "hostfwd takes");
    assert_refused("user,hostfwd=sctp::80-:80", "hostfwd takes");
    assert_refused("user,hostfwd=tcp", "hostfwd takes");
}

static void random_texts(void **state)
{
    static const char letters[] = "user,hostfwd=tcp::-0123456789.restrict=onmac:stream";
    static uint64_t seed = RANDOM_SEED;

    (void)state;
    for (unsigned i = 0; i < rounds(1000000); i++) {
        char text[64];
        const size_t kind = random_next(&seed) % 3 ? 0 : 5;
        const size_t len = kind + random_next(&seed) % (sizeof text - 1 - kind);
        for (size_t j = 0; j < len; j++)
            text[j] = letters[random_next(&seed) % (sizeof letters - 1)];
        memcpy(text, "user,", kind);
        text[len] = '\0';
        (void)net_spec_parse(&spec, text, &e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds),
        cmocka_unit_test(settings),
        cmocka_unit_test(refused),
        cmocka_unit_test(random_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
