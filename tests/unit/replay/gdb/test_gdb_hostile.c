/* The gdb server and clients that are broken, malicious, or suddenly gone; and where they come in.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "host/gdb_listen.h"
#include "replay/gdb/gdb_packet.h"
#include "tests/unit/replay/gdb/gdb_client.h"

static void damaged_packets_are_refused(void **state)
{
    (void)state;
    struct client *c = client_open();
    static const char *const damaged[] = {"$g#00", "$g#zz", "$#01", "$qC#b5"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        client_write(c, damaged[i], strlen(damaged[i]));
        assert_int_equal(client_byte(c, 5000), '-');
    }
    /* The rest of a lost packet, and noise, before a whole one. */
    client_write(c, "zz\003#$gg$qC#b4", 13);
    assert_int_equal(client_byte(c, 5000), '+');
    client_receive(c);
    assert_string_equal(c->reply, "QC1");
    client_write(c, "$g}#e4", 6); /* nothing behind the escape */
    assert_int_equal(client_byte(c, 5000), '+');
    client_receive(c);
    assert_string_equal(c->reply, "E.malformed packet");
    assert_reply(c, "q}c", "QC1"); /* an escaped C */
    assert_reply(c, "", "");

    assert_reply(c, "QStartNoAckMode", "OK");
    c->no_ack = true;
    client_write(c, "$g#00", 5);
    client_receive(c);
    assert_string_equal(c->reply, "E.damaged packet");
    client_close(c, NULL);
}

static void long_packets(void **state)
{
    (void)state;
    struct client *c = client_open();
    char *text = malloc(100000);
    static const size_t lengths[] = {GDB_PACKET_MAX, GDB_PACKET_MAX + 1, GDB_PACKET_MAX + 2, 99999};

    assert_non_null(text);
    memset(text, 'y', 100000);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        text[lengths[i]] = 0;
        client_ask(c, text);
        assert_string_equal(c->reply, i ? "E.packet too long" : "");
        text[lengths[i]] = 'y';
    }
    assert_reply(c, "qC", "QC1");
    free(text);
    client_close(c, NULL);
}

static void a_lost_reply_is_sent_again(void **state)
{
    (void)state;
    struct client *c = client_open();
    assert_reply(c, "qC", "QC1");
    for (unsigned i = 0; i < 10; i++) {
        client_write(c, "-", 1);
        client_receive(c);
        assert_string_equal(c->reply, "QC1");
    }
    client_write(c, "-", 1); /* not for ever */
    assert_int_equal(client_byte(c, 5000), -1);
    assert_int_equal(client_close(c, NULL), GDB_VANISHED);
}

/* It came over the same port without the last one's going being noticed. */
static void a_new_client_gets_acknowledgements(void **state)
{
    (void)state;
    struct client *c = client_open();
    assert_reply(c, "QStartNoAckMode", "OK");
    assert_non_null(strstr(client_ask(c, "qSupported:"), "PacketSize"));
    c->no_ack = false;
    assert_reply(c, "qC", "QC1");
    client_close(c, NULL);
}

/* It was there before the server. */
static void an_impatient_client_gets_one_answer(void **state)
{
    (void)state;
    struct client *c = client_open();
    static const char first[] = "+$qSupported#37+$qSupported#37+$qSupported#37";
    client_write(c, first, sizeof first - 1);
    assert_int_equal(client_byte(c, 5000), '+');
    client_receive(c);
    assert_non_null(strstr(c->reply, "PacketSize"));
    assert_reply(c, "vMustReplyEmpty", "");
    client_close(c, NULL);
}

static void clients_that_vanish(void **state)
{
    (void)state;
    static const char *const last[] = {"",      "$", "$m4030", "$g#",  "$g#6",
                                       "$g#67", "+", "}",      "$c#63"};
    struct fake fake;

    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        struct client *c = client_open();
        c->fake.endless = true;
        assert_reply(c, "Z0,401000,1", "OK");
        client_write(c, last[i], strlen(last[i]));
        assert_int_equal(client_close(c, &fake), GDB_VANISHED);
        assert_int_equal(fake_break_count(&fake), 0);
    }
    /* In the middle of a run that would never end. */
    for (unsigned i = 0; i < 10; i++) {
        struct client *c = client_open();
        c->fake.endless = true;
        client_send(c, i % 2 ? "c" : "bc", i % 2 ? 1 : 2);
        assert_int_equal(client_byte(c, 5000), '+');
        if (i > 5)
            usleep(10000);
        assert_int_equal(client_close(c, &fake), GDB_VANISHED);
        assert_true(fake.interrupts > 0);
    }
}

