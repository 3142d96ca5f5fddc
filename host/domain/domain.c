#include "host/domain/domain.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

void domain_free(struct domain *d)
{
    json_decref(d->options);
    json_decref(d->nearest);
    json_decref(d->left);
    *d = (struct domain){0};
}

/* ---- showing it ---- */

static void print_list(const struct domain *d, const char *head, const json_t *list, FILE *out)
{
    char *line = NULL;
    size_t len;
    FILE *const f = json_array_size(list) ? open_memstream(&line, &len) : NULL;

    if (!f)
        return;
    for (size_t i = 0; i < json_array_size(list); i++)
        fprintf(f, "%s%s", i ? "; " : "", json_string_value(json_array_get(list, i)));
    fclose(f);
    text_print(out, "dittovm: domain %s: %s: %s\n", d->name, head, line);
    free(line);
}

/* A word as a shell takes it. */
static void put_word(const char *word, FILE *out)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+@%";

    if (*word && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (char[]){*word, 0}, out);
    fputc('\'', out);
}

void domain_print(const struct domain *d, FILE *out)
{
    char *line = NULL;
    size_t len;
    FILE *const f = open_memstream(&line, &len);

    if (!f)
        return;
    for (size_t i = 0; i < json_array_size(d->options); i++) {
        fputc(' ', f);
        put_word(json_string_value(json_array_get(d->options, i)), f);
    }
    fclose(f);
    text_print(out, "dittovm: domain %s is taken as: dittovm run%s\n", d->name, line);
    free(line);
    print_list(d, "the nearest that there is", d->nearest, out);
    domain_print_left(d, out);
}

void domain_print_left(const struct domain *d, FILE *out)
{
    print_list(d, "not carried over", d->left, out);
}

/* ---- as JSON ---- */

json_t *domain_pack(const struct domain *d)
{
    return json_pack("{s:s, s:s, s:O, s:O, s:O}", "name", d->name, "uuid", d->uuid, "options",
                     d->options, "nearest", d->nearest, "left", d->left);
}

static bool are_texts(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)))
            return false;
    return json_is_array(list);
}

int domain_unpack(struct domain *d, const char *text, struct err *e)
{
    json_t *j = json_loads(text, 0, NULL), *options, *nearest, *left;
    const char *name, *uuid;

    *d = (struct domain){0};
    const bool whole = json_unpack(j, "{s:s, s:s, s:o, s:o, s:o}", "name", &name, "uuid", &uuid,
                                   "options", &options, "nearest", &nearest, "left", &left) == 0 &&
                       are_texts(options) && are_texts(nearest) && are_texts(left);
    if (whole) {
        snprintf(d->name, sizeof d->name, "%s", name);
        snprintf(d->uuid, sizeof d->uuid, "%s", uuid);
        d->options = json_incref(options);
        d->nearest = json_incref(nearest);
        d->left = json_incref(left);
    }
    json_decref(j);
    return whole ? 0 : err_set(e, STATUS_ERROR, "the domain's description is damaged");
}
