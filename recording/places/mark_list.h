#ifndef RECORDING_PLACES_MARK_LIST_H
#define RECORDING_PLACES_MARK_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "recording/reader.h"

/* The marks of a recording, and where the machine in it booted again. */

struct mark_entry {
    uint64_t ordinal, time_ns; /* sync point; device time there */
    bool by_guest;
    char text[MARK_MAX + 1];
};

struct boot_entry {
    uint64_t ordinal, time_ns;
};

struct mark_list {
    struct mark_entry *marks; /* both in the order of the recording */
    struct boot_entry *boots; /* the first one is where the recording begins */
    size_t mark_count, boot_count;
    size_t mark_room, boot_room;
};

/* Find them all, by going through all events; -1 when these make no sense. Of a recording that is
 * still being made: those there are so far. */
int mark_list_load(struct mark_list *list, const struct recording *r, struct err *e);
void mark_list_free(struct mark_list *list);

/*
 * Places as users say them: "mark:TEXT", the first mark with this text, "mark:TEXT#N", the N-th of
 * them; "boot:N", the first sync point of the N-th boot; of the first boot it is 0.
 */
#define PLACE_NAME_MAX (sizeof "mark:#65536" - 1 + MARK_MAX)
bool mark_place_is(const char *name);
/* The sync point of such a place; -1, in a line: there is none. */
int mark_place_find(const struct recording *r, const char *name, uint64_t *ordinal, struct err *e);

#endif
