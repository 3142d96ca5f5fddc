#include "cli/place_table.h"

#include <stdio.h>

#include "base/text.h"

json_t *snapshot_table_json(const struct snapshot_list *list)
{
    json_t *j = json_array();

    for (size_t i = 0; i < list->count; i++) {
        const struct snapshot_entry *s = &list->at[i];
        json_array_append_new(
            j, json_pack("{s:s, s:I, s:f, s:I, s:I, s:I, s:b}", "name", s->name, "sync_point",
                         (json_int_t)s->ordinal, "guest_seconds", (double)s->tsc / 1e9, "pages",
                         (json_int_t)s->pages, "new_pages", (json_int_t)s->new_chunks, "bytes",
                         (json_int_t)snapshot_entry_bytes(s), "live", s->live != 0));
    }
    return j;
}

void snapshot_table_show(const struct snapshot_list *list)
{
    char time[32];

    if (!list->count)
        return;
    printf(
        "  snapshots     sync point   guest time        pages          new    raw bytes  live\n");
    for (size_t i = 0; i < list->count; i++) {
        const struct snapshot_entry *s = &list->at[i];
        snprintf(time, sizeof time, s->tsc ? "%.3f s" : "-", (double)s->tsc / 1e9);
        printf("    %-11s %11llu %12s %12llu %12llu %12llu  %s\n", s->name,
               (unsigned long long)s->ordinal, time, (unsigned long long)s->pages,
               (unsigned long long)s->new_chunks, (unsigned long long)snapshot_entry_bytes(s),
               s->live ? "yes" : "no");
    }
}

/* ---- marks ---- */

json_t *mark_table_json(const struct mark_list *list)
{
    json_t *j = json_array();

    for (size_t i = 0; i < list->mark_count; i++) {
        const struct mark_entry *m = &list->marks[i];
        json_array_append_new(j, json_pack("{s:s, s:I, s:f, s:b}", "text", m->text, "sync_point",
                                           (json_int_t)m->ordinal, "guest_seconds",
                                           (double)m->time_ns / 1e9, "by_guest", m->by_guest));
    }
    return j;
}

void mark_table_show(const struct mark_list *list)
{
    char time[32];

    if (!list->mark_count)
        return;
    printf("  marks         sync point   guest time\n");
    for (size_t i = 0; i < list->mark_count; i++) {
        const struct mark_entry *m = &list->marks[i];
        snprintf(time, sizeof time, "%.3f s", (double)m->time_ns / 1e9);
        text_print(stdout, "    %-7s %15llu %12s  %s\n", m->by_guest ? "inside" : "outside",
                   (unsigned long long)m->ordinal, time, m->text);
    }
}

/* ---- boots ---- */

json_t *boot_table_json(const struct mark_list *list)
{
    json_t *j = json_array();

    for (size_t i = 0; i < list->boot_count; i++) {
        const struct boot_entry *b = &list->boots[i];
        json_array_append_new(j, json_pack("{s:I, s:I, s:f}", "boot", (json_int_t)(i + 1),
                                           "sync_point", (json_int_t)b->ordinal, "guest_seconds",
                                           (double)b->time_ns / 1e9));
    }
    return j;
}

void boot_table_show(const struct mark_list *list)
{
    char time[32];

    if (list->boot_count < 2)
        return;
    printf("  boots         sync point   guest time\n");
    for (size_t i = 0; i < list->boot_count; i++) {
        const struct boot_entry *b = &list->boots[i];
        snprintf(time, sizeof time, "%.3f s", (double)b->time_ns / 1e9);
        printf("    %-7zu %15llu %12s\n", i + 1, (unsigned long long)b->ordinal, time);
    }
}
