#ifndef BASE_CONTROL_REQUEST_H
#define BASE_CONTROL_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

/*
 * What a machine that is being recorded can be told (docs/control.md): one JSON object a line,
 *   {"do":"mark","text":"..."}  {"do":"snapshot","name":"..."}  {"do":"snapshot"}
 *   {"do":"stop"}  {"do":"stats"}
 * and one as the answer, with "ok" true, and what there is to say, or false, and why in "error".
 * Between the control socket and the machine both also have an "id", which an answer repeats.
 */
enum control_verb {
    CONTROL_MARK,
    CONTROL_SNAPSHOT,
    CONTROL_STOP,
    CONTROL_STATS,
};

struct control_request {
    enum control_verb verb;
    uint64_t id;             /* 0: none */
    char text[MARK_MAX + 1]; /* of a mark; a snapshot's name, or "" */
};

/* Bytes of the longest line, of a request or an answer, its end not counted. */
#define CONTROL_LINE_MAX 2048u

/* Of one line, which may be anything. NULL, or why it is no request. */
const char *control_request_parse(struct control_request *r, const char *line, size_t len,
                                  bool with_id);
/* Any object's line, with a line end, as NUL-terminated text that the caller frees; NULL: out of
 * memory. `object` is freed; NULL: NULL comes back. */
char *control_line(json_t *object);
/* A request's line, the same. */
char *control_request_line(const struct control_request *r);

/* Answers, the same; `answer` (an object; NULL: an empty one) is freed. */
char *control_answer_ok(uint64_t id, json_t *answer);
char *control_answer_error(uint64_t id, const char *why);

#endif
