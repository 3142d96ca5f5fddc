#ifndef TESTS_UNIT_REPLAY_GDB_GDB_CLIENT_H
#define TESTS_UNIT_REPLAY_GDB_GDB_CLIENT_H

/* A client of the gdb server for unit tests: the server has a thread and one end of a socket pair.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "replay/gdb/gdb_server.h"
#include "replay/gdb/gdb_text.h"
#include "tests/unit/replay/gdb/fake_gdb.h"

struct client {
    struct fake fake;
    int fd, theirs, end;
    pthread_t thread;
    bool no_ack;
    char reply[40000];
    size_t len;
    atomic_int quit;
};

static void *client_serve(void *opaque)
{
    struct client *c = opaque;
    struct err e = {.text = ""};

    c->end = gdb_serve(&c->fake.target, c->theirs, &e);
    close(c->theirs);
    return NULL;
}

static struct client *client_open(void)
{
    struct client *c = calloc(1, sizeof *c);
    int pair[2];

    assert_non_null(c);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    fake_init(&c->fake);
    c->fake.target.quit = &c->quit;
    c->fd = pair[0];
    c->theirs = pair[1];
    assert_int_equal(pthread_create(&c->thread, NULL, client_serve, c), 0);
    return c;
}

/* Hang up, if that has not been done; returns how the session ended. */
static int client_close(struct client *c, struct fake *fake)
{
    if (c->fd >= 0)
        close(c->fd);
    pthread_join(c->thread, NULL);
    int end = c->end;
    if (fake)
        *fake = c->fake;
    free(c);
    return end;
}

static void client_write(struct client *c, const void *data, size_t len)
{
    assert_int_equal(send(c->fd, data, len, MSG_NOSIGNAL), len);
}

/* The next byte; -1: the server hung up; -2: nothing for so long. */
static int client_byte(struct client *c, int ms)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    uint8_t byte;

    if (poll(&p, 1, ms) == 0)
        return -2;
    return read(c->fd, &byte, 1) == 1 ? byte : -1;
}

static void client_send(struct client *c, const void *data, size_t len)
{
    struct bytes frame = {0};
    uint8_t sum = 0;
    char tail[4];

    for (size_t i = 0; i < len; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)data)[i]);
    bytes_put_u8(&frame, '$');
    bytes_put(&frame, data, len);
    snprintf(tail, sizeof tail, "#%02x", sum);
    bytes_put(&frame, tail, 3);
    client_write(c, frame.data, frame.len);
    bytes_free(&frame);
}

/* The next packet into reply[], with its escapes undone, and acknowledged. */
static void client_receive(struct client *c)
{
    uint8_t sum = 0;
    int byte;

    c->len = 0;
    assert_int_equal(client_byte(c, 5000), '$');
    while ((byte = client_byte(c, 5000)) != '#') {
        assert_true(byte >= 0 && c->len < sizeof c->reply - 1);
        sum = (uint8_t)(sum + byte);
        if (byte == '}') {
            byte = client_byte(c, 5000);
            sum = (uint8_t)(sum + byte);
            byte ^= 0x20;
        }
        c->reply[c->len++] = (char)byte;
    }
    c->reply[c->len] = 0;
    int high = gdb_hex_digit(client_byte(c, 5000)), low = gdb_hex_digit(client_byte(c, 5000));
    assert_int_equal(high << 4 | low, sum);
    if (!c->no_ack)
        client_write(c, "+", 1);
}

/* A request and its reply. */
static const char *client_ask(struct client *c, const char *packet)
{
    client_send(c, packet, strlen(packet));
    if (!c->no_ack)
        assert_int_equal(client_byte(c, 5000), '+');
    client_receive(c);
    return c->reply;
}

#define assert_reply(c, packet, reply) assert_string_equal(client_ask(c, packet), reply)
/* An error with a sentence, which has this in it. */
#define assert_error(c, packet, text)                                                              \
    do {                                                                                           \
        assert_int_equal(strncmp(client_ask(c, packet), "E.", 2), 0);                              \
        assert_non_null(strstr((c)->reply, text));                                                 \
    } while (0)

#endif
