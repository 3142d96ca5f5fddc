#include "host/control/control_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SUFFIX ".ctl"

/* The directory, opened, and the socket's name in it. */
static int find_place(struct control_socket *s, const char *recording, struct err *e)
{
    const char *slash = strrchr(recording, '/');
    char directory[PATH_MAX];

    *s = (struct control_socket){.fd = -1, .directory = -1};
    if (!slash)
        snprintf(directory, sizeof directory, ".");
    else
        snprintf(directory, sizeof directory, "%.*s/", (int)(slash - recording), recording);
    if (snprintf(s->name, sizeof s->name, "%s" SUFFIX, slash ? slash + 1 : recording) >=
        (int)sizeof s->name)
        return err_set(e, STATUS_ERROR, "the name is too long for a control socket");
    s->directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return s->directory < 0 ? err_set(e, STATUS_ERROR, "%s: %s", directory, strerror(errno)) : 0;
}

static int address_of(const struct control_socket *s, struct sockaddr_un *address, struct err *e)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%s", s->directory,
                 s->name) < (int)sizeof address->sun_path)
        return 0;
    return err_set(e, STATUS_ERROR, "%.200s: the name is too long for a control socket", s->name);
}

static int make_socket(struct err *e)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return fd < 0 ? err_set(e, STATUS_ERROR, "cannot make a socket: %s", strerror(errno)) : fd;
}

/* A socket of this user's, where nobody answers. */
static bool is_left_behind(const struct control_socket *s, const struct sockaddr_un *address)
{
    struct err ignored;
    struct stat st;

    if (fstatat(s->directory, s->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISSOCK(st.st_mode) ||
        st.st_uid != geteuid())
        return false;
    const int fd = make_socket(&ignored);
    const bool refused = fd >= 0 &&
                         connect(fd, (const struct sockaddr *)address, sizeof *address) < 0 &&
                         errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return refused;
}

/* The file has the mode of the socket. */
static int bind_here(struct control_socket *s, const struct sockaddr_un *address)
{
    if (fchmod(s->fd, 0600) < 0)
        return -1;
    return bind(s->fd, (const struct sockaddr *)address, sizeof *address);
}

int control_socket_listen(struct control_socket *s, const char *recording, struct err *e)
{
    struct sockaddr_un address;

    if (find_place(s, recording, e) < 0)
        return -1;
    if (address_of(s, &address, e) < 0 || (s->fd = make_socket(e)) < 0) {
        control_socket_close(s);
        return -1;
    }
    int rc = bind_here(s, &address);
    if (rc < 0 && errno == EADDRINUSE && is_left_behind(s, &address)) {
        unlinkat(s->directory, s->name, 0);
        rc = bind_here(s, &address);
    }
    if (rc < 0 || listen(s->fd, 16) < 0) {
        err_set(e, STATUS_ERROR, "%.200s: %s", s->name,
                errno == EADDRINUSE ? "there is something else of this name" : strerror(errno));
        if (rc < 0)
            s->name[0] = '\0'; /* it is not ours */
        control_socket_close(s);
        return -1;
    }
    return 0;
}

void control_socket_close(struct control_socket *s)
{
    if (s->fd >= 0) {
        if (s->name[0])
            unlinkat(s->directory, s->name, 0);
        close(s->fd);
    }
    if (s->directory >= 0)
        close(s->directory);
    *s = (struct control_socket){.fd = -1, .directory = -1};
}

bool control_peer_is_own(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

static int refuse(const char *recording, struct err *e)
{
    return err_set(e, STATUS_ERROR, "the control socket of %s is another user's", recording);
}

static int connect_to(const struct control_socket *s, const char *recording, struct err *e)
{
    struct sockaddr_un address;
    struct stat st;

    if (fstatat(s->directory, s->name, &st, AT_SYMLINK_NOFOLLOW) < 0 && access(recording, F_OK) < 0)
        return err_set(e, STATUS_ERROR, "%s: %s", recording, strerror(errno));
    if (fstatat(s->directory, s->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_set(e, STATUS_ERROR,
                       "nobody records %s, or its machine has no control socket: there is no "
                       "%s" SUFFIX,
                       recording, recording);
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, STATUS_ERROR, "%s" SUFFIX " is no socket", recording);
    if (st.st_uid != geteuid())
        return refuse(recording, e);
    if (address_of(s, &address, e) < 0)
        return -1;
    const int fd = make_socket(e);
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0) {
        const int error = errno;
        close(fd);
        return error == ECONNREFUSED
                   ? err_set(e, STATUS_ERROR, "nobody records %s any more", recording)
                   : err_set(e, STATUS_ERROR, "%s" SUFFIX ": %s", recording, strerror(error));
    }
    if (control_peer_is_own(fd))
        return fd;
    close(fd);
    return refuse(recording, e);
}

int control_socket_connect(const char *recording, struct err *e)
{
    struct control_socket s;

    if (find_place(&s, recording, e) < 0)
        return -1;
    const int fd = connect_to(&s, recording, e);
    close(s.directory);
    return fd;
}
