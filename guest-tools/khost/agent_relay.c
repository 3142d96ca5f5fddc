/* Runs the command and moves its bytes between its pipes (or its pty) and the ports. */
#include "guest-tools/khost/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* How long a pty that something else still holds open is waited for after the command's end. */
#define PTY_DRAIN_MS 200

/*
 * One direction of one stream. `from` is -1 at its end; `to` is -1 when nobody takes the bytes any
 * more: they are then read and dropped.
 */
struct channel {
    int from, to;
    size_t start, end;
    uint64_t bytes_read, bytes_sent;
    uint8_t buffer[65536];
};

static struct channel in, out, errors;

struct session {
    const struct request *r;
    int control, sigchld;
    pid_t pid;
    bool dead;
    int status;
    int64_t died_ms;
    bool stdin_ends;
    uint64_t stdin_bytes;
    char line[128];
    size_t line_length;
};

/* What the command gets as 0, 1, 2, and our ends of them. */
struct stdio {
    int child[3];
    int parent[3];
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void set_nonblocking(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* The command may open /dev/stdin or /dev/tty again: they have to belong to its user. */
static void make_pipe(const struct request *r, int *reader, int *writer)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0 || fchown(fds[0], r->uid, r->gid) != 0)
        agent_fail("cannot make a pipe: %s", strerror(errno));
    *reader = fds[0];
    *writer = fds[1];
}

static void make_pty(const struct request *r, int *master, int *slave)
{
    struct winsize size = {.ws_row = r->rows, .ws_col = r->columns};
    int unlock = 0;
    *master = open(NEW_ROOT "/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    *slave = -1;
    if (*master >= 0 && ioctl(*master, TIOCSPTLCK, &unlock) == 0)
        *slave = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*slave < 0 || ioctl(*master, TIOCSWINSZ, &size) != 0 ||
        fchown(*slave, r->uid, (gid_t)-1) != 0)
        agent_fail("cannot make a terminal: %s", strerror(errno));
}

static void make_stdio(const struct request *r, struct stdio *io)
{
    if (r->flags & KHOST_TTY_STDIO) {
        make_pty(r, &io->parent[0], &io->child[0]);
        io->child[1] = io->child[0];
        /* One more descriptor, so that stdin and stdout can be closed independently. */
        io->parent[1] = fcntl(io->parent[0], F_DUPFD_CLOEXEC, 3);
    } else {
        make_pipe(r, &io->child[0], &io->parent[0]);
        make_pipe(r, &io->parent[1], &io->child[1]);
    }
    if (r->flags & KHOST_TTY_STDERR) {
        io->child[2] = io->child[0];
        io->parent[2] = -1;
    } else {
        make_pipe(r, &io->parent[2], &io->child[2]);
    }
    for (int i = 0; i < 3; i++)
        if (io->parent[i] >= 0)
            set_nonblocking(io->parent[i]);
}

/* In the child: become the caller, in the caller's directory. Returns the step that failed. */
static const char *become_command(const struct request *r, const struct stdio *io)
{
    sigset_t none;
    sigemptyset(&none);
    setsid();
    if ((r->flags & KHOST_TTY_STDIO) && ioctl(io->child[0], TIOCSCTTY, 0) != 0)
        return "controlling terminal";
    for (int i = 0; i < 3; i++)
        if (dup2(io->child[i], i) < 0)
            return "dup2";
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(r->umask);
    if (chroot(NEW_ROOT) != 0)
        return "chroot";
    if (setgroups(r->group_count, r->groups) != 0 || setgid(r->gid) != 0 || setuid(r->uid) != 0)
        return "user";
    if (chdir(r->cwd) != 0)
        return r->cwd;
    execve(r->argv[0], r->argv, r->env);
    return r->argv[0];
}

