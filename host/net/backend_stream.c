/* A peer on a stream: passt, a switch, QEMU, another dittovm. */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/net/net_backend.h"

/* The address, made from its text; the caller frees nothing. */
struct place {
    struct sockaddr_storage addr;
    socklen_t len;
};

static int unix_place(const char *path, struct place *place, struct err *e)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};

    if (!path[0] || strlen(path) >= sizeof un.sun_path)
        return err_set(e, STATUS_USAGE, "--net stream: a socket's path has 1 to %zu characters",
                       sizeof un.sun_path - 1);
    strcpy(un.sun_path, path);
    memcpy(&place->addr, &un, sizeof un);
    place->len = sizeof un;
    return 0;
}

/* HOST:PORT; HOST may have colons itself, in brackets. */
static int tcp_place(const char *text, bool server, struct place *place, struct err *e)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = server ? AI_PASSIVE : 0};
    const char *colon = strrchr(text, ':');
    char name[NET_ADDRESS_MAX];
    struct addrinfo *found;

    if (!colon || colon == text || !colon[1])
        return err_set(e, STATUS_USAGE, "--net stream:tcp takes HOST:PORT, not '%s'", text);
    const bool brackets = text[0] == '[' && colon[-1] == ']';
    snprintf(name, sizeof name, "%.*s", (int)(colon - text) - 2 * brackets, text + brackets);
    const int rc = getaddrinfo(name, colon + 1, &hints, &found);
    if (rc)
        return err_set(e, STATUS_ERROR, "--net stream: %s: %s", text, gai_strerror(rc));
    memcpy(&place->addr, found->ai_addr, found->ai_addrlen);
    place->len = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

static int fail(const struct net_spec *spec, int fd, const char *what, struct err *e)
{
    err_set(e, STATUS_ERROR, "--net stream: cannot %s %s: %s", what, spec->address,
            strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Wait for one peer. Who listens in vain is told by whoever looks at the screen. */
static int wait_for_peer(const struct net_spec *spec, const struct place *place, int fd,
                         struct err *e)
{
    const int on = 1;
    const struct sockaddr_un *un = (const struct sockaddr_un *)&place->addr;

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&place->addr, place->len) < 0 || listen(fd, 1) < 0)
        return fail(spec, fd, "listen at", e);
    fprintf(stderr, "dittovm: waiting for a peer at %s\n", spec->address);
    const int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    if (place->addr.ss_family == AF_UNIX)
        unlink(un->sun_path);
    if (peer < 0)
        return fail(spec, fd, "accept a peer at", e);
    close(fd);
    return peer;
}

static int open_stream(const struct net_spec *spec, struct err *e)
{
    const bool is_unix = !strncmp(spec->address, "unix:", 5);
    const char *text = is_unix ? spec->address + 5 : spec->address + 4;
    const int on = 1;
    struct place place;

    if (!is_unix && strncmp(spec->address, "tcp:", 4) != 0)
        return err_set(e, STATUS_USAGE, "--net stream takes unix:PATH or tcp:HOST:PORT, not '%s'",
                       spec->address);
    if ((is_unix ? unix_place(text, &place, e) : tcp_place(text, spec->server, &place, e)) < 0)
        return -1;
    const int fd = socket(place.addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(spec, fd, "use", e);
    if (spec->server)
        return wait_for_peer(spec, &place, fd, e);
    if (connect(fd, (const struct sockaddr *)&place.addr, place.len) < 0)
        return fail(spec, fd, "connect to", e);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

const struct net_backend net_backend_stream = {.open = open_stream};
