#ifndef RECORDING_ORDER_ACCESSES_H
#define RECORDING_ORDER_ACCESSES_H

#include "base/err.h"
#include "recording/order/access.h"
#include "recording/reader.h"

/*
 * The transitions of shared memory in a recording (recording/order/access.h), of a machine with
 * this many vCPUs (1 to MAX_VCPUS). A recording may have none. -1 with *e when they make no sense,
 * or are more than ACCESSES_MAX; *list, which is the caller's to free, is empty then.
 */
int accesses_load(struct access_list *list, const struct recording *r, unsigned vcpus,
                  struct err *e);

#endif
