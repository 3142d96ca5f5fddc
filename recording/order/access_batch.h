#ifndef RECORDING_ORDER_ACCESS_BATCH_H
#define RECORDING_ORDER_ACCESS_BATCH_H

#include "recording/order/access.h"

/*
 * A vCPU that comes to one page may get others with it (vmm/kvm/views.h). In the list these
 * accesses are a *batch*: they follow each other, of one vCPU and at one point. Its program does
 * not order them, since it runs on only when it has them all; so the list may have them in any
 * order.
 *
 * Sort each batch: what another vCPU has accessed last comes first. Where the other one has got
 * them one after another, to have waited for the last is to have waited for all, and a log that
 * leaves out what follows from others (recording/order/order_ditto.c) holds one constraint instead
 * of one for each. A load and a store of the same object in a batch become one store: nothing is
 * between.
 */
void access_list_sort_batches(struct access_list *list);

#endif
