#include "recording/places/snapshot_list.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "recording/chunk_source.h"
#include "recording/stream_reader.h"

static int bad(const struct recording *r, const char *what, struct err *e)
{
    return err_set(e, STATUS_BAD_RECORDING, "%s is damaged: %s", recording_path(r), what);
}

/* ---- the list ---- */

/* What a mark says of the recording must be in it. */
static bool fits(const struct recording *r, const struct snapshot *s)
{
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++)
        if (s->mark.at[kind] > recording_stream_length(r, kind))
            return false;
    /* A sync point has a byte at least. */
    return s->mark.ordinal <= recording_stream_length(r, STREAM_SYNCS) &&
           s->new_chunks <= recording_chunks(r);
}

void snapshot_entry_init(struct snapshot_entry *entry, const struct snapshot *s)
{
    *entry = (struct snapshot_entry){
        .ordinal = s->mark.ordinal,
        .tsc = s->mark.tsc,
        .pages = s->pages,
        .new_chunks = s->new_chunks,
        .live = s->live.len,
    };
    memcpy(entry->name, s->name, sizeof entry->name);
}

static int load_entry(struct snapshot_entry *entry, const struct recording *r,
                      struct stream_reader *in, struct err *e)
{
    struct snapshot s;
    struct snapshot_size size;
    size_t got;

    const uint64_t len = stream_varint(in), offset = stream_tell(in);
    if (stream_bad(in))
        return stream_error(in, e);
    if (len > SNAPSHOT_MAX_BYTES || len > stream_left(in))
        return bad(r, "a snapshot ends behind its stream", e);
    const uint8_t *data = stream_peek(in, SNAPSHOT_HEAD_MAX, &got);
    if (stream_bad(in))
        return stream_error(in, e);
    struct cursor c = cursor_of(data, got < len ? got : (size_t)len);
    if (!snapshot_decode_head(&c, &s, &size) || size.live > len || !fits(r, &s))
        return bad(r, "a snapshot makes no sense", e);
    snapshot_entry_init(entry, &s);
    entry->offset = offset;
    entry->len = len;
    entry->live = size.live;
    stream_skip(in, len);
    return stream_error(in, e);
}

int snapshot_list_add(struct snapshot_list *list, const struct snapshot_entry *entry, struct err *e)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 16;
        struct snapshot_entry *at = realloc(list->at, capacity * sizeof *at);
        if (!at)
            return err_set(e, STATUS_ERROR, "out of memory");
        list->at = at;
        list->capacity = capacity;
    }
    list->at[list->count++] = *entry;
    return 0;
}

int snapshot_list_load(struct snapshot_list *list, const struct recording *r, struct err *e)
{
    struct stream_reader *in = stream_open(r, STREAM_SNAPSHOTS, e);
    struct snapshot_entry entry;
    int rc = in ? 0 : -1;

    *list = (struct snapshot_list){0};
    while (rc == 0 && stream_left(in)) {
        if (list->count == SNAPSHOTS_MAX)
            rc = bad(r, "it has too many snapshots", e);
        else if (load_entry(&entry, r, in, e) < 0 || snapshot_list_add(list, &entry, e) < 0)
            rc = -1;
    }
    stream_close(in);
    if (rc < 0)
        snapshot_list_free(list);
    return rc;
}

void snapshot_list_free(struct snapshot_list *list)
{
    free(list->at);
    *list = (struct snapshot_list){0};
}

static const struct snapshot_entry *find(const struct snapshot_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->at[i].name, name))
            return &list->at[i];
    return NULL;
}

const struct snapshot_entry *snapshot_list_find(const struct snapshot_list *list,
                                                const struct recording *r, const char *name,
                                                struct err *e)
{
    const struct snapshot_entry *entry = find(list, name);
    char names[512] = "";
    size_t len = 0;

    if (entry)
        return entry;
    for (size_t i = 0; i < list->count; i++) {
        if (len + SNAPSHOT_NAME_MAX + 8 > sizeof names) {
            snprintf(names + len, sizeof names - len, ", ...");
            break;
        }
        len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", i ? ", " : "",
                                list->at[i].name);
    }
    if (list->count)
        err_set(e, STATUS_ERROR, "%.300s has no snapshot '%s'; it has: %s", recording_path(r), name,
                names);
    else
        err_set(e, STATUS_ERROR, "%.300s has no snapshots; dittovm snapshot makes one",
                recording_path(r));
    return NULL;
}

static const struct snapshot_entry *last_before(const struct snapshot_list *list, uint64_t ordinal,
                                                bool live)
{
    const struct snapshot_entry *best = NULL;

    for (size_t i = 0; i < list->count; i++) {
        const struct snapshot_entry *s = &list->at[i];
        if (s->ordinal <= ordinal && (!best || s->ordinal > best->ordinal) && (s->live || !live))
            best = s;
    }
    return best;
}

int snapshot_list_find_point(const struct snapshot_list *list, const struct recording *r,
                             const char *name, uint64_t last, uint64_t *point, struct err *e)
{
    struct err missing;
    const struct snapshot_entry *entry =
        mark_place_is(name) ? NULL : snapshot_list_find(list, r, name, &missing);

    if (mark_place_is(name)) {
        if (mark_place_find(r, name, point, e) < 0)
            return -1;
    } else if (entry) {
        *point = entry->ordinal;
    } else if (parse_number(name, UINT64_MAX - 1, point) < 0) {
        *e = missing;
        return -1;
    }
    if (*point > last)
        return err_set(e, STATUS_ERROR, "%s has %llu sync points; there is no %llu",
                       recording_path(r), (unsigned long long)last, (unsigned long long)*point);
    return 0;
}

