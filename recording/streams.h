#ifndef RECORDING_STREAMS_H
#define RECORDING_STREAMS_H

#include "recording/format.h"

/* What the container's streams hold (recording/event.h describes the records). */
enum stream_kind {
    STREAM_SYNCS = 0,
    STREAM_INPUTS = 1,
    STREAM_TSC = 2,
    STREAM_EVENTS = 3,
    STREAM_KINDS = 4,
};

/* AHEAD (recording/event.h) of vCPU 0, 1, ... MAX_VCPUS - 1. Empty but in a recording of vCPUs that
 * run at the same time. */
#define STREAM_AHEAD 16

/* What the recorder could not make exact (recorder_doubt()): varint(number of the last sync point
 * before), varint(length of the text), text. Not needed to replay. Empty where nothing was left to
 * chance. */
#define STREAM_DOUBTS 54
#define DOUBT_MAX     255u /* bytes of its text */

/* For each digest of all memory, in the order of the events that hold them: u64 that digest, and
 * the sums that name the pages in which another memory differs (mmu/page_sums.h). Not needed to
 * replay. */
#define STREAM_PAGE_SUMS 55

/* Transitions of shared memory between vCPUs that run at the same time (recording/order/access.h),
 * in one order for all. Empty where one vCPU runs at a time. Not needed to replay as yet. */
#define STREAM_ACCESSES 56

/* What the machine had written to its disk before its first instruction here: for every such 4 KiB
 * the numbers of cluster and chunk (recorder/live_state.h). Empty for a machine that boots. Not
 * needed to replay. */
#define STREAM_DISK 57
/* The devices before the first instruction: the bytes of pc_save() (devices/pc.h). Not needed to
 * replay. */
#define STREAM_DEVICES 58
/* Snapshots (recording/snapshot.h), in no order. Not needed to replay. */
#define STREAM_SNAPSHOTS 59
/* The machine before its first instruction: for every page of RAM that is not zero svarint(GFN -
 * last GFN - 1), svarint(chunk number - last chunk number - 1); both start at -1. */
#define STREAM_IMAGE 60
/* The state of each vCPU before its first instruction (vcpu_state_encode, vcpu_pending_encode),
 * vCPU 0 first; then u8: the console's UART has DLAB set (1), is in loopback (2); then, from format
 * 20 on, of each vCPU x87_last_encode(). */
#define STREAM_STATE 61

/* The guest kernel's symbols, in order of address (recording/symbol.h): varint(address - last
 * address), type letter, varint(length of the name), name. Not needed to replay; reports and
 * `dittovm symbols` use it. May be empty. */
#define STREAM_SYMBOLS 62

/* What landing on the forced points has cost in a replay; added by replays, the last one counts.
 * For each of them: varint(seconds since 1970), varint(duration in ns), varint(length of the
 * clock's name), name, varint(landings), and for each landing varint(ordinal - last ordinal),
 * varint(RIP), varint(CPL), varint(exits), varint(ns). Not needed to replay. */
#define STREAM_LANDINGS 63

_Static_assert(STREAM_KINDS <= STREAM_AHEAD && STREAM_AHEAD + 8 <= STREAM_DOUBTS &&
                   STREAM_LANDINGS < STREAM_COUNT,
               "streams do not overlap");

#endif
