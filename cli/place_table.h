#ifndef CLI_PLACE_TABLE_H
#define CLI_PLACE_TABLE_H

#include <jansson.h>

#include "recording/places/mark_list.h"
#include "recording/places/snapshot_list.h"

/* The places in a recording that have names, as `dittovm info` shows them. */

/* Arrays, which the caller owns. "bytes" of a snapshot: what is in the recording for it, before
 * compression. */
json_t *snapshot_table_json(const struct snapshot_list *list);
json_t *mark_table_json(const struct mark_list *list);
json_t *boot_table_json(const struct mark_list *list);
/* On stdout; nothing where there are none, of boots where there is one. */
void snapshot_table_show(const struct snapshot_list *list);
void mark_table_show(const struct mark_list *list);
void boot_table_show(const struct mark_list *list);

#endif
