#ifndef VMM_DESCRIPTION_H
#define VMM_DESCRIPTION_H

#include <jansson.h>

#include "devices/disk.h"
#include "replay/reader.h"
#include "vmm/machine.h"
#include "vmm/run_options.h"
#include "vmm/run_sources.h"

/* What a recording says about itself and its machine: its META, as JSON. */

/* The text for the recording of a machine that boots; the caller frees it. NULL: some name in it is
 * not valid UTF-8. */
char *description_of_boot(const struct run_options *o, const struct run_sources *s,
                          const struct machine *m, const struct machine_boot *boot);
/* The text for one that goes on from sync point `sync` of the recording o->from, whose description
 * is `before`; disk: the image's name, or NULL. */
char *description_of_live(const struct run_options *o, const json_t *before, uint64_t sync,
                          const char *disk, const struct machine *m);

/* The description in a recording: an object, to be released with json_decref(). */
json_t *description_load(const struct recording *recording, struct err *e);
/* Bytes of guest memory; 0 when it does not say, or no machine has as much. */
uint64_t description_memory(const json_t *description);
/* 1 to MAX_VCPUS; 0 when it does not say. */
unsigned description_cpus(const json_t *description);
/* The image that the recorded machine's disk was, or NULL if it had none. */
const char *description_disk(const json_t *description);

/* What was made of the kernel's code: all zeroes when it does not say. */
void description_kernel_code(const json_t *description, struct kernel_code *code);
/* Whether CR4.TSD is dittovm's in that machine (vmm/cr4.h). */
bool description_owns_tsd(const json_t *description);

/* The kernel's code, for forced points: machine_trust_code() with what the description says. */
void description_trust_code(const json_t *description, struct machine *m);

/*
 * Whether `disk` is the one that was recorded with, as far as size and samples of its contents
 * tell: its first 64 KiB and 4 KiB at each of 255 places spread over it. All that the recorded
 * machine has read is compared by vmm/shadow.h. 0, or -1 with *e.
 */
int description_check_disk(const json_t *description, struct disk *disk, const char *path,
                           struct err *e);
/*
 * The recorded machine's disk as it was at the beginning, checked so, under an overlay: from the
 * image `path`, or from where it was (NULL). *disk is the caller's to close; NULL: the machine had
 * none. 0, or -1 with *e.
 */
int description_open_disk(const json_t *description, const char *path, const char *recording,
                          struct disk **disk, struct err *e);

#endif
