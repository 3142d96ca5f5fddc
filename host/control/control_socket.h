#ifndef HOST_CONTROL_CONTROL_SOCKET_H
#define HOST_CONTROL_CONTROL_SOCKET_H

#include <stdbool.h>

#include "base/err.h"

/*
 * Where a recording's control socket is: beside it, REC.ctl, with mode 0600. Directories are opened
 * first, so that only the name itself must fit into a socket's address.
 */
struct control_socket {
    int fd, directory; /* listening */
    char name[256];    /* in the directory */
};

/* One that was left behind by a recorder that was killed gives way. -1, with *e: there can be none.
 */
int control_socket_listen(struct control_socket *s, const char *recording, struct err *e);
/* Nobody finds it any more. */
void control_socket_close(struct control_socket *s);

/* As its client: the connection; -1, with *e: nobody records there, or it is another user's. */
int control_socket_connect(const char *recording, struct err *e);

/* Whether who is at the other end runs as this user. */
bool control_peer_is_own(int fd);

#endif
