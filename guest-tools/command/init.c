/*
 * The init of a machine that runs one command (dittovm run --root): it finds the root disk, makes
 * it the root, runs the command there, and carries its streams and its status to the outside
 * (base/command_protocol.h). The machine ends with the command.
 */
#include <errno.h>
#include <fcntl.h>
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
#include <unistd.h>

#include "guest-tools/command/init.h"

#define BELL "/dev/ttyS0"
/* How often input is looked for where the console's line rings no bell. */
#define NO_BELL_MS 100
/* What a pipe holds, or a terminal. */
#define DRAIN_MAX ((64 + 12) * 1024)

struct request {
    bool terminal, user_net;
    struct winsize size;
    char *cwd, *term;
    char **argv;
};

/* ---- the command ---- */

static void read_request(struct request *r)
{
    size_t len = 0, count = 0;
    char *text = read_file(COMMAND_FILE, &len), *word[6];

    if (!text)
        fail(COMMAND_NO_START, "no " COMMAND_FILE);
    char *at = text, *const end = text + len;
    for (size_t i = 0; i < sizeof word / sizeof *word && at < end; i++, at += strlen(at) + 1)
        word[i] = at;
    r->terminal = atoi(word[0]);
    r->size = (struct winsize){.ws_row = (unsigned short)atoi(word[1]),
                               .ws_col = (unsigned short)atoi(word[2])};
    r->user_net = atoi(word[3]);
    r->cwd = word[4];
    r->term = word[5];
    r->argv = calloc(len + 1, sizeof *r->argv);
    for (; at < end; at += strlen(at) + 1)
        r->argv[count++] = at;
}

/* The command's streams, our ends: -1 where there is none (any more). */
struct streams {
    int in, out, err;
    int child[3];
};

static void make_streams(const struct request *r, struct streams *s)
{
    int in[2], out[2], err[2];

    if (r->terminal) {
        const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
            fail(COMMAND_NO_START, "no terminal");
        const int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (slave < 0)
            fail(COMMAND_NO_START, "no terminal");
        if (r->size.ws_row)
            ioctl(slave, TIOCSWINSZ, &r->size);
        *s = (struct streams){master, master, -1, {slave, slave, slave}};
    } else {
        if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
            fail(COMMAND_NO_START, "no pipes");
        *s = (struct streams){in[1], out[0], err[0], {in[0], out[1], err[1]}};
        fcntl(s->err, F_SETFL, O_NONBLOCK);
    }
    fcntl(s->in, F_SETFL, O_NONBLOCK);
    fcntl(s->out, F_SETFL, O_NONBLOCK);
}

static void run_command(const struct request *r, const struct streams *s, const sigset_t *mask)
{
    setsid();
    for (int i = 0; i < 3; i++)
        dup2(s->child[i], i);
    if (r->terminal)
        ioctl(0, TIOCSCTTY, 0);
    sigprocmask(SIG_SETMASK, mask, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (chdir(r->cwd) < 0 && chdir("/") < 0)
        _exit(126);
    clearenv();
    setenv("PATH", COMMAND_PATH, 1);
    setenv("HOME", "/root", 1);
    setenv("USER", "root", 1);
    setenv("LOGNAME", "root", 1);
    setenv("SHELL", "/bin/sh", 1);
    setenv("TERM", r->term, 1);
    execvp(r->argv[0], r->argv);
    fprintf(stderr, "ditto: cannot run %s: %s\n", r->argv[0], strerror(errno));
    _exit(errno == ENOENT || errno == ENOTDIR ? 127 : 126);
}

/* ---- its streams ---- */

struct relay {
    struct streams s;
    int bell;         /* -1: there is none */
    bool asks, ended; /* for input; there is no more of it */
    uint8_t input[COMMAND_DATA_MAX];
    size_t input_at, input_len;
    pid_t pid;
    int status; /* of wait(); -1: it runs */
};

/* Raw, so that what rings is a byte, and nothing is sent back. */
static int open_bell(void)
{
    struct termios t;
    const int fd = open(BELL, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0 || tcgetattr(fd, &t) < 0)
        return -1;
    cfmakeraw(&t);
    t.c_cflag |= CLOCAL | CREAD;
    tcsetattr(fd, TCSANOW, &t);
    return fd;
}

/* Move output to the outside. Returns how many bytes; 0: there are none now, or, *fd -1, any more.
 * Where nobody takes them the command gets SIGPIPE, or of a terminal SIGHUP, as our end is closed.
 */
static size_t take_output(struct relay *r, int *fd, enum command_call stream)
{
    const ssize_t n = read(*fd, pages->data, COMMAND_DATA_MAX);

    if (n > 0 && send_box(stream, (uint32_t)n) != COMMAND_OUTPUT_END)
        return (size_t)n;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n > 0 || *fd != r->s.in) { /* a terminal may be opened again, if it is still read */
        close(*fd);
        r->s.in = *fd == r->s.in ? -1 : r->s.in;
    }
    *fd = -1;
    return 0;
}

