#ifndef CLI_CTL_CTL_CLIENT_H
#define CLI_CTL_CTL_CLIENT_H

#include <jansson.h>
#include <stdint.h>

#include "base/control_request.h"
#include "base/err.h"

/* The client's side of a control socket. fd: of control_socket_connect(). */

int ctl_ask(int fd, const struct control_request *request, struct err *e);
/* The answer, a JSON object, which the caller owns; NULL, with *e, when none has come in so many
 * seconds. */
json_t *ctl_answer(int fd, uint64_t patience_s, struct err *e);
/* The recorder closes the connection once the recording is whole. -1: not in that time. */
int ctl_wait_for_end(int fd, uint64_t patience_s, struct err *e);

#endif
