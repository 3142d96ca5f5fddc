#include "recording/symbol_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recording/streams.h"

/* Far more than kernels have (boot/kallsyms.c); what bounds the memory that a hostile file takes.
 */
#define SYMBOLS_MAX      (4u << 20)
#define NAMES_LEN_MAX    ((size_t)256 << 20)
#define FUNCTION_LEN_MAX (1u << 20)

static int read_fields(struct stream_reader *in, struct symbol *s)
{
    const uint64_t last = s->address;

    s->address = last + stream_varint(in);
    s->type = (char)stream_u8(in);
    const uint64_t len = stream_varint(in);
    if (len > SYMBOL_NAME_MAX || stream_read(in, s->name, (size_t)len) < 0)
        return -1;
    s->name[len] = 0;
    return strlen(s->name) == len && symbol_valid(s, last) ? 0 : -1;
}

int symbol_read(struct stream_reader *in, struct symbol *s, struct err *e)
{
    if (!stream_bad(in) && !stream_left(in))
        return 0;
    if (read_fields(in, s) == 0)
        return 1;
    if (stream_error(in, e) == 0)
        err_set(e, STATUS_BAD_RECORDING,
                "the recording is damaged: a kernel symbol makes no sense");
    return -1;
}

void symbolize(const struct recording *r, uint64_t va, char *text, size_t size)
{
    struct err e;
    struct stream_reader *in = stream_open(r, STREAM_SYMBOLS, &e);
    struct symbol s = {0}, found = {0};

    *text = 0;
    while (in && symbol_read(in, &s, &e) > 0 && s.address <= va)
        if (symbol_is_function(s.type))
            found = s;
    if (in)
        stream_close(in);
    if (found.address && va - found.address < FUNCTION_LEN_MAX)
        snprintf(text, size, "%.120s+%#llx", found.name, (unsigned long long)(va - found.address));
}

int symbol_list_add(struct symbol_list *list, const struct symbol *s)
{
    const size_t len = strlen(s->name) + 1;

    if (list->count == SYMBOLS_MAX || list->names.len + len > NAMES_LEN_MAX)
        return -1;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 4096;
        struct symbol_entry *at = realloc(list->at, capacity * sizeof *at);
        if (!at)
            return -1;
        list->at = at;
        list->capacity = capacity;
    }
    if (list->names.len == 0)
        bytes_put_u8(&list->names, 0);
    list->at[list->count++] = (struct symbol_entry){
        .address = s->address, .name = (uint32_t)list->names.len, .type = s->type};
    bytes_put(&list->names, s->name, len);
    return 0;
}

int symbol_list_load(struct symbol_list *list, const struct recording *r, struct err *e)
{
    struct stream_reader *in = stream_open(r, STREAM_SYMBOLS, e);
    struct symbol s = {0};
    int rc = -1;

    *list = (struct symbol_list){0};
    while (in && (rc = symbol_read(in, &s, e)) > 0) {
        if (symbol_list_add(list, &s) < 0) {
            rc = err_set(e, STATUS_BAD_RECORDING,
                         "%s: more kernel symbols in it than fit in memory", recording_path(r));
            break;
        }
    }
    if (in)
        stream_close(in);
    if (rc < 0)
        symbol_list_free(list);
    return rc;
}

void symbol_list_free(struct symbol_list *list)
{
    free(list->at);
    bytes_free(&list->names);
    *list = (struct symbol_list){0};
}
