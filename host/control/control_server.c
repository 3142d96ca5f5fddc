#include "host/control/control_server.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/control_request.h"
#include "base/deaf_thread.h"
#include "base/now.h"
#include "host/control/control_socket.h"

#define CLIENTS 16u
/* So long a line may take, and a client may say nothing. */
#define LINE_NS 5000000000ull
#define IDLE_NS 60000000000ull
/* Where this process has no file descriptor left, nobody is let in for so long. */
#define FULL_NS 1000000000ull

struct client {
    int fd;            /* -1: free */
    uint64_t id;       /* of its request that the machine has; 0: none */
    bool stays;        /* it waits for the end of the machine, and is not hung up on before */
    uint64_t until_ns; /* then it is hung up on */
    size_t len;
    char in[CONTROL_LINE_MAX + 1];
};

struct control_server {
    struct control_socket socket;
    int machine, bell; /* machine: our end of the stream; bell: an eventfd that ends the thread */
    pthread_t thread;
    uint64_t last_id;
    uint64_t shut_until_ns; /* nobody is let in before */
    struct client clients[CLIENTS];
    struct bytes out; /* for the machine */
    size_t answer_len;
    char answer[CONTROL_LINE_MAX + 1]; /* of the machine, what there is of it */
};

static void hang_up(struct client *c)
{
    close(c->fd);
    *c = (struct client){.fd = -1};
}

