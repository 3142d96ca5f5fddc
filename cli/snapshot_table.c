#include "cli/snapshot_table.h"

#include <stdio.h>

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