/* Who talks while the machine runs wants it to stop; and even a flood does not hide that its sender
 * has gone. */
static void talk_during_a_run(void **state)
{
    (void)state;
    struct client *c = client_open();
    static const char flood[10000];

    c->fake.endless = true;
    client_write(c, "$c#63++-$qC#b4", 14);
    assert_int_equal(client_byte(c, 5000), '+');
    client_receive(c);
    assert_int_equal(strncmp(c->reply, "T02", 3), 0);
    client_byte(c, 5000); /* the - asks for it once more, the packet is acknowledged */
    while (client_byte(c, 100) != -2)
        continue;

    client_send(c, "c", 1);
    assert_int_equal(client_byte(c, 5000), '+');
    client_write(c, flood, sizeof flood);
    client_receive(c);
    assert_int_equal(strncmp(c->reply, "T02", 3), 0);
    client_send(c, "c", 1);
    client_write(c, flood, sizeof flood);
    assert_int_equal(client_close(c, NULL), GDB_VANISHED);
}

static uint64_t seed = 20261121;

static unsigned random_below(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

/* A packet that is nearly right, or not at all. */
static size_t random_packet(uint8_t *out, size_t size)
{
    static const char *const starts[] = {"g",
                                         "G",
                                         "p",
                                         "P",
                                         "m",
                                         "M",
                                         "X",
                                         "Z0,",
                                         "z2,",
                                         "H",
                                         "T",
                                         "vCont",
                                         "vCont;s:",
                                         "vCont;c",
                                         "c",
                                         "s",
                                         "bs",
                                         "bc",
                                         "q",
                                         "Q",
                                         "qRcmd,",
                                         "qXfer:features:read:target.xml:",
                                         "qSupported",
                                         "qThreadExtraInfo,",
                                         "?",
                                         "qfThreadInfo",
                                         "Qqemu.PhyMemMode:",
                                         "D",
                                         "",
                                         "QStartNoAckMode"};
    static const char *const middles[] = {
        "0", "401000", "ffffffffffffffff", ",", ":", ";", "-1", "1", "}", "=", "*", "68656c70"};
    size_t len = 0;
    const char *start = starts[random_below(sizeof starts / sizeof *starts)];

    out[len++] = '$';
    memcpy(out + len, start, strlen(start));
    len += strlen(start);
    for (unsigned n = random_below(6); n > 0; n--) {
        const char *more = middles[random_below(sizeof middles / sizeof *middles)];
        memcpy(out + len, more, strlen(more));
        len += strlen(more);
    }
    for (unsigned n = random_below(4) ? 0 : random_below(40); n > 0; n--)
        out[len++] = (uint8_t)random_below(256);
    uint8_t sum = 0;
    for (size_t i = 1; i < len; i++)
        sum = (uint8_t)(sum + out[i]);
    len += (size_t)sprintf((char *)out + len, "#%02x",
                           random_below(10) ? sum : random_below(256) & 0xffu);
    if (!random_below(20))
        len -= random_below((unsigned)len);
    assert_true(len < size);
    return len;
}

static void random_packets(void **state)
{
    (void)state;
    uint8_t packet[512];
    unsigned sent = 0;

    while (sent < 500) {
        struct client *c = client_open();
        c->fake.cpu_count = 2;
        bool alive = true;
        for (unsigned n = 0; n < 50 && alive; n++, sent++) {
            size_t len = random_packet(packet, sizeof packet);
            alive = send(c->fd, packet, len, MSG_NOSIGNAL) == (ssize_t)len;
            if (!random_below(8))
                alive = alive && send(c->fd, "\003", 1, MSG_NOSIGNAL) == 1;
            /* Mostly without waiting for the answer. */
            for (int byte = 0; alive && byte != -2;) {
                byte = client_byte(c, random_below(5) ? 0 : 2);
                alive = byte != -1;
            }
        }
        client_close(c, NULL);
    }
}

static void pure_noise(void **state)
{
    (void)state;
    uint8_t noise[4096];

    for (unsigned round = 0; round < 20; round++) {
        struct client *c = client_open();
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = (uint8_t)(random_below(4) ? random_below(256)
                                                 : (unsigned)"$#}+-\003cgm"[random_below(9)]);
        for (size_t at = 0; at < sizeof noise; at += 512) {
            if (send(c->fd, noise + at, 512, MSG_NOSIGNAL) < 0)
                break;
            while (client_byte(c, 0) >= 0)
                continue;
        }
        client_close(c, NULL);
    }
}

static int connect_tcp(const char *name)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned port;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(sscanf(name, "localhost:%u", &port), 1);
    a.sin_port = htons((uint16_t)port);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    close(fd);
    return -1;
}

