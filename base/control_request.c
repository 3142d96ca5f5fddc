#include "base/control_request.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static const char *const verbs[] = {
    [CONTROL_MARK] = "mark",
    [CONTROL_SNAPSHOT] = "snapshot",
    [CONTROL_STOP] = "stop",
    [CONTROL_STATS] = "stats",
};
#define VERBS (sizeof verbs / sizeof *verbs)

static bool find_verb(const char *name, enum control_verb *verb)
{
    for (unsigned i = 0; name && i < VERBS; i++) {
        if (strcmp(name, verbs[i]) != 0)
            continue;
        *verb = (enum control_verb)i;
        return true;
    }
    return false;
}

/* What a request may hold: `key` and whether it has to. */
static const char *take_text(struct control_request *r, const json_t *j, const char *key,
                             bool needed)
{
    const json_t *value = json_object_get(j, key);
    const char *text = json_string_value(value);

    if (!value)
        return needed ? "a mark has a text" : NULL;
    if (!text || !*text)
        return "the text or name is to be a string of at least one byte";
    if (json_string_length(value) > MARK_MAX)
        return "the text or name has at most 120 bytes";
    memcpy(r->text, text, strlen(text) + 1);
    text_clean(r->text);
    return NULL;
}

static const char *take(struct control_request *r, const json_t *j, bool with_id)
{
    const json_t *id = json_object_get(j, "id");
    const char *wrong = NULL;
    size_t known = 1;

    if (!json_is_object(j))
        return "a request is a JSON object";
    if (!find_verb(json_string_value(json_object_get(j, "do")), &r->verb))
        return "\"do\" is to be mark, snapshot, stop or stats";
    if (with_id) {
        if (json_integer_value(id) <= 0)
            return "it has no id";
        r->id = (uint64_t)json_integer_value(id);
        known++;
    }
    if (r->verb == CONTROL_MARK)
        wrong = take_text(r, j, "text", true);
    else if (r->verb == CONTROL_SNAPSHOT)
        wrong = take_text(r, j, "name", false);
    known += r->text[0] != '\0';
    return wrong || json_object_size(j) == known ? wrong : "it has a key that is not known";
}

const char *control_request_parse(struct control_request *r, const char *line, size_t len,
                                  bool with_id)
{
    json_error_t error;
    json_t *j = json_loadb(line, len, JSON_REJECT_DUPLICATES, &error);

    *r = (struct control_request){0};
    const char *wrong = j ? take(r, j, with_id) : "that is no JSON";
    json_decref(j);
    return wrong;
}

char *control_line(json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    const size_t len = text ? strlen(text) : 0;
    char *line = text ? realloc(text, len + 2) : NULL;

    json_decref(object);
    if (line)
        memcpy(line + len, "\n", 2);
    else
        free(text);
    return line;
}

char *control_request_line(const struct control_request *r)
{
    json_t *j = json_pack("{s:s}", "do", verbs[r->verb]);

    if (j && r->id)
        json_object_set_new(j, "id", json_integer((json_int_t)r->id));
    if (j && r->text[0])
        json_object_set_new(j, r->verb == CONTROL_MARK ? "text" : "name", json_string(r->text));
    return control_line(j);
}

char *control_answer_ok(uint64_t id, json_t *answer)
{
    json_t *j = answer ? answer : json_object();

    if (j)
        json_object_set_new(j, "ok", json_true());
    if (j && id)
        json_object_set_new(j, "id", json_integer((json_int_t)id));
    return control_line(j);
}

char *control_answer_error(uint64_t id, const char *why)
{
    json_t *j = json_pack("{s:b, s:s}", "ok", 0, "error", why);

    if (j && id)
        json_object_set_new(j, "id", json_integer((json_int_t)id));
    return control_line(j);
}