static void close_input(struct relay *r)
{
    if (r->s.in >= 0 && r->s.in != r->s.out)
        close(r->s.in);
    else if (r->s.in >= 0 && write(r->s.in, "\4", 1) < 0) /* a terminal's end of input */
        r->ended = true;
    r->s.in = -1;
}

static void pass_input(struct relay *r)
{
    if (r->input_at == r->input_len && r->asks) {
        const uint32_t count = send_box(COMMAND_STDIN, COMMAND_DATA_MAX);
        r->asks = count > 0;
        if (count > COMMAND_DATA_MAX) { /* COMMAND_INPUT_END */
            close_input(r);
            return;
        }
        memcpy(r->input, pages->data, count);
        r->input_at = 0;
        r->input_len = count;
    }
    if (r->input_at == r->input_len)
        return;
    const ssize_t n = write(r->s.in, r->input + r->input_at, r->input_len - r->input_at);
    if (n > 0)
        r->input_at += (size_t)n;
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        close_input(r); /* nobody reads it */
}

static void reap(struct relay *r, int signals)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;

    while (read(signals, &info, sizeof info) > 0)
        continue;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == r->pid)
            r->status = status;
}

static void hear_bell(struct relay *r)
{
    uint8_t bytes[64];

    while (read(r->bell, bytes, sizeof bytes) > 0)
        continue;
    r->asks = true;
}

static void relay_once(struct relay *r, int signals)
{
    const bool wants = r->s.in >= 0 && (r->asks || r->input_at < r->input_len);
    const bool waits = r->s.in >= 0 && !wants;
    struct pollfd fds[] = {
        {.fd = signals, .events = POLLIN},
        {.fd = r->s.out, .events = POLLIN},
        {.fd = r->s.err, .events = POLLIN},
        {.fd = wants ? r->s.in : -1, .events = POLLOUT},
        {.fd = waits ? r->bell : -1, .events = POLLIN},
    };

    if (poll(fds, 5, waits && r->bell < 0 ? NO_BELL_MS : -1) == 0)
        r->asks = true;
    if (fds[1].revents)
        take_output(r, &r->s.out, COMMAND_STDOUT);
    if (fds[2].revents)
        take_output(r, &r->s.err, COMMAND_STDERR);
    if (fds[4].revents)
        hear_bell(r);
    if (fds[3].revents && r->s.in >= 0)
        pass_input(r);
    if (fds[0].revents)
        reap(r, signals);
}

/* What the command has left in a pipe or terminal when it ended. Others that have it are not waited
 * for: they may write for ever, and so no more is read than it holds. */
static void drain(struct relay *r, int *fd, enum command_call stream)
{
    const int holds = fcntl(*fd, F_GETPIPE_SZ);
    size_t left = holds > DRAIN_MAX ? (size_t)holds : DRAIN_MAX, n = 1;

    while (*fd >= 0 && n && left) {
        n = take_output(r, fd, stream);
        left -= n < left ? n : left;
    }
}

static int relay(struct relay *r, int signals)
{
    while (r->status < 0)
        relay_once(r, signals);
    drain(r, &r->s.out, COMMAND_STDOUT);
    drain(r, &r->s.err, COMMAND_STDERR);
    return WIFSIGNALED(r->status) ? 128 + WTERMSIG(r->status) : WEXITSTATUS(r->status);
}

/* Other disks may be the user's own, and what was written to them is to be on them. */
static void sync_disks(void)
{
    size_t len = 0;
    char *mounts = read_file("/proc/mounts", &len);

    for (char *line = mounts; line && *line; line += strcspn(line, "\n"), line += *line == '\n') {
        char *where = strchr(line, ' ');
        if (!strncmp(line, "/dev/", 5) && where && strncmp(where, " / ", 3) != 0) {
            sync();
            break;
        }
    }
    free(mounts);
}

int main(void)
{
    static struct relay r = {.asks = true, .status = -1};
    struct request request = {0};
    sigset_t child, old;

    mount_first();
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_device();
    call(COMMAND_BEGINS, 0);
    read_request(&request);
    load_modules();
    mount_root();
    enter_root();
    open_box();
    sethostname("ditto", 5);
    set_up_network(request.user_net);

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &old);
    const int signals = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
    make_streams(&request, &r.s);
    r.bell = open_bell();
    r.pid = fork();
    if (r.pid == 0)
        run_command(&request, &r.s, &old);
    if (r.pid < 0 || signals < 0)
        fail(COMMAND_NO_START, "cannot start a process");
    for (int i = 0; i < 3; i++)
        if (i == 0 || r.s.child[i] != r.s.child[0])
            close(r.s.child[i]);
    const int status = relay(&r, signals);
    sync_disks();
    end_machine(COMMAND_EXITED, (uint32_t)status);
}
