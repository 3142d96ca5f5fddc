#ifndef RECORDING_ORDER_ORDER_CHECK_H
#define RECORDING_ORDER_ORDER_CHECK_H

#include "base/err.h"
#include "recording/order/order.h"

/*
 * Replays an order log without a machine: vCPUs that do the accesses of a list, each its own in
 * their order, and otherwise run as a schedule has them. Every load must find the store that it
 * found in the list, and every store come after the one it came after there.
 */
enum order_schedule {
    ORDER_SCHEDULE_RANDOM,
    ORDER_SCHEDULE_AHEAD,  /* of those that may, who has done most: they part as far as they can */
    ORDER_SCHEDULE_BEHIND, /* who has done least */
    ORDER_SCHEDULE_FIRST,  /* the one with the lowest number */
    ORDER_SCHEDULE_LAST,   /* the highest */
    ORDER_SCHEDULES,
};

/*
 * 0; or -1 with STATUS_DIVERGED and what went wrong: the log does not fit the list, all vCPUs wait
 * (deadlock), somebody found another store, the log is not used up. seed is of the random schedule.
 */
int order_check(const struct order_encoder *encoder, const struct order_log *log,
                const struct access_list *list, enum order_schedule schedule, uint64_t seed,
                struct err *e);

/*
 * How long a replay takes in which vCPUs wait for nothing but each other's accesses, by the time
 * the slowest vCPU takes alone: 1 is the least. Time is in points (recording/order/access.h): from
 * one access to its next a vCPU takes as many as in the list, none where both are at the same
 * point, and behind another's access it comes a point later. Not 0 as a pace has each of these
 * times changed at random, to anything up to twice as much, since a replay is slower in some places
 * and faster in others; the same for every log. Errors as above.
 */
int order_time(const struct order_encoder *encoder, const struct order_log *log,
               const struct access_list *list, uint64_t pace, double *time, struct err *e);

#endif
