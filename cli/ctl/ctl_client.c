#include "cli/ctl/ctl_client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int ctl_ask(int fd, const struct control_request *request, struct err *e)
{
    char *line = control_request_line(request);
    const size_t len = line ? strlen(line) : 0;
    const bool sent = line && send(fd, line, len, MSG_NOSIGNAL) == (ssize_t)len;

    free(line);
    return sent ? 0 : err_set(e, STATUS_ERROR, "it does not listen: %s", strerror(errno));
}

/* Wait for more, or for the end (0). -1: neither came. */
static ssize_t hear(int fd, char *text, size_t room, uint64_t patience_s, struct err *e)
{
    struct pollfd p = {fd, POLLIN, 0};
    const int ready = poll(&p, 1, (int)patience_s * 1000);

    if (ready == 0)
        return err_set(e, STATUS_ERROR,
                       "no answer within %llu s: the machine has not come to where it can do this; "
                       "it does it when it has",
                       (unsigned long long)patience_s);
    const ssize_t n = ready < 0 ? -1 : recv(fd, text, room, 0);
    return n < 0 ? err_set(e, STATUS_ERROR, "no answer: %s", strerror(errno)) : n;
}

json_t *ctl_answer(int fd, uint64_t patience_s, struct err *e)
{
    char line[CONTROL_LINE_MAX + 1];
    size_t len = 0;
    json_error_t error;

    while (len < sizeof line && !memchr(line, '\n', len)) {
        const ssize_t n = hear(fd, line + len, sizeof line - len, patience_s, e);
        if (n < 0)
            return NULL;
        if (n == 0) {
            err_set(e, STATUS_ERROR, "the machine has ended, or its recorder");
            return NULL;
        }
        len += (size_t)n;
    }
    json_t *j = json_loadb(line, len, 0, &error);
    if (json_is_object(j))
        return j;
    json_decref(j);
    err_set(e, STATUS_ERROR, "the answer is not understood");
    return NULL;
}

int ctl_wait_for_end(int fd, uint64_t patience_s, struct err *e)
{
    char text[256];
    ssize_t n;

    while ((n = hear(fd, text, sizeof text, patience_s, e)) > 0)
        continue;
    return (int)n;
}
