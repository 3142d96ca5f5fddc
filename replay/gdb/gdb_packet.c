#include "replay/gdb/gdb_packet.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "replay/gdb/gdb_text.h"

/* A client that refuses one frame so often does not understand us. */
#define RESEND_MAX 10

void gdb_link_init(struct gdb_link *l, int fd, const atomic_int *quit)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    l->fd = fd;
    l->quit = quit;
    l->no_ack = false;
    l->start = l->end = l->len = 0;
    l->sent = (struct bytes){0};
    l->resent = 0;
}

void gdb_link_free(struct gdb_link *l)
{
    bytes_free(&l->sent);
}

static bool must_quit(const struct gdb_link *l)
{
    return l->quit && *l->quit;
}

static enum gdb_fill judge(const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (data[i] != '+' && data[i] != '-')
            return GDB_FILL_SPEECH;
    return len ? GDB_FILL_ACKS : GDB_FILL_NOTHING;
}

enum gdb_fill gdb_link_pending(const struct gdb_link *l)
{
    return judge(l->in + l->start, l->end - l->start);
}

short gdb_link_events(const struct gdb_link *l)
{
    return l->end - l->start < sizeof l->in ? POLLIN | POLLRDHUP : POLLRDHUP;
}

enum gdb_fill gdb_link_fill(struct gdb_link *l)
{
    struct pollfd p = {.fd = l->fd, .events = gdb_link_events(l)};

    memmove(l->in, l->in + l->start, l->end - l->start);
    l->end -= l->start;
    l->start = 0;
    if (l->end == sizeof l->in) /* a flood: all that is of interest is whether it ends */
        return poll(&p, 1, 0) > 0 ? GDB_FILL_GONE : GDB_FILL_NOTHING;

    ssize_t n = read(l->fd, l->in + l->end, sizeof l->in - l->end);
    if (n > 0) {
        l->end += (size_t)n;
        return judge(l->in + l->end - n, (size_t)n);
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return GDB_FILL_NOTHING;
    return GDB_FILL_GONE; /* a virtio-serial port reads 0 bytes when nobody is connected */
}

/* The next byte from the client, or -1. */
static int next_byte(struct gdb_link *l)
{
    while (l->start == l->end) {
        struct pollfd p = {.fd = l->fd, .events = POLLIN};
        if (must_quit(l))
            return -1;
        if (poll(&p, 1, GDB_TICK_MS) > 0 && gdb_link_fill(l) == GDB_FILL_GONE)
            return -1;
    }
    return l->in[l->start++];
}

static int write_all(struct gdb_link *l, const uint8_t *data, size_t len)
{
    while (len > 0) {
        struct pollfd p = {.fd = l->fd, .events = POLLOUT};
        ssize_t n = write(l->fd, data, len);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
            continue;
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        if (poll(&p, 1, GDB_TICK_MS) > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL)))
            return -1;
        if (must_quit(l))
            return -1;
    }
    return 0;
}

int gdb_link_send(struct gdb_link *l, const void *data, size_t len)
{
    const uint8_t *p = data;
    char tail[4];
    uint8_t sum = 0;

    assert(len <= GDB_PACKET_MAX);
    bytes_clear(&l->sent);
    bytes_put_u8(&l->sent, '$');
    for (size_t i = 0; i < len; i++) {
        if (memchr("#$}*", p[i], 4)) {
            bytes_put_u8(&l->sent, '}');
            bytes_put_u8(&l->sent, p[i] ^ 0x20);
        } else {
            bytes_put_u8(&l->sent, p[i]);
        }
    }
    for (size_t i = 1; i < l->sent.len; i++)
        sum = (uint8_t)(sum + l->sent.data[i]);
    snprintf(tail, sizeof tail, "#%02x", sum);
    bytes_put(&l->sent, tail, 3);
    l->resent = 0;
    return write_all(l, l->sent.data, l->sent.len);
}

