#include "vmm/machine/net_wire.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/deaf_thread.h"
#include "base/wire.h"

#define READ_BYTES (64u << 10)

struct net_wire {
    int fd, bell; /* bell: an eventfd that has the thread look around */
    pthread_t thread;
    bool has_thread;
    void (*notify)(void *opaque);
    void *opaque;
    pthread_mutex_t lock; /* of all that follows */
    struct wire_queue in, out;
    bool out_full;    /* a frame was not taken since */
    bool gone, stops; /* the peer is; the thread is to end */
    atomic_bool has_frame;
    uint8_t sending[WIRE_LENGTH_BYTES + FRAME_MAX];
    uint8_t read[READ_BYTES]; /* the thread's own */
};

static void find_frame(struct net_wire *w)
{
    size_t len;

    atomic_store(&w->has_frame, wire_first(&w->in, &len) != NULL);
}

/* Returns whether there is a frame where there was none. */
static bool take_in(struct net_wire *w, size_t len)
{
    const bool had = atomic_load(&w->has_frame);

    wire_add(&w->in, w->read, len);
    if (!had)
        find_frame(w);
    return !had && atomic_load(&w->has_frame);
}

static void write_out(struct net_wire *w)
{
    while (w->out.len && !w->gone) {
        const ssize_t n = write(w->fd, wire_bytes(&w->out), w->out.len);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0)
            w->gone = true;
        else
            wire_remove(&w->out, (size_t)n);
    }
    if (w->gone)
        wire_remove(&w->out, w->out.len);
}

static bool takes(const struct net_wire *w)
{
    return w->gone || wire_room(&w->out) >= WIRE_LENGTH_BYTES + FRAME_MAX;
}

/* One round of the thread; false: it ends. */
static bool look_around(struct net_wire *w)
{
    enum { BELL, STREAM, COUNT };
    struct pollfd p[COUNT] = {[BELL] = {w->bell, POLLIN, 0}, [STREAM] = {w->fd, 0, 0}};
    uint64_t rung;
    bool tell = false;

    pthread_mutex_lock(&w->lock);
    if (wire_room(&w->in) >= READ_BYTES)
        p[STREAM].events |= POLLIN;
    if (w->out.len)
        p[STREAM].events |= POLLOUT;
    if (w->gone || !p[STREAM].events)
        p[STREAM].fd = -1; /* a peer that has ended would be told again and again */
    const bool stops = w->stops;
    pthread_mutex_unlock(&w->lock);
    if (stops)
        return false;
    if (poll(p, COUNT, -1) < 0 && errno != EINTR)
        return false;
    if (p[BELL].revents && read(w->bell, &rung, sizeof rung) < 0)
        return true; /* heard before */
    ssize_t n = -1;
    const bool came = (p[STREAM].events & POLLIN) && (p[STREAM].revents & ~POLLOUT);
    if (came)
        n = read(w->fd, w->read, sizeof w->read);
    const bool ends = came && (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR));
    pthread_mutex_lock(&w->lock);
    if (n > 0)
        tell = take_in(w, (size_t)n);
    if (ends || (!came && (p[STREAM].revents & (POLLERR | POLLHUP))))
        w->gone = true;
    write_out(w);
    if (w->out_full && takes(w)) {
        w->out_full = false;
        tell = true;
    }
    pthread_mutex_unlock(&w->lock);
    if (tell)
        w->notify(w->opaque);
    return true;
}

static void *wire_thread(void *arg)
{
    struct net_wire *w = arg;

    while (look_around(w))
        continue;
    return NULL;
}

static void ring(struct net_wire *w)
{
    const uint64_t one = 1;

    if (write(w->bell, &one, sizeof one) < 0)
        return; /* it has been rung so often that it is heard */
}

struct net_wire *net_wire_open(int fd)
{
    struct net_wire *w = calloc(1, sizeof *w);

    if (w)
        w->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!w || w->bell < 0) {
        free(w);
        close(fd);
        return NULL;
    }
    w->fd = fd;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    pthread_mutex_init(&w->lock, NULL);
    return w;
}

void net_wire_close(struct net_wire *w)
{
    if (!w)
        return;
    net_wire_ignore(w);
    close(w->fd);
    close(w->bell);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void net_wire_listen(struct net_wire *w, void (*notify)(void *opaque), void *opaque)
{
    assert(!w->has_thread);
    w->notify = notify;
    w->opaque = opaque;
    w->stops = false;
    w->has_thread = deaf_thread_create(&w->thread, wire_thread, w) == 0;
}

void net_wire_ignore(struct net_wire *w)
{
    if (!w->has_thread)
        return;
    pthread_mutex_lock(&w->lock);
    w->stops = true;
    pthread_mutex_unlock(&w->lock);
    ring(w);
    pthread_join(w->thread, NULL);
    w->has_thread = false;
}

bool net_wire_has_frame(struct net_wire *w)
{
    return atomic_load(&w->has_frame);
}

size_t net_wire_peek(struct net_wire *w, uint8_t frame[FRAME_MAX])
{
    if (!net_wire_has_frame(w))
        return 0;
    pthread_mutex_lock(&w->lock);
    size_t len;
    const uint8_t *first = wire_first(&w->in, &len);
    memcpy(frame, first, len);
    pthread_mutex_unlock(&w->lock);
    return len;
}

void net_wire_consume(struct net_wire *w)
{
    pthread_mutex_lock(&w->lock);
    assert(w->has_frame);
    const bool was_full = wire_room(&w->in) < READ_BYTES;
    wire_drop(&w->in);
    find_frame(w);
    const bool reads_again = was_full && wire_room(&w->in) >= READ_BYTES;
    pthread_mutex_unlock(&w->lock);
    if (reads_again)
        ring(w);
}

bool net_wire_takes(struct net_wire *w)
{
    pthread_mutex_lock(&w->lock);
    const bool can = takes(w);
    w->out_full |= !can;
    pthread_mutex_unlock(&w->lock);
    return can;
}

void net_wire_send(struct net_wire *w, const uint8_t *frame, size_t len)
{
    const uint32_t length = htonl((uint32_t)len);
    size_t sent = 0;

    assert(len >= 1 && len <= FRAME_MAX);
    pthread_mutex_lock(&w->lock);
    memcpy(w->sending, &length, sizeof length);
    memcpy(w->sending + sizeof length, frame, len);
    len += sizeof length;
    if (!w->out.len && !w->gone) {
        const ssize_t n = write(w->fd, w->sending, len);
        sent = n > 0 ? (size_t)n : 0;
    }
    const bool rest = sent < len && !w->gone && takes(w);
    if (rest)
        wire_add(&w->out, w->sending + sent, len - sent);
    pthread_mutex_unlock(&w->lock);
    if (rest)
        ring(w);
}
