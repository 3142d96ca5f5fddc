#include "vmm/machine/control.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/control_request.h"
#include "base/deaf_thread.h"
#include "base/stop_signals.h"
#include "recording/snapshot.h"
#include "vmm/machine/machine.h"

/* More at once than the other side has clients. */
#define ORDERS_MAX 32u

struct control {
    int fd, bell; /* bell: an eventfd that has the thread look around */
    pthread_t thread;
    bool has_thread;
    struct machine *m;
    void (*notify)(void *opaque);
    void *opaque;
    uint64_t began_ns;
    char *recording;
    /* The machine as it was at its last sync point. */
    _Atomic uint64_t syncs, forced, events, marks, snapshots, guest_ns;
    atomic_uint mark_count, snapshot_count; /* of orders */
    pthread_mutex_t lock; /* of all that follows; never held while anything waits */
    struct control_request orders[ORDERS_MAX];
    unsigned order_count;
    struct bytes out;
    bool stops;
    /* The thread's own. */
    size_t len;
    char in[CONTROL_LINE_MAX + 1];
};

static void ring(struct control *c)
{
    const uint64_t one = 1;

    if (write(c->bell, &one, sizeof one) < 0)
        return; /* it has been rung so often that it is heard */
}

/* With the lock. Takes the line over. */
static void put_answer(struct control *c, char *line)
{
    if (line)
        bytes_put(&c->out, line, strlen(line));
    free(line);
}

static void answer(struct control *c, char *line)
{
    pthread_mutex_lock(&c->lock);
    put_answer(c, line);
    pthread_mutex_unlock(&c->lock);
}

/* With the lock: it is answered. */
static void remove_order(struct control *c, unsigned i)
{
    atomic_fetch_sub(c->orders[i].verb == CONTROL_MARK ? &c->mark_count : &c->snapshot_count, 1);
    c->order_count--;
    memmove(&c->orders[i], &c->orders[i + 1], (c->order_count - i) * sizeof *c->orders);
}

/* ---- the thread ---- */

static json_t *stats(const struct control *c)
{
    struct stat st;
    const json_int_t bytes = stat(c->recording, &st) == 0 ? (json_int_t)st.st_size : 0;

    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "sync_points", (json_int_t)c->syncs, "forced",
        (json_int_t)c->forced, "events", (json_int_t)c->events, "marks", (json_int_t)c->marks,
        "snapshots", (json_int_t)c->snapshots, "bytes", bytes, "guest_seconds",
        (double)c->guest_ns / 1e9, "seconds", (double)(host_now_ns() - c->began_ns) / 1e9);
}

/* NULL: it can be done at some sync point. */
static const char *impossible(const struct control *c, const struct control_request *r)
{
    if (c->order_count == ORDERS_MAX)
        return "too much waits already";
    if (r->verb != CONTROL_SNAPSHOT)
        return NULL;
    if (r->text[0] && !snapshot_name_valid(r->text))
        return "a name has up to 63 letters, digits, '.', '_', '+' or '-'";
    return c->m->crew ? "CPUs that run at the same time (--smp crew) have no snapshots yet"
           : c->snapshots == SNAPSHOTS_MAX ? "the recording has as many snapshots as it may have"
                                           : NULL;
}

static void queue(struct control *c, const struct control_request *r)
{
    pthread_mutex_lock(&c->lock);
    const char *why = impossible(c, r);
    if (!why) {
        c->orders[c->order_count++] = *r;
        atomic_fetch_add(r->verb == CONTROL_MARK ? &c->mark_count : &c->snapshot_count, 1);
    } else {
        put_answer(c, control_answer_error(r->id, why));
    }
    pthread_mutex_unlock(&c->lock);
    if (!why)
        c->notify(c->opaque);
}

