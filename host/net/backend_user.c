/*
 * NAT without rights, by libslirp: the guest's connections are sockets of this process. It has a
 * DHCP server, and a DNS server that asks the host's. libslirp parses what a guest sends, so it
 * runs as nobody where we are root.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slirp/libslirp.h>

#include "base/now.h"
#include "host/net/backend_child.h"
#include "host/net/net_backend.h"

/* What QEMU and VirtualBox have, too: guests' files know these addresses. */
#define NETWORK 0x0a000200u /* 10.0.2.0/24 */
#define MASK    0xffffff00u
#define HOST    (NETWORK + 2)
#define DNS     (NETWORK + 3)
#define GUEST   (NETWORK + 15)
#define POLLS   1024u
#define TIMERS  8u

/* The library is loaded by who needs it: with its own (GLib) it is larger than we are. */
#define LIBRARY "libslirp.so.0"
#define FUNCTIONS(X)                                                                               \
    X(slirp_new) X(slirp_add_hostfwd) X(slirp_pollfds_fill) X(slirp_pollfds_poll) X(slirp_input)

static struct {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} lib;

struct timer {
    SlirpTimerCb call; /* NULL: free */
    void *opaque;
    int64_t at_ms; /* -1: it is off */
};

static struct {
    Slirp *slirp;
    int wire;
    bool ended;
    struct pollfd polls[POLLS];
    unsigned count;
    struct timer timers[TIMERS];
    struct wire_queue in;
    char wrong[200];
} user;

static ssize_t send_packet(const void *frame, size_t len, void *opaque)
{
    (void)opaque;
    if (wire_write(user.wire, frame, len) < 0)
        user.ended = true;
    return (ssize_t)len;
}

static void guest_error(const char *message, void *opaque)
{
    (void)message;
    (void)opaque;
}

static int64_t clock_get_ns(void *opaque)
{
    (void)opaque;
    return (int64_t)host_now_ns();
}

static void *timer_new(SlirpTimerCb call, void *of_call, void *opaque)
{
    (void)opaque;
    for (unsigned i = 0; i < TIMERS; i++) {
        if (user.timers[i].call)
            continue;
        user.timers[i] = (struct timer){.call = call, .opaque = of_call, .at_ms = -1};
        return &user.timers[i];
    }
    abort(); /* it has one */
}

static void timer_free(void *timer, void *opaque)
{
    (void)opaque;
    *(struct timer *)timer = (struct timer){0};
}

static void timer_mod(void *timer, int64_t at_ms, void *opaque)
{
    (void)opaque;
    ((struct timer *)timer)->at_ms = at_ms;
}

static void note_fd(int fd, void *opaque)
{
    (void)fd;
    (void)opaque;
}

static void notify(void *opaque)
{
    (void)opaque;
}

static const SlirpCb callbacks = {
    .send_packet = send_packet,
    .guest_error = guest_error,
    .clock_get_ns = clock_get_ns,
    .timer_new = timer_new,
    .timer_free = timer_free,
    .timer_mod = timer_mod,
    .register_poll_fd = note_fd,
    .unregister_poll_fd = note_fd,
    .notify = notify,
};

static const char *load_library(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW);

    if (!library)
        return LIBRARY " cannot be loaded; run 'apt-get install libslirp0'";