static void drop_repeats(struct gdb_link *l)
{
    enum gdb_fill fill;

    do
        fill = gdb_link_fill(l);
    while (fill == GDB_FILL_ACKS || fill == GDB_FILL_SPEECH);
    for (;;) {
        const uint8_t *p = l->in + l->start, *end = l->in + l->end;
        while (p < end && *p == '+')
            p++;
        if ((size_t)(end - p) < l->len + 4 || p[0] != '$' || memcmp(p + 1, l->packet, l->len) ||
            p[1 + l->len] != '#')
            return;
        l->start = (size_t)(p - l->in) + l->len + 4;
    }
}

int gdb_link_restart(struct gdb_link *l)
{
    drop_repeats(l);
    if (!l->no_ack)
        return 0;
    l->no_ack = false;
    return write_all(l, (const uint8_t *)"+", 1);
}

static int send_again(struct gdb_link *l)
{
    if (l->no_ack || !l->sent.len)
        return 0;
    if (l->resent++ == RESEND_MAX)
        return -1;
    return write_all(l, l->sent.data, l->sent.len);
}

/* Everything up to the next $; a - in it asks for the last frame. 0x03 has no meaning here: the
 * machine stands still already. */
static int skip_to_packet(struct gdb_link *l)
{
    for (;;) {
        int c = next_byte(l);
        if (c == '$')
            return 0;
        if (c < 0 || (c == '-' && send_again(l) < 0))
            return -1;
    }
}

/* From behind the $ to behind the checksum. A $ in the middle begins anew: what came before it was
 * the rest of something that got lost. */
static int read_frame(struct gdb_link *l, bool *intact)
{
    uint8_t sum = 0;
    int c;

    l->len = 0;
    while ((c = next_byte(l)) != '#') {
        if (c < 0)
            return -1;
        sum = (uint8_t)(sum + c);
        if (c == '$')
            sum = 0, l->len = 0;
        else if (l->len <= GDB_PACKET_MAX) /* one more than allowed tells a long one */
            l->packet[l->len++] = (uint8_t)c;
    }
    int high = next_byte(l), low = high < 0 ? -1 : next_byte(l);
    if (low < 0)
        return -1;
    *intact = gdb_hex_digit(high) >= 0 && gdb_hex_digit(low) >= 0 &&
              (gdb_hex_digit(high) << 4 | gdb_hex_digit(low)) == sum;
    return 0;
}

static bool unescape(struct gdb_link *l)
{
    size_t len = 0;

    for (size_t i = 0; i < l->len; i++) {
        uint8_t c = l->packet[i];
        if (c == '}') {
            if (++i == l->len)
                return false;
            c = l->packet[i] ^ 0x20;
        }
        l->packet[len++] = c;
    }
    l->len = len;
    l->packet[len] = 0;
    return true;
}

/* Whether the packet can be used; if not, why has been said. *gone: nor can the connection. */
static bool accept_frame(struct gdb_link *l, bool intact, bool *gone)
{
    const char *complaint = NULL;

    if (!l->no_ack)
        *gone = write_all(l, (const uint8_t *)(intact ? "+" : "-"), 1) < 0;
    if (!intact)
        complaint = l->no_ack ? "E.damaged packet" : NULL;
    else if (l->len > GDB_PACKET_MAX)
        complaint = "E.packet too long";
    else if (!unescape(l))
        complaint = "E.malformed packet";
    else
        return !*gone;
    if (complaint && !*gone)
        *gone = gdb_link_send(l, complaint, strlen(complaint)) < 0;
    return false;
}

int gdb_link_receive(struct gdb_link *l)
{
    bool intact = false, gone = false;

    while (!gone) {
        if (skip_to_packet(l) < 0 || read_frame(l, &intact) < 0)
            return -1;
        if (accept_frame(l, intact, &gone))
            return 0;
    }
    return -1;
}