static void tcp(void **state)
{
    (void)state;
    struct gdb_listener l, second;
    struct err e = {.text = ""};
    atomic_int quit = 0;
    int fd;

    assert_int_equal(gdb_listen(&l, "0", &e), 0);
    assert_string_not_equal(l.name, "localhost:0");
    assert_int_equal(gdb_listen(&second, l.name + strlen("localhost:"), &e), -1);
    assert_int_equal(e.status, STATUS_ERROR);
    assert_non_null(strstr(e.text, l.name));
    gdb_listener_close(&second);
    for (unsigned i = 0; i < 3; i++) {
        int client = connect_tcp(l.name);
        assert_true(client >= 0);
        assert_int_equal(gdb_accept(&l, &quit, &fd, &e), 0);
        assert_true(fd >= 0);
        close(fd);
        close(client);
    }
    quit = 1;
    assert_int_equal(gdb_accept(&l, &quit, &fd, &e), 0);
    assert_int_equal(fd, -1);
    gdb_listener_close(&l);
}

static void bad_addresses(void **state)
{
    (void)state;
    static const char *const bad[] = {"",          "65536", "-1", "12a",  ":1234",
                                      "0.0.0.0:1", "unix:", " 1", "unix", "0x10"};
    char path[200] = "unix:";
    struct gdb_listener l;
    struct err e;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(gdb_listen(&l, bad[i], &e), -1);
        assert_int_equal(e.status, STATUS_USAGE);
    }
    memset(path + 5, 'a', 120);
    assert_int_equal(gdb_listen(&l, path, &e), -1);
    assert_int_equal(e.status, STATUS_USAGE);
    assert_int_equal(gdb_listen(&l, "unix:/nonexistent-dir/socket", &e), -1);
    assert_int_equal(e.status, STATUS_ERROR);
}

static void unix_socket(void **state)
{
    (void)state;
    char dir[] = "/tmp/test-gdb-XXXXXX", where[64];
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct gdb_listener l, second;
    struct stat st;
    struct err e;
    int fd;

    assert_non_null(mkdtemp(dir));
    snprintf(where, sizeof where, "unix:%s/s", dir);
    assert_int_equal(gdb_listen(&l, where, &e), 0);
    assert_string_equal(l.name, where + 5);
    assert_int_equal(stat(l.name, &st), 0);
    assert_int_equal(st.st_mode & 077, 0); /* nobody else's */
    strcpy(a.sun_path, l.name);
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(gdb_accept(&l, NULL, &fd, &e), 0);
    close(fd);
    close(client);

    assert_int_equal(gdb_listen(&second, where, &e), -1); /* somebody is there */
    gdb_listener_close(&second);
    assert_int_equal(stat(where + 5, &st), 0);
    close(l.fd); /* one that died leaves its socket */
    assert_int_equal(gdb_listen(&second, where, &e), 0);
    gdb_listener_close(&second);
    assert_int_equal(stat(where + 5, &st), -1);

    FILE *file = fopen(where + 5, "w"); /* not a socket: not ours to remove */
    fclose(file);
    assert_int_equal(gdb_listen(&second, where, &e), -1);
    gdb_listener_close(&second);
    assert_int_equal(unlink(where + 5), 0);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_packets_are_refused),
        cmocka_unit_test(long_packets),
        cmocka_unit_test(a_lost_reply_is_sent_again),
        cmocka_unit_test(a_new_client_gets_acknowledgements),
        cmocka_unit_test(an_impatient_client_gets_one_answer),
        cmocka_unit_test(clients_that_vanish),
        cmocka_unit_test(talk_during_a_run),
        cmocka_unit_test(random_packets),
        cmocka_unit_test(pure_noise),
        cmocka_unit_test(tcp),
        cmocka_unit_test(bad_addresses),
        cmocka_unit_test(unix_socket),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