const struct snapshot_entry *snapshot_list_before(const struct snapshot_list *list,
                                                  uint64_t ordinal)
{
    return last_before(list, ordinal, false);
}

const struct snapshot_entry *snapshot_list_live_before(const struct snapshot_list *list,
                                                       uint64_t ordinal)
{
    return last_before(list, ordinal, true);
}

int snapshot_list_check_name(const struct snapshot_list *list, const struct recording *r,
                             const char *name, struct err *e)
{
    if (find(list, name))
        return err_set(e, STATUS_ERROR, "%s has a snapshot '%s' already; give it another name",
                       recording_path(r), name);
    if (list->count == SNAPSHOTS_MAX)
        return err_set(e, STATUS_ERROR, "%s has as many snapshots as it may have",
                       recording_path(r));
    return 0;
}

void snapshot_list_new_name(const struct snapshot_list *list, char name[SNAPSHOT_NAME_MAX + 1])
{
    uint64_t number, last = 0;

    for (size_t i = 0; i < list->count; i++)
        if (parse_number(list->at[i].name, UINT64_MAX - 1, &number) == 0 && number > last)
            last = number;
    snprintf(name, SNAPSHOT_NAME_MAX + 1, "%" PRIu64, last + 1);
}

uint64_t snapshot_entry_bytes(const struct snapshot_entry *entry)
{
    return entry->len + entry->new_chunks * CHUNK_MAX_BYTES;
}

/* ---- one of them ---- */

/* Whoever made it did not know MXCSR: behind inexact results it is another (0x1fa0). */
static void guess_mxcsr(struct player_mark *mark)
{
    for (unsigned i = 0; i < mark->cpu_count; i++)
        if (!mark->cpus[i].state.fpu.mxcsr)
            mark->cpus[i].state.fpu.mxcsr = MXCSR_RESET;
}

int snapshot_read(const struct recording *r, const struct snapshot_entry *entry, uint64_t pages,
                  struct snapshot *s, struct err *e)
{
    *s = (struct snapshot){0};
    if (entry->pages > pages) /* before memory is asked for as many */
        return bad(r, "a snapshot has pages that there are not", e);

    struct stream_reader *in = stream_open(r, STREAM_SNAPSHOTS, e);
    uint8_t *data = malloc(entry->len);
    int rc = 0;

    if (in && !data)
        err_set(e, STATUS_ERROR, "out of memory");
    if (!in || !data) {
        stream_close(in);
        free(data);
        return -1;
    }
    stream_seek(in, entry->offset);
    if (stream_read(in, data, entry->len) < 0) {
        rc = stream_error(in, e);
    } else {
        struct cursor c = cursor_of(data, entry->len);
        if (!snapshot_decode(&c, s))
            rc = bad(r, "a snapshot makes no sense", e);
        else if (recording_version(r) < RECORDING_MXCSR)
            guess_mxcsr(&s->mark);
    }
    for (size_t i = 0; rc == 0 && i < s->run_count; i++) {
        const struct page_run *run = &s->runs[i];
        const uint64_t last = run->chunk + (run->same ? 0ull : run->count - 1);
        if ((uint64_t)run->page + run->count > pages || last > recording_chunks(r))
            rc = bad(r, "a snapshot has pages that there are not", e);
    }
    if (rc < 0)
        snapshot_free(s);
    free(data);
    stream_close(in);
    return rc;
}

int recording_last_sync(const struct recording *r, uint64_t *ordinal, struct err *e)
{
    struct stream_reader *in = stream_open(r, STREAM_SYNCS, e);
    struct sync_point last = {0}, sync;
    int rc = in ? 0 : -1;
    size_t got;

    *ordinal = 0;
    while (rc == 0 && stream_left(in)) {
        const uint8_t *data = stream_peek(in, SYNC_MAX_BYTES, &got);
        struct cursor c = cursor_of(data, data ? got : 0);
        if (stream_bad(in))
            rc = stream_error(in, e);
        else if (!sync_decode(&c, &last, &sync))
            rc = bad(r, "a sync point makes no sense", e);
        else
            stream_skip(in, got - cursor_left(&c));
        *ordinal += rc == 0;
    }
    stream_close(in);
    return rc;
}

/* ---- as users say it ---- */

/* Where the name of a place begins that may have any characters in it; NULL: it is none. */
static const char *find_mark_place(const char *text)
{
    const char *mark = strstr(text, "@mark:"), *boot = strstr(text, "@boot:");

    return mark ? mark : boot;
}

int snapshot_place_parse(const char *text, struct snapshot_place *place, struct err *e)
{
    const char *mark = find_mark_place(text), *at = mark ? mark : strrchr(text, '@');
    size_t len = strlen(text);

    *place = (struct snapshot_place){0};
    if (mark && strlen(mark + 1) > PLACE_NAME_MAX)
        return err_set(e, STATUS_USAGE, "a mark's text has at most %u bytes", MARK_MAX);
    if (at && access(text, F_OK) != 0 && (mark || snapshot_name_valid(at + 1))) {
        len = (size_t)(at - text);
        strcpy(place->name, at + 1);
    }
    if (len >= sizeof place->path)
        return err_set(e, STATUS_USAGE, "the name of the recording is too long");
    memcpy(place->path, text, len);
    return 0;
}
