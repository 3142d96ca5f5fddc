#include "host/net/backend_child.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/nobody.h"

#define READ_BYTES (64u << 10)
#define READY      "+" /* what the child says when nothing is wrong */
#define CHILD_FD   3   /* the wire's number in the child; the report has the next one */

static _Noreturn void be_child(const struct backend_child *child, const struct net_spec *spec,
                               int wire, int report, pid_t parent)
{
    const int ours[2] = {wire, report};
    int high[2];

    for (int i = 0; i < 2; i++)
        high[i] = fcntl(ours[i], F_DUPFD, 64);
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(high[0], CHILD_FD);
    dup2(high[1], CHILD_FD + 1);
    close_range(CHILD_FD + 2, ~0u, 0);
    /* The terminal's signals are for the machine; it ends with the wire, and with us. */
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (getppid() != parent)
        _exit(1);
    signal(SIGPIPE, SIG_IGN);
    const char *wrong = child->prepare(spec, CHILD_FD);
    if (wrong) {
        const ssize_t said = write(CHILD_FD + 1, wrong, strlen(wrong));
        _exit(said > 0 ? 1 : 2);
    }
    if (write(CHILD_FD + 1, READY, 1) != 1)
        _exit(1);
    close(CHILD_FD + 1);
    child->serve(spec, CHILD_FD);
    _exit(0);
}

/* What the child has to say before it serves: that it is ready, or what is wrong. */
static int read_report(int report, const char *name, struct err *e)
{
    char text[256];
    size_t len = 0;
    ssize_t n;

    while ((n = read(report, text + len, sizeof text - len)) > 0 || (n < 0 && errno == EINTR))
        len += n > 0 ? (size_t)n : 0;
    if (len == 1 && text[0] == READY[0])
        return 0;
    if (!len)
        return err_set(e, STATUS_ERROR, "--net %s: it has ended at its beginning", name);
    return err_set(e, STATUS_ERROR, "--net %s: %.*s", name, (int)len, text);
}

int backend_child_start(const struct backend_child *child, const struct net_spec *spec,
                        struct err *e)
{
    const pid_t parent = getpid();
    int wire[2], report[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wire) < 0)
        return err_set(e, STATUS_ERROR, "--net: %s", strerror(errno));
    if (pipe2(report, O_CLOEXEC) < 0) {
        close(wire[0]);
        close(wire[1]);
        return err_set(e, STATUS_ERROR, "--net: %s", strerror(errno));
    }
    const pid_t pid = fork();
    if (pid == 0)
        be_child(child, spec, wire[1], report[1], parent);
    close(wire[1]);
    close(report[1]);
    const int rc = pid < 0 ? err_set(e, STATUS_ERROR, "--net: %s", strerror(errno))
                           : read_report(report[0], net_spec_kind(spec), e);
    close(report[0]);
    if (rc < 0) {
        close(wire[0]);
        if (pid > 0)
            waitpid(pid, NULL, 0);
        return -1;
    }
    return wire[0];
}

const char *backend_child_drop_rights(void)
{
    const char *const wrong = become_nobody();

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* which that has cleared */
    return wrong;
}

int wire_write(int wire, const uint8_t *frame, size_t len)
{
    const uint32_t length = htonl((uint32_t)len);
    struct iovec parts[2] = {{(void *)(uintptr_t)&length, sizeof length},
                             {(void *)(uintptr_t)frame, len}};

    for (size_t left = sizeof length + len; left;) {
        const ssize_t n = writev(wire, parts, 2);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        left -= (size_t)n;
        size_t done = (size_t)n;
        for (unsigned i = 0; i < 2; i++) {
            const size_t part = done < parts[i].iov_len ? done : parts[i].iov_len;
            parts[i].iov_base = (uint8_t *)parts[i].iov_base + part;
            parts[i].iov_len -= part;
            done -= part;
        }
    }
    return 0;
}

int wire_read(int wire, struct wire_queue *in)
{
    uint8_t bytes[READ_BYTES];
    const size_t room = wire_room(in);
    const ssize_t n = read(wire, bytes, room < sizeof bytes ? room : sizeof bytes);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n <= 0)
        return -1;
    wire_add(in, bytes, (size_t)n);
    return 0;
}
