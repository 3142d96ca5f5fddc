#include "boot/diskimage/cage.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/nobody.h"
#include "base/now.h"
#include "boot/diskimage/cage_filter.h"
#include "boot/diskimage/cage_keeper.h"

#define MEMORY_MAX  (1ull << 30)
#define SECONDS_MAX 60u
#define READ_BYTES  (256u << 10)
/* How the keeper ends when it cannot do its work, beside the program's own exit statuses. */
#define KEEPER_FAILED 101

/* ---- the program ---- */

static void set_limit(__rlimit_resource_t resource, rlim_t most)
{
    const struct rlimit limit = {most, most};

    setrlimit(resource, &limit);
}

static bool send_descriptor(int socket, int fd)
{
    char byte = 0, space[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *const control = CMSG_FIRSTHDR(&message);

    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(control), &fd, sizeof fd);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

static _Noreturn void be_program(char *const argv[], int output, int socket, pid_t keeper)
{
    static char *const environment[] = {"LC_ALL=C", "PATH=/usr/bin:/bin", NULL};
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
        dup2(output, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0)
        _exit(KEEPER_FAILED);
    /* What dittovm has open, the image too, is not the program's. */
    if (dup2(socket, STDERR_FILENO + 1) < 0)
        _exit(KEEPER_FAILED);
    close_range(STDERR_FILENO + 2, ~0u, 0);
    fcntl(STDERR_FILENO + 1, F_SETFD, FD_CLOEXEC);
    set_limit(RLIMIT_AS, MEMORY_MAX);
    set_limit(RLIMIT_CPU, SECONDS_MAX);
    set_limit(RLIMIT_FSIZE, 0);
    set_limit(RLIMIT_CORE, 0);
    set_limit(RLIMIT_NOFILE, CAGE_DISK_FD + 1);
    const int listener = cage_filter_install();
    if (listener < 0 || !send_descriptor(STDERR_FILENO + 1, listener))
        _exit(KEEPER_FAILED);
    execve(argv[0], argv, environment);
    /* Not by the library, in which a sanitizer would look for leaks first. */
    syscall(SYS_exit_group, KEEPER_FAILED);
    _exit(KEEPER_FAILED);
}

/* ---- its keeper ---- */

static int receive_descriptor(int socket)
{
    char byte, space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    int fd = -1;

    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message))
        return -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static _Noreturn void be_keeper(struct disk *disk, char *const argv[], int output, pid_t parent)
{
    int sockets[2], status;

    /* The terminal's signals are for dittovm, which ends us. */
    setsid();
    if (become_nobody() || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        _exit(KEEPER_FAILED);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_DFL);
    if (getppid() != parent || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        _exit(KEEPER_FAILED);
    const pid_t keeper = getpid(), program = fork();
    if (program == 0)
        be_program(argv, output, sockets[1], keeper);
    close(sockets[1]);
    close(output); /* its end is the program's */
    const int listener = program < 0 ? -1 : receive_descriptor(sockets[0]);
    if (listener < 0 || !cage_keep(disk, program, listener)) {
        if (program > 0)
            kill(program, SIGKILL);
        _exit(KEEPER_FAILED);
    }
    if (waitpid(program, &status, 0) != program)
        _exit(KEEPER_FAILED);
    _exit(!WIFEXITED(status)                     ? CAGE_STOPPED
          : WEXITSTATUS(status) <= KEEPER_FAILED ? WEXITSTATUS(status)
                                                 : CAGE_STOPPED);
}

/* ---- and dittovm ---- */

/* Until the program has ended. False: it is to be ended. */
static bool read_output(int from, uint64_t deadline, size_t limit, struct bytes *out)
{
    for (;;) {
        const uint64_t now = host_now_ns();
        struct pollfd wanted = {from, POLLIN, 0};

        if (now >= deadline)
            return false;
        if (poll(&wanted, 1, (int)((deadline - now) / 1000000 + 1)) <= 0)
            continue;
        bytes_reserve(out, READ_BYTES);
        const ssize_t n = read(from, out->data + out->len, READ_BYTES);
        if (n == 0)
            return true;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return false;
        if (n > 0 && (size_t)n > limit)
            return false;
        if (n > 0) {
            out->len += (size_t)n;
            limit -= (size_t)n;
        }
    }
}

int cage_run(struct disk *disk, char *const argv[], uint64_t deadline, size_t limit,
             struct bytes *out, struct err *e)
{
    const size_t before = out->len;
    const pid_t parent = getpid();
    int output[2], status = -1;

    if (pipe2(output, O_CLOEXEC) < 0)
        return err_set(e, STATUS_ERROR, "cannot start %s: %s", argv[0], strerror(errno));
    const pid_t keeper = fork();
    if (keeper == 0) {
        close(output[0]);
        be_keeper(disk, argv, output[1], parent);
    }
    close(output[1]);
    const bool ended = keeper > 0 && read_output(output[0], deadline, limit, out);
    close(output[0]);
    if (keeper > 0 && !ended)
        kill(keeper, SIGKILL); /* and the program with it */
    while (keeper > 0 && waitpid(keeper, &status, 0) < 0 && errno == EINTR)
        continue;
    if (keeper > 0 && !ended)
        status = CAGE_STOPPED << 8;
    if (keeper > 0 && WIFEXITED(status) && WEXITSTATUS(status) <= CAGE_STOPPED) {
        if (WEXITSTATUS(status) != 0)
            out->len = before;
        return WEXITSTATUS(status);
    }
    out->len = before;
    return err_set(e, STATUS_ERROR,
                   "%s cannot be run apart from this host's files: that takes Linux 5.9 with "
                   "seccomp's user notifications, and no other one around dittovm",
                   argv[0]);
}
