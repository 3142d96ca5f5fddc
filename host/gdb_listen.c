#include "host/gdb_listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "guest-tools/khost/protocol.h"
#include "host/emulated.h"
#include "host/emulated_port.h"

/* How often a port is looked at for a client: it tells of one by nothing that could be waited for.
 */
#define PORT_MS 50
/* How often *quit is looked at. */
#define QUIT_MS 200

static int refuse(struct gdb_listener *l, const char *what, struct err *e)
{
    int error = errno;

    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    return err_set(e, STATUS_ERROR, "gdb cannot be waited for at %s: %s", what, strerror(error));
}

/* Never 0, 1 or 2: those belong to the standard streams, even if they are closed. */
static int new_socket(int family)
{
    int low = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, 3);

    if (low >= 0)
        close(low);
    return fd;
}

static int listen_tcp(struct gdb_listener *l, uint16_t port, struct err *e)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    const int yes = 1;

    snprintf(l->name, sizeof l->name, "localhost:%u", port);
    l->fd = new_socket(AF_INET);
    /* NODELAY goes over to what is accepted: small packets, each of which waits for the last. */
    if (l->fd < 0 || setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0 ||
        setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) < 0 ||
        bind(l->fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(l->fd, 1) < 0 ||
        getsockname(l->fd, (struct sockaddr *)&a, &len) < 0)
        return refuse(l, l->name, e);
    snprintf(l->name, sizeof l->name, "localhost:%u", ntohs(a.sin_port));
    return 0;
}

/* A socket that nobody listens at any more is in the way of bind(). */
static void remove_dead(const struct sockaddr_un *a)
{
    struct stat st;
    int fd = new_socket(AF_UNIX);

    /* One whose backlog is full is not dead, but would have us wait. */
    if (fd >= 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && lstat(a->sun_path, &st) == 0 &&
        S_ISSOCK(st.st_mode) && connect(fd, (const struct sockaddr *)a, sizeof *a) < 0 &&
        errno == ECONNREFUSED)
        unlink(a->sun_path);
    if (fd >= 0)
        close(fd);
}

static int listen_unix(struct gdb_listener *l, const char *path, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    if (!*path || strlen(path) >= sizeof a.sun_path)
        return err_set(e, STATUS_USAGE,
                       "gdb: the path of a socket has 1 to %zu bytes; choose a shorter one",
                       sizeof a.sun_path - 1);
    strcpy(a.sun_path, path);
    snprintf(l->name, sizeof l->name, "%s", path);
    remove_dead(&a);
    l->fd = new_socket(AF_UNIX);
    mode_t mask = umask(077); /* whoever may write to it may connect */
    bool bound = l->fd >= 0 && bind(l->fd, (struct sockaddr *)&a, sizeof a) == 0;
    int error = errno;
    umask(mask);
    errno = error;
    l->unlink = bound;
    if (!bound || listen(l->fd, 1) < 0)
        return refuse(l, path, e);
    return 0;
}

int gdb_listen(struct gdb_listener *l, const char *where, struct err *e)
{
    uint64_t port;

    *l = (struct gdb_listener){.fd = -1};
    if (!strncmp(where, "unix:", 5))
        return listen_unix(l, where + 5, e);
    if (parse_number(where, UINT16_MAX, &port) < 0)
        return err_set(e, STATUS_USAGE, "gdb is waited for at a TCP port or unix:PATH, not '%s'",
                       where);
    return listen_tcp(l, (uint16_t)port, e);
}

int gdb_open(struct gdb_listener *l, const char *where, struct err *e)
{
    const char *name = getenv(GDB_NAME_VARIABLE);

    if (!getenv(EMULATED_INSIDE_VARIABLE))
        return gdb_listen(l, where, e);
    *l = (struct gdb_listener){.fd = -1};
    snprintf(l->name, sizeof l->name, "%s", name ? name : "?");
    if (emulated_port_find(KHOST_GDB_PORT_NAME, l->device))
        return 0;
    return err_set(e, STATUS_ERROR, "the emulated KVM host has no port for gdb");
}

static bool must_quit(const atomic_int *quit)
{
    return quit && *quit;
}

/*
 * A port that nobody is connected to has hung up. It is opened anew for each client, because
 * closing it throws away what the last one has left unread.
 */
static int accept_port(struct gdb_listener *l, const atomic_int *quit, int *client, struct err *e)
{
    int fd = open(l->device, O_RDWR | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return err_set(e, STATUS_ERROR, "cannot open %s for gdb: %s; is 'make khost' needed?",
                       l->device, strerror(errno));
    while (!must_quit(quit)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, QUIT_MS) >= 0 && !(p.revents & POLLHUP)) {
            *client = fd;
            return 0;
        }
        usleep(PORT_MS * 1000);
    }
    close(fd);
    return 0;
}

static int accept_socket(struct gdb_listener *l, const atomic_int *quit, int *client, struct err *e)
{
    while (!must_quit(quit)) {
        struct pollfd p = {.fd = l->fd, .events = POLLIN};
        if (poll(&p, 1, QUIT_MS) <= 0)
            continue;
        *client = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (*client >= 0)
            return 0;
        if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED)
            return err_set(e, STATUS_ERROR, "cannot accept gdb: %s", strerror(errno));
    }
    return 0;
}

int gdb_accept(struct gdb_listener *l, const atomic_int *quit, int *client, struct err *e)
{
    *client = -1;
    return l->device[0] ? accept_port(l, quit, client, e) : accept_socket(l, quit, client, e);
}

void gdb_listener_close(struct gdb_listener *l)
{
    if (l->fd >= 0)
        close(l->fd);
    if (l->unlink)
        unlink(l->name);
    *l = (struct gdb_listener){.fd = -1};
}
