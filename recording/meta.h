#ifndef RECORDING_META_H
#define RECORDING_META_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mac.h"
#include "recording/reader.h"

/* What a recording says of its machine: STREAM_META, a JSON object. This is the one place that
 * reads what a replay needs of it; who wrote it may be hostile. */

/* To be released with json_decref(). NULL, with *e, when it says too little for a machine. */
json_t *meta_load(const struct recording *recording, struct err *e);
/* Bytes of guest memory; 0 when it does not say, or no machine has as much. */
uint64_t meta_memory(const json_t *meta);
/* 1 to MAX_VCPUS; 0 when it does not say. */
unsigned meta_cpus(const json_t *meta);
/* Whether they run at the same time (--smp crew). */
bool meta_is_crew(const json_t *meta);
/* Name of the clock (vmm/points/clock.h) that it was recorded with; NULL when it does not say. */
const char *meta_clock(const json_t *meta);
/* Whether CR4.TSD is dittovm's in that machine (vmm/kvm/cr4.h). */
bool meta_owns_tsd(const json_t *meta);
/* What FXSAVE stores as MXCSR_MASK on the CPU that it ran on; 0 when it does not say. */
uint32_t meta_mxcsr_mask(const json_t *meta);
/* Which frames have RF set on the CPU that it ran on (vmm/kvm/frame_rf.h has the names). A
 * recording that does not say is taken to be of a QEMU that sets it in none, as nearly all of
 * before are. */
const char *meta_frame_rf(const json_t *meta);
/* Its NICs, at most MAX_NICS, and the address of each. */
unsigned meta_nics(const json_t *meta, uint8_t macs[][MAC_BYTES]);
/* The command that the machine runs, an object with its "argv" and "root"; NULL: it runs none. */
const json_t *meta_command(const json_t *meta);
/* The time of day at its device time 0, ns since 1970 UTC; 0 when it does not say. */
uint64_t meta_epoch_ns(const json_t *meta);
/* Whether it begins where the machine stands in a HLT: one that went live there. */
bool meta_begins_halted(const json_t *meta);
/* Its disks, and what is said of one: a "path", "size", "digest", and what is not as ever. */
unsigned meta_disks(const json_t *meta);
const json_t *meta_disk(const json_t *meta, unsigned index);

#endif
