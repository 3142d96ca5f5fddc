#include "host/emulated_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "host/emulated_process.h"

/*
 * Liveness is counted in ticks of our own waiting, not in clock time: a laptop that was asleep or a
 * stopped process group must not look like a dead host.
 */
#define SILENT_TICKS 12
/* A host that starts computes for some 5 s. One that was kept waiting for a CPU for this part of
 * its time is not given up before so many times that time. */
#define STARVED_PART 3u
#define BUSY_TIMES   4u

/* A pipe that poll() calls writable takes this much without blocking (PIPE_BUF). */
#define WRITE_CHUNK 4096

/* One direction of one stream; `from` is -1 at its end. With `drop` set its bytes go nowhere. */
struct stream {
    int from, to;
    size_t start, end, chunk;
    uint64_t bytes_read;
    bool drop;
    int error;
    uint8_t buffer[65536];
};

struct relay {
    int control, signals;
    pid_t host;
    const struct emulated_request *r;
    struct bytes orders; /* for the control port, sent up to orders_sent */
    size_t orders_sent;
    char line[512];
    size_t line_length;
    unsigned silent_ticks, tick_ms, start_seconds;
    bool saved, ready, exited, ended, raw;
    enum relay_end end;
    int status, command_status;
    uint64_t out_bytes, err_bytes; /* as the X line tells them */
    struct termios cooked;
    struct stream in, out, err;
    struct err *e;
};

void emulated_window_size(uint16_t *rows, uint16_t *columns)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        size.ws_row = size.ws_col = 0;
    *rows = size.ws_row;
    *columns = size.ws_col;
}

static bool empty(const struct stream *s)
{
    return s->start == s->end;
}