static pid_t start_command(const struct request *r, const struct stdio *io)
{
    int report[2];
    char reason[4352];
    if (pipe2(report, O_CLOEXEC) != 0)
        agent_fail("cannot make a pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0)
        agent_fail("cannot fork: %s", strerror(errno));
    if (pid == 0) {
        const char *step = become_command(r, io);
        int n = snprintf(reason, sizeof reason, "%s: %s", step, strerror(errno));
        if (write(report[1], reason, (size_t)n) < 0)
            _exit(126);
        _exit(127);
    }
    close(report[1]);
    ssize_t n = read(report[0], reason, sizeof reason - 1);
    close(report[0]);
    if (n > 0) {
        reason[n] = '\0';
        agent_fail("%s", reason);
    }
    for (int i = 0; i < 3; i++)
        if (i == 0 || io->child[i] != io->child[0])
            close(io->child[i]);
    return pid;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Ports are never closed: their other end would see a hang-up. */
static void fill(struct channel *c, bool from_port, bool give_up_when_empty)
{
    ssize_t n = read(c->from, c->buffer, sizeof c->buffer);
    if (n > 0) {
        c->bytes_read += (uint64_t)n;
        c->start = 0;
        c->end = (size_t)n;
    } else if (!from_port && (n == 0 || (errno != EAGAIN && errno != EINTR) ||
                              (errno == EAGAIN && give_up_when_empty))) {
        close_fd(&c->from);
    }
}

static void drain(struct channel *c)
{
    ssize_t n = c->to < 0 ? (ssize_t)(c->end - c->start)
                          : write(c->to, c->buffer + c->start, c->end - c->start);
    if (n > 0) {
        c->start += (size_t)n;
        c->bytes_sent += (uint64_t)n;
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        close_fd(&c->to);
    }
}

static bool empty(const struct channel *c)
{
    return c->start == c->end;
}

static void end_stdin(struct session *s)
{
    if (!s->stdin_ends || in.bytes_read < s->stdin_bytes || !empty(&in) || in.to < 0)
        return;
    /* A terminal has no end of input but its hanging up. */
    if (s->r->flags & KHOST_TTY_STDIO)
        kill(-s->pid, SIGHUP);
    close_fd(&in.to);
}

static void discard(struct channel *c)
{
    close_fd(&c->from);
    c->start = c->end = 0;
}

static void discard_output(void)
{
    discard(&out);
    discard(&errors);
}

static void obey(struct session *s, const char *line)
{
    unsigned a = 0, b = 0;
    unsigned long long count = 0;
    if (strcmp(line, "P") == 0) {
        agent_say("P");
    } else if (sscanf(line, "S %u", &a) == 1) {
        if (!s->dead)
            kill(-s->pid, (int)a);
        else /* who does not read its output keeps nobody */
            discard_output();
    } else if (sscanf(line, "W %u %u", &a, &b) == 2) {
        struct winsize size = {.ws_row = (unsigned short)a, .ws_col = (unsigned short)b};
        if (s->r->flags & KHOST_TTY_STDIO)
            ioctl(out.from, TIOCSWINSZ, &size);
    } else if (sscanf(line, "E %llu", &count) == 1) {
        s->stdin_ends = true;
        s->stdin_bytes = count;
    } else if (sscanf(line, "C %u", &a) == 1) {
        struct channel *c = a == 2 ? &errors : &out;
        discard(c);
        /* With its last descriptor the kernel hangs the terminal up, as the outer one has. */
        if (c == &out && (s->r->flags & KHOST_TTY_STDIO))
            close_fd(&in.to);
    }
}

static void read_orders(struct session *s)
{
    ssize_t n = read(s->control, s->line + s->line_length, sizeof s->line - s->line_length);
    if (n <= 0)
        return;
    s->line_length += (size_t)n;
    char *newline;
    while ((newline = memchr(s->line, '\n', s->line_length))) {
        *newline = '\0';
        obey(s, s->line);
        s->line_length -= (size_t)(newline + 1 - s->line);
        memmove(s->line, newline + 1, s->line_length);
    }
    if (s->line_length == sizeof s->line)
        agent_fail("malformed order");
}

static void reap(struct session *s)
{
    struct signalfd_siginfo info;
    while (read(s->sigchld, &info, sizeof info) > 0)
        continue;
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != s->pid)
            continue;
        s->dead = true;
        s->died_ms = now_ms();
        s->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}

/*
 * After the command's death its pipes hold everything it wrote, so an empty one is finished even if
 * a process it left behind has it open. A pty reports its end (EIO) after the last byte.
 */
static bool may_give_up(const struct session *s)
{
    if (!s->dead)
        return false;
    return !(s->r->flags & KHOST_TTY_STDIO) || now_ms() - s->died_ms >= PTY_DRAIN_MS;
}

/* Wait for whatever can go on, and do it. */
static void step(struct session *s)
{
    struct channel *outputs[2] = {&out, &errors};
    struct pollfd p[8] = {
        {.fd = s->control, .events = POLLIN},
        {.fd = s->sigchld, .events = POLLIN},
        {.fd = empty(&in) ? in.from : -1, .events = POLLIN},
        {.fd = empty(&in) ? -1 : in.to, .events = POLLOUT},
    };
    for (int i = 0; i < 2; i++) {
        p[4 + i].fd = empty(outputs[i]) ? outputs[i]->from : -1;
        p[4 + i].events = POLLIN;
        p[6 + i].fd = empty(outputs[i]) ? -1 : outputs[i]->to;
        p[6 + i].events = POLLOUT;
    }
    bool drop = !empty(&in) && in.to < 0;
    poll(p, 8, drop ? 0 : s->dead ? 10 : -1);

    if (p[0].revents & POLLIN)
        read_orders(s);
    else if (p[0].revents & POLLHUP)
        agent_fail("the control port closed");
    if (p[1].revents)
        reap(s);
    if (p[2].revents & POLLIN)
        fill(&in, true, false);
    if (p[3].revents || drop)
        drain(&in);
    end_stdin(s);
    for (int i = 0; i < 2; i++) {
        struct channel *c = outputs[i];
        /* Not only when poll says so: after the death an empty pipe has to be noticed as empty. */
        if (c->from >= 0 && empty(c) && (p[4 + i].revents || s->dead))
            fill(c, false, may_give_up(s));
        if (!empty(c))
            drain(c);
    }
}

struct outcome relay_command(const struct request *r, const struct ports *ports)
{
    struct stdio io;
    sigset_t chld;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    struct session s = {.r = r, .control = ports->fd[KHOST_PORT_CONTROL]};
    s.sigchld = signalfd(-1, &chld, SFD_NONBLOCK | SFD_CLOEXEC);

    make_stdio(r, &io);
    in.from = ports->fd[KHOST_PORT_STDIN];
    in.to = io.parent[0];
    out.from = io.parent[1];
    out.to = ports->fd[KHOST_PORT_STDOUT];
    errors.from = io.parent[2];
    errors.to = ports->fd[KHOST_PORT_STDERR];
    s.pid = start_command(r, &io);

    while (!s.dead || out.from >= 0 || errors.from >= 0 || !empty(&out) || !empty(&errors))
        step(&s);
    return (struct outcome){s.status, out.bytes_sent, errors.bytes_sent};
}