/* An answer is short: who has no room for it does not read. Takes the line over. */
static bool say(int fd, char *line)
{
    const size_t len = line ? strlen(line) : 0;
    const bool said = line && send(fd, line, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len;

    free(line);
    return said;
}

static void answer(struct client *c, char *line)
{
    c->until_ns = host_now_ns() + IDLE_NS;
    if (!say(c->fd, line))
        hang_up(c);
}

/* ---- clients ---- */

static void hand_on(struct control_server *s, struct client *c, struct control_request *r)
{
    r->id = ++s->last_id;
    char *line = control_request_line(r);

    if (line)
        bytes_put(&s->out, line, strlen(line));
    free(line);
    c->id = r->id;
    c->stays |= r->verb == CONTROL_STOP;
}

/* The lines it has sent so far, up to one that the machine has to answer. */
static void take_lines(struct control_server *s, struct client *c)
{
    struct control_request request;
    char *end;

    while (c->fd >= 0 && !c->id && (end = memchr(c->in, '\n', c->len))) {
        const size_t len = (size_t)(end - c->in);
        const char *wrong = control_request_parse(&request, c->in, len, false);
        c->len -= len + 1;
        memmove(c->in, end + 1, c->len);
        if (wrong)
            answer(c, control_answer_error(0, wrong));
        else
            hand_on(s, c, &request);
    }
    if (c->fd >= 0 && !c->id && c->len == sizeof c->in) {
        say(c->fd, control_answer_error(0, "the line is too long"));
        hang_up(c);
    }
}

static void hear(struct control_server *s, struct client *c)
{
    const bool begins = !c->len;
    const ssize_t n = recv(c->fd, c->in + c->len, sizeof c->in - c->len, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        hang_up(c);
        return;
    }
    c->len += (size_t)n;
    if (begins)
        c->until_ns = host_now_ns() + LINE_NS;
    take_lines(s, c);
}

static void let_in(struct control_server *s)
{
    const int fd = accept4(s->socket.fd, NULL, NULL, SOCK_CLOEXEC);
    struct client *c = s->clients;

    if (fd < 0) {
        s->shut_until_ns = host_now_ns() + (errno == EMFILE || errno == ENFILE ? FULL_NS : 0);
        return;
    }
    while (c < s->clients + CLIENTS && c->fd >= 0)
        c++;
    const char *why = !control_peer_is_own(fd)    ? "this machine is another user's"
                      : c == s->clients + CLIENTS ? "there are too many clients"
                                                  : NULL;
    if (why) {
        say(fd, control_answer_error(0, why));
        close(fd);
        return;
    }
    *c = (struct client){.fd = fd, .until_ns = host_now_ns() + IDLE_NS};
}

/* ---- the machine ---- */

/* One line of the machine's, for whoever asked; who is gone asked in vain. */
static void pass_answer(struct control_server *s, const char *line, size_t len)
{
    json_error_t error;
    json_t *j = json_loadb(line, len, 0, &error);
    const uint64_t id = (uint64_t)json_integer_value(json_object_get(j, "id"));

    for (struct client *c = s->clients; id && c < s->clients + CLIENTS; c++) {
        if (c->fd < 0 || c->id != id)
            continue;
        json_object_del(j, "id");
        c->id = 0;
        answer(c, control_line(json_incref(j)));
        take_lines(s, c);
        break;
    }
    json_decref(j);
}

/* False: it is gone. */
static bool hear_machine(struct control_server *s)
{
    const ssize_t n =
        recv(s->machine, s->answer + s->answer_len, sizeof s->answer - s->answer_len, MSG_DONTWAIT);
    char *end;

    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    s->answer_len += (size_t)n;
    while ((end = memchr(s->answer, '\n', s->answer_len))) {
        const size_t len = (size_t)(end - s->answer);
        pass_answer(s, s->answer, len);
        s->answer_len -= len + 1;
        memmove(s->answer, end + 1, s->answer_len);
    }
    return s->answer_len < sizeof s->answer;
}

static bool tell_machine(struct control_server *s)
{
    const ssize_t n = send(s->machine, s->out.data, s->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    s->out.len -= (size_t)n;
    memmove(s->out.data, s->out.data + n, s->out.len);
    return true;
}

/* ---- the thread ---- */

/* Who has been silent for too long, and when the next one will have been; ms for poll(). */
static int hang_up_on_silent(struct control_server *s)
{
    const uint64_t now = host_now_ns();
    uint64_t next = s->shut_until_ns > now ? s->shut_until_ns : now + IDLE_NS;

    for (struct client *c = s->clients; c < s->clients + CLIENTS; c++) {
        if (c->fd < 0 || c->id || c->stays)
            continue;
        if (c->until_ns <= now)
            hang_up(c);
        else if (c->until_ns < next)
            next = c->until_ns;
    }
    return (int)((next - now) / 1000000) + 1;
}

/* False: the thread ends. */
static bool look_around(struct control_server *s)
{
    enum { BELL, DOOR, MACHINE, FIRST };
    struct pollfd p[FIRST + CLIENTS] = {
        [BELL] = {s->bell, POLLIN, 0},
        [DOOR] = {s->shut_until_ns > host_now_ns() ? -1 : s->socket.fd, POLLIN, 0},
        [MACHINE] = {s->machine, (short)(POLLIN | (s->out.len ? POLLOUT : 0)), 0},
    };
    const int timeout = hang_up_on_silent(s);

    /* One that waits for an answer is not heard meanwhile, but may go (POLLHUP). */
    for (unsigned i = 0; i < CLIENTS; i++)
        p[FIRST + i] = (struct pollfd){s->clients[i].fd, s->clients[i].id ? 0 : POLLIN, 0};
    if (poll(p, FIRST + CLIENTS, timeout) < 0 && errno != EINTR)
        return false;
    if (p[BELL].revents)
        return false;
    for (unsigned i = 0; i < CLIENTS; i++)
        if (p[FIRST + i].fd >= 0 && p[FIRST + i].revents) {
            if (s->clients[i].id)
                hang_up(&s->clients[i]);
            else
                hear(s, &s->clients[i]);
        }
    if ((p[MACHINE].revents & POLLOUT) && !tell_machine(s))
        return false;
    if ((p[MACHINE].revents & ~POLLOUT) && !hear_machine(s))
        return false;
    if (p[DOOR].revents)
        let_in(s);
    return true;
}

static void *serve(void *arg)
{
    struct control_server *s = arg;

    while (look_around(s))
        continue;
    /* Who still waits learns it from the end of the connection. */
    for (struct client *c = s->clients; c < s->clients + CLIENTS; c++)
        if (c->fd >= 0 && !c->stays)
            hang_up(c);
    return NULL;
}

static bool start_thread(struct control_server *s)
{
    const bool started = deaf_thread_create(&s->thread, serve, s) == 0;
    return started;
}

struct control_server *control_server_start(const char *recording, int *machine, struct err *e)
{
    struct control_server *s = calloc(1, sizeof *s);
    int pair[2] = {-1, -1};

    if (!s) {
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    for (unsigned i = 0; i < CLIENTS; i++)
        s->clients[i].fd = -1;
    if (control_socket_listen(&s->socket, recording, e) < 0) {
        free(s);
        return NULL;
    }
    s->bell = eventfd(0, EFD_CLOEXEC);
    if (s->bell >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
        s->machine = pair[0];
        if (start_thread(s)) {
            *machine = pair[1];
            return s;
        }
        close(pair[0]);
        close(pair[1]);
    }
    err_set(e, STATUS_ERROR, "%s", strerror(errno));
    if (s->bell >= 0)
        close(s->bell);
    control_socket_close(&s->socket);
    free(s);
    return NULL;
}

void control_server_stop(struct control_server *s)
{
    const uint64_t one = 1;

    if (!s)
        return;
    if (write(s->bell, &one, sizeof one) == sizeof one)
        pthread_join(s->thread, NULL);
    for (unsigned i = 0; i < CLIENTS; i++)
        if (s->clients[i].fd >= 0)
            hang_up(&s->clients[i]);
    control_socket_close(&s->socket);
    close(s->machine);
    close(s->bell);
    bytes_free(&s->out);
    free(s);
}
