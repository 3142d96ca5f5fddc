#include "vmm/machine/console.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/deaf_thread.h"
#include "base/stop_signals.h"

#define INPUT_BYTES  65536
#define OUTPUT_BYTES 4096
#define ESCAPE       0x01 /* Ctrl-A */
/* How often it is looked whether the user wants a stop, while nobody reads. */
#define READER_LOOK_MS 100

struct console {
    int in_fd, out_fd, show_fd; /* show_fd: of guest output */
    int stop_fd;                /* an eventfd that ends the thread */
    pthread_t thread;
    bool has_thread, is_terminal, escaped;
    struct termios saved;
    pthread_mutex_t lock;
    uint8_t input[INPUT_BYTES]; /* under the lock */
    size_t input_len;
    atomic_bool has_input, leave, ended; /* ended: no more is read */
    int room_fd;                         /* an eventfd: there is room in `input` again */
    bool help_wanted;                    /* the thread's own */
    void (*notify)(void *opaque);
    void *opaque;
    uint8_t output[OUTPUT_BYTES];
    size_t output_len;
};

static const char help[] = "\r\n[dittovm: Ctrl-A x leaves, Ctrl-A a sends Ctrl-A]\r\n";

/* A pipe whose reader does not read is waited for as long as nobody wants a stop. A pipe that has
 * room takes PIPE_BUF bytes without making us wait. False: nobody reads any more. */
static bool say(int fd, const char *text, size_t len)
{
    while (len) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        const bool stop = stop_signals_wanted();
        const int ready = poll(&p, 1, READER_LOOK_MS);
        if (ready == 0 && stop)
            return true;
        if (ready == 0 || (ready < 0 && errno == EINTR))
            continue;
        ssize_t n = write(fd, text, len < PIPE_BUF ? len : PIPE_BUF);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return false;
        text += n;
        len -= (size_t)n;
    }
    return true;
}

/* Returns whether the byte is for the guest. */
static bool filter_escape(struct console *c, uint8_t byte, uint8_t *out)
{
    *out = byte;
    if (!c->is_terminal)
        return true;
    if (!c->escaped) {
        c->escaped = byte == ESCAPE;
        return !c->escaped;
    }
    c->escaped = false;
    if (byte == 'x' || byte == 'X')
        atomic_store(&c->leave, true);
    else if (byte == 'a' || byte == ESCAPE)
        return *out = ESCAPE, true;
    else if (byte == 'h' || byte == '?')
        c->help_wanted = true;
    return false;
}

bool console_write(int fd, const uint8_t *data, size_t len)
{
    return say(fd, (const char *)data, len);
}

/* An eventfd takes and gives 8 bytes, always. */
static void ring(int fd)
{
    const uint64_t count = 1;

    if (write(fd, &count, sizeof count) < 0)
        abort();
}

static void unring(int fd)
{
    uint64_t count;

    if (read(fd, &count, sizeof count) < 0)
        abort();
}

/* Wait until the guest has taken some. False: the thread is to end. */
static bool wait_for_room(struct console *c)
{
    struct pollfd fds[2] = {{.fd = c->stop_fd, .events = POLLIN},
                            {.fd = c->room_fd, .events = POLLIN}};

    (void)poll(fds, 2, -1);
    if (fds[1].revents)
        unring(c->room_fd);
    return !fds[0].revents;
}