#define LOAD(name)                                                                                 \
    if (!(lib.name = (__typeof__(lib.name))dlsym(library, #name)))                                 \
        return LIBRARY " has no " #name;
    FUNCTIONS(LOAD)
#undef LOAD
    return NULL;
}

static const char *forward(const struct net_forward *f)
{
    const struct in_addr guest =
        f->guest.s_addr ? f->guest : (struct in_addr){.s_addr = htonl(GUEST)};
    char host[INET_ADDRSTRLEN];

    if (lib.slirp_add_hostfwd(user.slirp, f->udp, f->host, f->host_port, guest, f->guest_port) == 0)
        return NULL;
    const char *why = strerror(errno);
    snprintf(user.wrong, sizeof user.wrong, "cannot forward %s port %u of %s: %s",
             f->udp ? "UDP" : "TCP", f->host_port, inet_ntop(AF_INET, &f->host, host, sizeof host),
             why);
    return user.wrong;
}

static const char *prepare(const struct net_spec *spec, int wire)
{
    const SlirpConfig config = {
        .version = 1,
        .restricted = spec->restricted,
        .in_enabled = true,
        .vnetwork.s_addr = htonl(NETWORK),
        .vnetmask.s_addr = htonl(MASK),
        .vhost.s_addr = htonl(HOST),
        .vdhcp_start.s_addr = htonl(GUEST),
        .vnameserver.s_addr = htonl(DNS),
    };
    const char *wrong = load_library();

    if (wrong)
        return wrong;
    user.wire = wire;
    user.slirp = lib.slirp_new(&config, &callbacks, NULL);
    if (!user.slirp)
        return "libslirp does not start";
    for (unsigned i = 0; i < spec->forward_count && !wrong; i++)
        wrong = forward(&spec->forwards[i]);
    return wrong ? wrong : backend_child_drop_rights();
}

/* poll()'s bits and libslirp's: the same five things. */
static const struct {
    int slirp;
    short poll;
} bits[] = {
    {SLIRP_POLL_IN, POLLIN},   {SLIRP_POLL_OUT, POLLOUT}, {SLIRP_POLL_PRI, POLLPRI},
    {SLIRP_POLL_ERR, POLLERR}, {SLIRP_POLL_HUP, POLLHUP},
};
#define BITS (sizeof bits / sizeof *bits)

static int add_poll(int fd, int events, void *opaque)
{
    short wanted = 0;

    (void)opaque;
    if (user.count == POLLS)
        return -1; /* it is looked at when others have gone */
    for (size_t i = 0; i < BITS; i++)
        wanted |= events & bits[i].slirp ? bits[i].poll : 0;
    user.polls[user.count] = (struct pollfd){.fd = fd, .events = wanted};
    return (int)user.count++;
}

static int get_revents(int index, void *opaque)
{
    int events = 0;

    (void)opaque;
    for (size_t i = 0; index >= 0 && i < BITS; i++)
        events |= user.polls[index].revents & bits[i].poll ? bits[i].slirp : 0;
    return events;
}

static void take_frames(void)
{
    const uint8_t *frame;
    size_t len;

    for (; (frame = wire_first(&user.in, &len)); wire_drop(&user.in))
        lib.slirp_input(user.slirp, frame, (int)len);
}

/* Call the timers that are due; *wait is at most what is left until the next one. */
static void run_timers(uint32_t *wait_ms)
{
    const int64_t now_ms = (int64_t)(host_now_ns() / 1000000u);

    for (unsigned i = 0; i < TIMERS; i++) {
        struct timer *t = &user.timers[i];
        if (!t->call || t->at_ms < 0)
            continue;
        if (t->at_ms <= now_ms) {
            t->at_ms = -1;
            t->call(t->opaque);
        }
        if (t->at_ms >= 0 && (uint64_t)(t->at_ms - now_ms) < *wait_ms)
            *wait_ms = (uint32_t)(t->at_ms - now_ms);
    }
}

static void serve(const struct net_spec *spec, int wire)
{
    (void)spec;
    while (!user.ended) {
        uint32_t wait_ms = 1000;

        user.polls[0] = (struct pollfd){.fd = wire, .events = POLLIN};
        user.count = 1;
        lib.slirp_pollfds_fill(user.slirp, &wait_ms, add_poll, NULL);
        run_timers(&wait_ms);
        const int ready = poll(user.polls, user.count, (int)wait_ms);
        lib.slirp_pollfds_poll(user.slirp, ready < 0, get_revents, NULL);
        if (ready > 0 && user.polls[0].revents) {
            if (wire_read(wire, &user.in) < 0)
                return;
            take_frames();
        }
    }
}

static int open_user(const struct net_spec *spec, struct err *e)
{
    static const struct backend_child child = {prepare, serve};

    return backend_child_start(&child, spec, e);
}

const struct net_backend net_backend_user = {.open = open_user};