static void obey(struct control *c, const char *line, size_t len)
{
    struct control_request r;

    if (control_request_parse(&r, line, len, true))
        return; /* it is from our own other half */
    switch (r.verb) {
    case CONTROL_MARK:
    case CONTROL_SNAPSHOT:
        queue(c, &r);
        break;
    case CONTROL_STOP:
        answer(c, control_answer_ok(r.id, NULL));
        machine_want_stop(c->m);
        stop_signals_stand_in(); /* who writes output that nobody reads waits no more */
        c->notify(c->opaque);    /* no signal has come that would bring the vCPU out */
        break;
    case CONTROL_STATS:
        answer(c, control_answer_ok(r.id, stats(c)));
        break;
    }
}

/* False: the other side is gone. */
static bool read_requests(struct control *c)
{
    const ssize_t n = read(c->fd, c->in + c->len, sizeof c->in - c->len);
    char *end;

    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    c->len += (size_t)n;
    while ((end = memchr(c->in, '\n', c->len))) {
        const size_t len = (size_t)(end - c->in);
        obey(c, c->in, len);
        c->len -= len + 1;
        memmove(c->in, end + 1, c->len);
    }
    return c->len < sizeof c->in;
}

static void write_answers(struct control *c)
{
    pthread_mutex_lock(&c->lock);
    const ssize_t n = c->out.len ? write(c->fd, c->out.data, c->out.len) : 0;
    if (n > 0) {
        c->out.len -= (size_t)n;
        memmove(c->out.data, c->out.data + n, c->out.len);
    }
    pthread_mutex_unlock(&c->lock);
}

/* How long the thread's end waits for its answers to be taken. */
#define LAST_WORDS_MS 500

/* One round; false: the thread ends. */
static bool look_around(struct control *c)
{
    enum { BELL, STREAM, COUNT };
    struct pollfd p[COUNT] = {[BELL] = {c->bell, POLLIN, 0}, [STREAM] = {c->fd, POLLIN, 0}};
    uint64_t rung;

    pthread_mutex_lock(&c->lock);
    const bool stops = c->stops, waits = c->out.len > 0;
    pthread_mutex_unlock(&c->lock);
    if (stops && !waits)
        return false;
    if (waits)
        p[STREAM].events = stops ? POLLOUT : POLLIN | POLLOUT;
    const int ready = poll(p, COUNT, stops ? LAST_WORDS_MS : -1);
    if (ready < 0 && errno != EINTR)
        return false;
    if (ready == 0)
        return false;
    if (p[BELL].revents && read(c->bell, &rung, sizeof rung) < 0)
        return true; /* heard before */
    if (p[STREAM].revents & POLLOUT)
        write_answers(c);
    if (!stops && (p[STREAM].revents & (POLLIN | POLLHUP | POLLERR)))
        return read_requests(c);
    return !(p[STREAM].revents & (POLLHUP | POLLERR));
}

static void *control_thread(void *arg)
{
    struct control *c = arg;

    while (look_around(c))
        continue;
    return NULL;
}

/* ---- its life ---- */

struct control *control_open(int fd, const char *recording)
{
    struct control *c = fd < 0 ? NULL : calloc(1, sizeof *c);

