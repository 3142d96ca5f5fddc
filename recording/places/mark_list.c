#include "recording/places/mark_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "recording/event.h"
#include "recording/stream_reader.h"
#include "recording/streams.h"

static int bad(const struct recording *r, const char *what, struct err *e)
{
    return err_set(e, STATUS_BAD_RECORDING, "%s is damaged: %s", recording_path(r), what);
}

/* Room for one more of `size` bytes; *room of them there are. NULL: out of memory. */
static void *grow(void *at, size_t count, size_t *room, size_t size, struct err *e)
{
    const size_t wanted = *room ? 2 * *room : 16;

    if (count < *room)
        return at;
    void *grown = realloc(at, wanted * size);
    if (!grown)
        err_set(e, STATUS_ERROR, "out of memory");
    else
        *room = wanted;
    return grown;
}

static int add_boot(struct mark_list *l, uint64_t ordinal, uint64_t time_ns, struct err *e)
{
    struct boot_entry *boots = grow(l->boots, l->boot_count, &l->boot_room, sizeof *boots, e);

    if (!boots)
        return -1;
    l->boots = boots;
    l->boots[l->boot_count++] = (struct boot_entry){.ordinal = ordinal, .time_ns = time_ns};
    return 0;
}

static int add_mark(struct mark_list *l, const struct event *event, struct err *e)
{
    struct mark_entry *marks = grow(l->marks, l->mark_count, &l->mark_room, sizeof *marks, e);

    if (!marks)
        return -1;
    l->marks = marks;
    struct mark_entry *m = &l->marks[l->mark_count++];
    *m = (struct mark_entry){
        .ordinal = event->ordinal,
        .time_ns = event->mark.time_ns,
        .by_guest = event->mark.by_guest,
    };
    memcpy(m->text, event->mark.text, sizeof m->text);
    return 0;
}

static int take(struct mark_list *l, const struct recording *r, const struct event *event,
                struct err *e)
{
    if (event->kind == EVENT_MARK)
        return l->mark_count == MARKS_MAX ? bad(r, "it has too many marks", e)
                                          : add_mark(l, event, e);
    if (event->kind == EVENT_BOOT)
        return l->boot_count == BOOTS_MAX ? bad(r, "it has too many boots", e)
                                          : add_boot(l, event->ordinal, event->boot.time_ns, e);
    return 0;
}

/* All events are looked at. */
static int scan(struct mark_list *l, const struct recording *r, struct stream_reader *in,
                struct event *event, struct err *e)
{
    struct event_codec codec = {0};
    size_t got;

    while (stream_left(in)) {
        const uint8_t *data = stream_peek(in, EVENT_MAX_BYTES, &got);
        if (stream_bad(in))
            return stream_error(in, e);
        struct cursor c = cursor_of(data, got);
        if (!event_decode(&c, &codec, recording_version(r), event))
            return bad(r, "an event makes no sense", e);
        stream_skip(in, got - cursor_left(&c));
        if (take(l, r, event, e) < 0)
            return -1;
    }
    return 0;
}

int mark_list_load(struct mark_list *list, const struct recording *r, struct err *e)
{
    struct event *event = malloc(sizeof *event); /* it is large */
    struct stream_reader *in = NULL;
    int rc = event ? 0 : err_set(e, STATUS_ERROR, "out of memory");

    *list = (struct mark_list){0};
    if (rc == 0)
        rc = add_boot(list, 0, 0, e);
    if (rc == 0 && recording_version(r) >= RECORDING_MARKS) {
        in = stream_open(r, STREAM_EVENTS, e);
        rc = in ? scan(list, r, in, event, e) : -1;
    }
    stream_close(in);
    free(event);
    if (rc < 0)
        mark_list_free(list);
    return rc;
}

void mark_list_free(struct mark_list *list)
{
    free(list->marks);
    free(list->boots);
    *list = (struct mark_list){0};
}

/* ---- places ---- */

#define MARK_PLACE "mark:"
#define BOOT_PLACE "boot:"

bool mark_place_is(const char *name)
{
    return !strncmp(name, MARK_PLACE, sizeof MARK_PLACE - 1) ||
           !strncmp(name, BOOT_PLACE, sizeof BOOT_PLACE - 1);
}

/* The `nth` mark, from 1 on, whose text is these len bytes. */
static const struct mark_entry *nth_mark(const struct mark_list *l, const char *text, size_t len,
                                         uint64_t nth)
{
    for (size_t i = 0; i < l->mark_count; i++)
        if (!strncmp(l->marks[i].text, text, len) && !l->marks[i].text[len] && !--nth)
            return &l->marks[i];
    return NULL;
}

/* A text that ends in #N itself comes first. */
static const struct mark_entry *find_mark(const struct mark_list *l, const char *text)
{
    const struct mark_entry *found = nth_mark(l, text, strlen(text), 1);
    const char *number = strrchr(text, '#');
    uint64_t nth;

    if (found || !number || parse_number(number + 1, MARKS_MAX, &nth) < 0 || !nth)
        return found;
    return nth_mark(l, text, (size_t)(number - text), nth);
}

static int no_mark(const struct mark_list *l, const struct recording *r, const char *text,
                   struct err *e)
{
    const struct mark_entry *last = l->mark_count ? &l->marks[l->mark_count - 1] : NULL;

    if (!last)
        return err_set(e, STATUS_ERROR, "%.300s has no marks; dittovm ctl REC mark TEXT makes one",
                       recording_path(r));
    return err_set(
        e, STATUS_ERROR, "%.300s has no mark '%.*s'; dittovm info lists its %zu, as '%s'",
        recording_path(r), text_fitting(text, MARK_MAX), text, l->mark_count, last->text);
}

static int find_boot(const struct mark_list *l, const struct recording *r, const char *number,
                     uint64_t *ordinal, struct err *e)
{
    uint64_t n;

    if (parse_number(number, BOOTS_MAX, &n) < 0 || !n || n > l->boot_count)
        return err_set(e, STATUS_ERROR, "%.300s has %zu boot%s; there is no boot:%.20s",
                       recording_path(r), l->boot_count, l->boot_count == 1 ? "" : "s", number);
    *ordinal = l->boots[n - 1].ordinal + (n > 1); /* there it begins: before, it is still to */
    return 0;
}

int mark_place_find(const struct recording *r, const char *name, uint64_t *ordinal, struct err *e)
{
    const char *text = name + sizeof MARK_PLACE - 1;
    const struct mark_entry *mark;
    struct mark_list list;
    int rc = 0;

    if (mark_list_load(&list, r, e) < 0)
        return -1;
    if (!strncmp(name, BOOT_PLACE, sizeof BOOT_PLACE - 1))
        rc = find_boot(&list, r, text, ordinal, e);
    else if ((mark = find_mark(&list, text)))
        *ordinal = mark->ordinal;
    else
        rc = no_mark(&list, r, text, e);
    mark_list_free(&list);
    return rc;
}