static void order(struct relay *y, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void order(struct relay *y, const char *format, ...)
{
    char text[64];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    bytes_put(&y->orders, text, (size_t)n);
}

static void finish(struct relay *y, enum relay_end end, int status)
{
    if (!y->ended) {
        y->ended = true;
        y->end = end;
        y->status = status;
    }
}

static void make_raw(struct relay *y)
{
    if (!(y->r->flags & KHOST_TTY_STDIO) || tcgetattr(STDIN_FILENO, &y->cooked) != 0)
        return;
    struct termios raw = y->cooked;
    cfmakeraw(&raw);
    y->raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

static void start_command(struct relay *y, unsigned version)
{
    /* These may have changed while the host started. */
    struct emulated_request r = *y->r;
    clock_gettime(CLOCK_REALTIME, &r.now);
    emulated_window_size(&r.rows, &r.columns);

    if (version != KHOST_PROTOCOL_VERSION) {
        err_set(y->e, STATUS_ERROR,
                "khost-initrd.cpio is of another version of dittovm; run 'make khost'");
        finish(y, RELAY_FAILED, 0);
    } else if (emulated_encode_request(&r, &y->orders, y->e) != 0) {
        finish(y, RELAY_FAILED, 0);
    } else {
        y->ready = true;
        y->in.from = STDIN_FILENO;
        make_raw(y);
    }
}

static void obey(struct relay *y, const char *line)
{
    unsigned version, status;
    unsigned long long out_bytes, err_bytes;
    if (!y->ready && sscanf(line, "R %u", &version) == 1) {
        start_command(y, version);
    } else if (y->ready && sscanf(line, "X %u %llu %llu", &status, &out_bytes, &err_bytes) == 3) {
        y->exited = true;
        y->command_status = (int)(status & 255);
        y->out_bytes = out_bytes;
        y->err_bytes = err_bytes;
    } else if (line[0] == 'F') {
        err_set(y->e, STATUS_ERROR, "the emulated KVM host cannot run the command: %s",
                line[1] ? line + 2 : "no reason given");
        finish(y, RELAY_FAILED, 0);
    } else if (strcmp(line, "P") != 0) {
        err_set(y->e, STATUS_ERROR,
                "the emulated KVM host's agent is not understood; run 'make khost'");
        finish(y, RELAY_FAILED, 0);
    }
}

static void read_control(struct relay *y)
{
    ssize_t n = read(y->control, y->line + y->line_length, sizeof y->line - y->line_length);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 && y->exited) { /* its streams may hold more */
        y->control = -1;
        return;
    }
    if (n <= 0) {
        err_set(y->e, STATUS_ERROR, "the emulated KVM host ended unexpectedly");
        finish(y, y->saved && !y->ready ? RELAY_NOT_SAVED : RELAY_SILENCE, 0);
        return;
    }
    y->line_length += (size_t)n;
    y->silent_ticks = 0;
    char *newline;
    while ((newline = memchr(y->line, '\n', y->line_length))) {
        *newline = '\0';
        obey(y, y->line);
        y->line_length -= (size_t)(newline + 1 - y->line);
        memmove(y->line, newline + 1, y->line_length);
    }
    if (y->line_length == sizeof y->line)
        obey(y, "");
}

static void send_orders(struct relay *y)
{
    ssize_t n = send(y->control, y->orders.data + y->orders_sent, y->orders.len - y->orders_sent,
                     MSG_NOSIGNAL);
    /* An error is the host's death, which read_control() tells. */
    if (n > 0)
        y->orders_sent += (size_t)n;
    if (n <= 0 && errno != EAGAIN && errno != EINTR)
        y->orders_sent = y->orders.len;
    if (y->orders_sent == y->orders.len) {
        bytes_clear(&y->orders);
        y->orders_sent = 0;
    }
}

static void read_signal(struct relay *y)
{
    struct signalfd_siginfo info;
    uint16_t rows, columns;
    if (read(y->signals, &info, sizeof info) != sizeof info)
        return;
    if (info.ssi_signo == SIGWINCH) {
        emulated_window_size(&rows, &columns);
        if (y->ready && (y->r->flags & KHOST_TTY_STDIO))
            order(y, "W %u %u\n", rows, columns);
    } else if (y->exited) { /* its command is gone: who does not read keeps us no longer */
        finish(y, RELAY_SIGNAL, 128 + (int)info.ssi_signo);
    } else if (y->ready) {
        order(y, "S %u\n", info.ssi_signo);
    } else {
        finish(y, RELAY_SIGNAL, 128 + (int)info.ssi_signo);
    }
}

static void fill(struct stream *s)
{
    ssize_t n = read(s->from, s->buffer, sizeof s->buffer);
    if (n > 0) {
        s->bytes_read += (uint64_t)n;
        s->start = 0;
        s->end = s->drop ? 0 : (size_t)n;
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        s->from = -1;
    }
}

static void drain(struct stream *s)
{
    size_t length = s->end - s->start;
    ssize_t n = write(s->to, s->buffer + s->start, length < s->chunk ? length : s->chunk);
    if (n > 0) {
        s->start += (size_t)n;
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        s->drop = true;
        s->error = errno;
        s->start = s->end;
    }
}

/* The command shall learn that nobody reads its output, as it would from its own pipe. */
static void drain_output(struct relay *y, struct stream *s, unsigned number)
{
    bool was_dropped = s->drop;
    drain(s);
    if (s->drop && !was_dropped)
        order(y, "C %u\n", number);
}

static bool has_not_started(const struct relay *y)
{
    const unsigned waited = y->silent_ticks * y->tick_ms / 1000;

    return !y->ready && waited >= y->start_seconds &&
           (waited >= BUSY_TIMES * y->start_seconds ||
            emulated_process_starved_ms(y->host) / 1000 < waited / STARVED_PART);
}

static void tick(struct relay *y)
{
    if (y->exited && !(empty(&y->out) && empty(&y->err))) /* that waits is our reader's affair */
        return;
    y->silent_ticks++;
    if (has_not_started(y)) {
        err_set(y->e, STATUS_ERROR, "the emulated KVM host did not start within %u s",
                y->silent_ticks * y->tick_ms / 1000);
        finish(y, RELAY_NOT_STARTED, 0);
    } else if (y->ready && y->silent_ticks >= SILENT_TICKS) {
        err_set(y->e, STATUS_ERROR, "the emulated KVM host stopped answering");
        finish(y, RELAY_SILENCE, 0);
    } else if (y->ready && !y->exited) { /* then the agent has nothing more to say */
        order(y, "P\n");
    }
}

/* Whether the whole stream has been handed on, as far as the agent has counted. */
static bool is_through(const struct stream *s, uint64_t bytes)
{
    return empty(s) && s->bytes_read >= bytes;
}

static bool is_cut_short(const struct stream *s, uint64_t bytes)
{
    return s->from < 0 && empty(s) && s->bytes_read < bytes;
}

/* The command has ended: whether its output has, too. */
static void look_at_output(struct relay *y)
{
    if (is_through(&y->out, y->out_bytes) && is_through(&y->err, y->err_bytes)) {
        finish(y, RELAY_EXITED, y->command_status);
    } else if (is_cut_short(&y->out, y->out_bytes) || is_cut_short(&y->err, y->err_bytes)) {
        err_set(y->e, STATUS_ERROR,
                "the emulated KVM host ended before all output of the command had come");
        finish(y, RELAY_FAILED, 0);
    }
}

static void step(struct relay *y)
{
    enum { CONTROL, SIGNALS, IN_FROM, IN_TO, OUT_FROM, OUT_TO, ERR_FROM, ERR_TO, COUNT };
    struct pollfd p[COUNT] = {
        [CONTROL] = {y->control, POLLIN | (y->orders.len ? POLLOUT : 0), 0},
        [SIGNALS] = {y->signals, POLLIN, 0},
        /* what is read here is lost if the host must be started again */
        [IN_FROM] = {y->ready && empty(&y->in) ? y->in.from : -1, POLLIN, 0},
        [IN_TO] = {empty(&y->in) ? -1 : y->in.to, POLLOUT, 0},
        [OUT_FROM] = {empty(&y->out) ? y->out.from : -1, POLLIN, 0},
        [OUT_TO] = {empty(&y->out) ? -1 : y->out.to, POLLOUT, 0},
        [ERR_FROM] = {empty(&y->err) ? y->err.from : -1, POLLIN, 0},
        [ERR_TO] = {empty(&y->err) ? -1 : y->err.to, POLLOUT, 0},
    };
    if (poll(p, COUNT, (int)y->tick_ms) == 0)
        tick(y);
    if (p[IN_FROM].revents) {
        fill(&y->in);
        if (y->in.from < 0)
            order(y, "E %llu\n", (unsigned long long)y->in.bytes_read);
    }
    if (p[IN_TO].revents)
        drain(&y->in);
    if (p[OUT_FROM].revents || p[ERR_FROM].revents)
        y->silent_ticks = 0;
    if (p[OUT_FROM].revents)
        fill(&y->out);
    if (p[OUT_TO].revents)
        drain_output(y, &y->out, 1);
    if (p[ERR_FROM].revents)
        fill(&y->err);
    if (p[ERR_TO].revents)
        drain_output(y, &y->err, 2);
    if (p[SIGNALS].revents)
        read_signal(y);
    if (p[CONTROL].revents & (POLLIN | POLLHUP | POLLERR))
        read_control(y);
    if (p[CONTROL].revents & POLLOUT)
        send_orders(y);

    if (y->exited)
        look_at_output(y);
}

/* A full disk is our failure; that a reader went away is the command's own affair. */
static void judge_output(struct relay *y)
{
    const struct stream *s = y->out.error && y->out.error != EPIPE ? &y->out : &y->err;
    if (y->end == RELAY_EXITED && s->error && s->error != EPIPE) {
        err_set(y->e, STATUS_ERROR, "cannot write to standard %s: %s",
                s == &y->out ? "output" : "error", strerror(s->error));
        y->end = RELAY_FAILED;
    }
}

static void open_input(struct stream *s, int to)
{
    s->from = -1;
    s->to = to;
    s->chunk = sizeof s->buffer;
}

/*
 * A write to a terminal that is stopped (Ctrl-S, a slow line) would block us, with the signals we
 * pass on: open it once more, so that O_NONBLOCK is not set for everyone who shares our descriptor.
 */
static void open_output(struct stream *s, int from, int to)
{
    char path[32];
    struct stat st;
    s->from = from;
    s->to = to;
    s->chunk = WRITE_CHUNK;
    if (isatty(to)) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", to);
        int own = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (own >= 0)
            s->to = own;
    } else if (fstat(to, &st) == 0 && S_ISREG(st.st_mode)) {
        s->chunk = sizeof s->buffer;
    }
}