    if (c) {
        c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        c->recording = strdup(recording);
    }
    if (!c || c->bell < 0 || !c->recording) {
        if (fd >= 0)
            close(fd);
        if (c)
            free(c->recording);
        free(c);
        return NULL;
    }
    c->fd = fd;
    c->began_ns = host_now_ns();
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

void control_close(struct control *c)
{
    if (!c)
        return;
    control_ignore(c);
    close(c->fd);
    close(c->bell);
    pthread_mutex_destroy(&c->lock);
    bytes_free(&c->out);
    free(c->recording);
    free(c);
}

void control_listen(struct control *c, struct machine *m, void (*notify)(void *opaque),
                    void *opaque)
{
    if (!c)
        return;
    assert(!c->has_thread);
    c->m = m;
    c->notify = notify;
    c->opaque = opaque;
    c->stops = false;
    c->has_thread = deaf_thread_create(&c->thread, control_thread, c) == 0;
}

void control_ignore(struct control *c)
{
    if (!c || !c->has_thread)
        return;
    pthread_mutex_lock(&c->lock);
    c->stops = true;
    while (c->order_count) {
        put_answer(c, control_answer_error(c->orders[0].id, "the machine has ended"));
        remove_order(c, 0);
    }
    pthread_mutex_unlock(&c->lock);
    ring(c);
    pthread_join(c->thread, NULL);
    c->has_thread = false;
}

/* ---- the machine's side ---- */

bool control_waits(struct control *c)
{
    return c && atomic_load(&c->mark_count);
}

void control_note(struct control *c)
{
    struct recorder_stats s;

    if (!c)
        return;
    recorder_stats(c->m->recorder, &s);
    atomic_store_explicit(&c->syncs, s.syncs, memory_order_relaxed);
    atomic_store_explicit(&c->forced, s.forced, memory_order_relaxed);
    atomic_store_explicit(&c->events, s.events, memory_order_relaxed);
    atomic_store_explicit(&c->marks, s.marks, memory_order_relaxed);
    atomic_store_explicit(&c->snapshots, s.snapshots, memory_order_relaxed);
    atomic_store_explicit(&c->guest_ns, c->m->pc.time.now_ns, memory_order_relaxed);
}

/* With the lock. */
static void make_mark(struct control *c, const struct control_request *r)
{
    if (!machine_mark(c->m, r->text, false)) {
        put_answer(c,
                   control_answer_error(r->id, "the recording has as many marks as it may have"));
        return;
    }
    put_answer(c, control_answer_ok(r->id, json_pack("{s:I}", "sync_point",
                                                     (json_int_t)recorder_syncs(c->m->recorder))));
}

void control_serve(struct control *c)
{
    control_note(c);
    if (!control_waits(c))
        return;
    pthread_mutex_lock(&c->lock);
    for (unsigned i = 0; i < c->order_count;) {
        if (c->orders[i].verb != CONTROL_MARK) {
            i++;
            continue;
        }
        make_mark(c, &c->orders[i]);
        remove_order(c, i);
    }
    pthread_mutex_unlock(&c->lock);
    ring(c);
}

bool control_wants_snapshot(struct control *c)
{
    return c && atomic_load(&c->snapshot_count);
}

static unsigned first_snapshot(const struct control *c)
{
    unsigned i = 0;

    while (c->orders[i].verb != CONTROL_SNAPSHOT)
        i++;
    assert(i < c->order_count);
    return i;
}

/* With the lock. NULL: it can be taken. */
static const char *refusal(const struct control *c, const char *name)
{
    return *name && !recorder_snapshot_name_is_free(c->m->recorder, name)
               ? "there is such a snapshot already, or it is a number, which dittovm gives"
               : NULL;
}

bool control_snapshot_name(struct control *c, char *name)
{
    pthread_mutex_lock(&c->lock);
    const unsigned i = first_snapshot(c);
    const char *why = refusal(c, c->orders[i].text);
    if (!why) {
        strcpy(name, c->orders[i].text); /* a valid one is short */
    } else {
        put_answer(c, control_answer_error(c->orders[i].id, why));
        remove_order(c, i);
    }
    pthread_mutex_unlock(&c->lock);
    if (why)
        ring(c);
    return !why;
}

void control_snapshot_taken(struct control *c, const char *name, uint64_t sync)
{
    pthread_mutex_lock(&c->lock);
    const unsigned i = first_snapshot(c);
    put_answer(c, control_answer_ok(c->orders[i].id, json_pack("{s:s, s:I}", "name", name,
                                                               "sync_point", (json_int_t)sync)));
    remove_order(c, i);
    pthread_mutex_unlock(&c->lock);
    ring(c);
}
