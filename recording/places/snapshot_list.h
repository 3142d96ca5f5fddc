#ifndef RECORDING_PLACES_SNAPSHOT_LIST_H
#define RECORDING_PLACES_SNAPSHOT_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "recording/places/mark_list.h"
#include "recording/reader.h"
#include "recording/snapshot.h"

/* The snapshots of a recording: finding them, beginning a replay at one. */

struct snapshot_entry {
    char name[SNAPSHOT_NAME_MAX + 1];
    uint64_t ordinal;    /* of the sync point where it is */
    uint64_t tsc;        /* of the guest's last RDTSC before it, ns; 0: there was none */
    uint64_t pages;      /* that differ from the machine's beginning */
    uint64_t new_chunks; /* of these, those that the recording did not have before */
    uint64_t offset;     /* of its record in STREAM_SNAPSHOTS, behind the length */
    uint64_t len;
    uint64_t live; /* the last of these, for going live from there; 0: it has none */
};

struct snapshot_list {
    struct snapshot_entry *at; /* in the order in which they were made */
    size_t count, capacity;
};

/* Find what snapshots a recording has; -1 when they make no sense. */
int snapshot_list_load(struct snapshot_list *list, const struct recording *r, struct err *e);
void snapshot_list_free(struct snapshot_list *list);
int snapshot_list_add(struct snapshot_list *list, const struct snapshot_entry *entry,
                      struct err *e);
/* What a snapshot says of itself. */
void snapshot_entry_init(struct snapshot_entry *entry, const struct snapshot *s);

/* NULL, with an error that lists the names there are. */
const struct snapshot_entry *snapshot_list_find(const struct snapshot_list *list,
                                                const struct recording *r, const char *name,
                                                struct err *e);
/* The sync point that a place's name means, in a recording of `last` of them: one that
 * mark_place_is(), or a snapshot's name; a number that is none is a sync point's. */
int snapshot_list_find_point(const struct snapshot_list *list, const struct recording *r,
                             const char *name, uint64_t last, uint64_t *point, struct err *e);
/* The last one at or before a sync point, or NULL; of all, or of those one can go live from. */
const struct snapshot_entry *snapshot_list_before(const struct snapshot_list *list,
                                                  uint64_t ordinal);
const struct snapshot_entry *snapshot_list_live_before(const struct snapshot_list *list,
                                                       uint64_t ordinal);
/* -1 unless a snapshot could be added with this name. */
int snapshot_list_check_name(const struct snapshot_list *list, const struct recording *r,
                             const char *name, struct err *e);
/* A number that is no snapshot's name yet, as its name. */
void snapshot_list_new_name(const struct snapshot_list *list, char name[SNAPSHOT_NAME_MAX + 1]);

/* Bytes in the recording that are there for it, before compression. */
uint64_t snapshot_entry_bytes(const struct snapshot_entry *entry);

/* The whole of a snapshot (the caller frees it), of a machine with so many pages of RAM. */
int snapshot_read(const struct recording *r, const struct snapshot_entry *entry, uint64_t pages,
                  struct snapshot *s, struct err *e);

/* How many sync points a recording has, which is the last one's number. */
int recording_last_sync(const struct recording *r, uint64_t *ordinal, struct err *e);

/* "REC" or "REC@NAME", as users say it. A file that is called so comes first. */
struct snapshot_place {
    char path[4096];
    char name[PLACE_NAME_MAX + 1]; /* of a snapshot, a number, mark:TEXT or boot:N; "": none */
};
int snapshot_place_parse(const char *text, struct snapshot_place *place, struct err *e);

#endif