static void *read_input(void *arg)
{
    struct console *c = arg;
    uint8_t buffer[4096];

    for (;;) {
        struct pollfd fds[2] = {{.fd = c->stop_fd, .events = POLLIN},
                                {.fd = c->in_fd, .events = POLLIN}};
        pthread_mutex_lock(&c->lock);
        size_t room = INPUT_BYTES - c->input_len;
        pthread_mutex_unlock(&c->lock);
        if (room < sizeof buffer) { /* the guest is slow */
            if (!wait_for_room(c))
                return NULL;
            continue;
        }
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if (fds[0].revents)
            return NULL;
        if (!fds[1].revents)
            continue;
        ssize_t n = read(c->in_fd, buffer, sizeof buffer);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0) { /* end of input: the line stays open and silent */
            atomic_store(&c->ended, true);
            c->notify(c->opaque);
            return NULL;
        }
        pthread_mutex_lock(&c->lock);
        for (ssize_t i = 0; i < n; i++) {
            uint8_t byte;
            if (filter_escape(c, buffer[i], &byte))
                c->input[c->input_len++] = byte;
        }
        atomic_store(&c->has_input, c->input_len > 0);
        pthread_mutex_unlock(&c->lock);
        c->notify(c->opaque);
        if (c->help_wanted) /* a terminal may take its time, and others want the lock */
            say(c->out_fd, help, sizeof help - 1);
        c->help_wanted = false;
    }
}

struct console *console_open(int in_fd, int out_fd, bool raw, struct err *e)
{
    struct console *c = calloc(1, sizeof *c);

    if (!c) {
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    c->in_fd = in_fd;
    c->out_fd = c->show_fd = out_fd;
    c->stop_fd = eventfd(0, EFD_CLOEXEC);
    c->room_fd = eventfd(0, EFD_CLOEXEC);
    if (c->stop_fd < 0 || c->room_fd < 0) {
        err_set(e, STATUS_ERROR, "cannot make what the console needs: %s", strerror(errno));
        if (c->stop_fd >= 0)
            close(c->stop_fd);
        free(c);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    if (raw && in_fd >= 0 && isatty(in_fd) && tcgetattr(in_fd, &c->saved) == 0) {
        struct termios t = c->saved;
        cfmakeraw(&t);
        t.c_oflag |= OPOST; /* guest output is post-processed by the guest's own tty */
        c->is_terminal = tcsetattr(in_fd, TCSANOW, &t) == 0;
    }
    return c;
}

void console_on_input(struct console *c, void (*notify)(void *opaque), void *opaque)
{
    c->notify = notify;
    c->opaque = opaque;
    if (c->in_fd < 0 || c->has_thread)
        return;
    c->has_thread = deaf_thread_create(&c->thread, read_input, c) == 0;
}

void console_ignore_input(struct console *c)
{
    if (!c->has_thread)
        return;
    ring(c->stop_fd);
    pthread_join(c->thread, NULL);
    unring(c->stop_fd);
    c->has_thread = false;
}

void console_close(struct console *c)
{
    if (!c)
        return;
    console_ignore_input(c);
    console_flush(c);
    if (c->is_terminal)
        tcsetattr(c->in_fd, TCSADRAIN, &c->saved);
    close(c->stop_fd);
    close(c->room_fd);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void console_show_on(struct console *c, int fd)
{
    c->show_fd = fd;
}

void console_put(void *console, uint8_t byte)
{
    struct console *c = console;

    c->output[c->output_len++] = byte;
    if (byte == '\n' || c->output_len == sizeof c->output)
        console_flush(c);
}

void console_flush(struct console *c)
{
    say(c->show_fd, (const char *)c->output, c->output_len);
    c->output_len = 0;
}

bool console_has_output(const struct console *c)
{
    return c->output_len > 0;
}

bool console_has_input(struct console *c)
{
    return atomic_load(&c->has_input);
}

size_t console_peek(struct console *c, uint8_t *data, size_t len)
{
    pthread_mutex_lock(&c->lock);
    size_t n = c->input_len < len ? c->input_len : len;
    memcpy(data, c->input, n);
    pthread_mutex_unlock(&c->lock);
    return n;
}

void console_consume(struct console *c, size_t len)
{
    pthread_mutex_lock(&c->lock);
    c->input_len -= len;
    memmove(c->input, c->input + len, c->input_len);
    atomic_store(&c->has_input, c->input_len > 0);
    pthread_mutex_unlock(&c->lock);
    ring(c->room_fd);
}

bool console_input_ended(struct console *c)
{
    return atomic_load(&c->ended) && !console_has_input(c);
}

bool console_wants_to_leave(struct console *c)
{
    return atomic_load(&c->leave);
}
