#ifndef CLI_SNAPSHOT_TABLE_H
#define CLI_SNAPSHOT_TABLE_H

#include <jansson.h>

#include "recording/snapshot_list.h"

/* The snapshots of a recording, as `dittovm info` shows them. */

/* An array, which the caller owns. "bytes": what is in the recording for one, before compression.
 */
json_t *snapshot_table_json(const struct snapshot_list *list);
/* On stdout; nothing where there are none. */
void snapshot_table_show(const struct snapshot_list *list);

#endif