static void close_output(const struct stream *s, int shared)
{
    if (s->to != shared)
        close(s->to);
}

enum relay_end emulated_relay(const int ports[4], pid_t host, int signals,
                              const struct emulated_request *r, bool saved, unsigned start_seconds,
                              unsigned silent_seconds, int *status, struct err *e)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
    struct relay *y = calloc(1, sizeof *y);
    if (!y) {
        err_set(e, STATUS_ERROR, "out of memory");
        return RELAY_FAILED;
    }
    for (int i = 0; i < 4; i++)
        fcntl(ports[i], F_SETFL, fcntl(ports[i], F_GETFL) | O_NONBLOCK);
    y->control = ports[0];
    y->host = host;
    y->signals = signals;
    y->start_seconds = start_seconds;
    y->tick_ms = silent_seconds * 1000 / SILENT_TICKS;
    y->saved = saved;
    if (saved)
        bytes_put_u32(&y->orders, 0);
    y->r = r;
    y->e = e;
    open_input(&y->in, ports[1]);
    open_output(&y->out, ports[2], STDOUT_FILENO);
    open_output(&y->err, ports[3], STDERR_FILENO);

    sigaction(SIGPIPE, &ignore, &old);
    while (!y->ended)
        step(y);
    if (y->raw)
        tcsetattr(STDIN_FILENO, TCSANOW, &y->cooked);
    sigaction(SIGPIPE, &old, NULL);

    close_output(&y->out, STDOUT_FILENO);
    close_output(&y->err, STDERR_FILENO);
    judge_output(y);
    enum relay_end end = y->end;
    *status = y->status;
    bytes_free(&y->orders);
    free(y);
    return end;
}
