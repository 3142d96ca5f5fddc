#ifndef CLI_DESCRIPTION_H
#define CLI_DESCRIPTION_H

#include <jansson.h>

#include "cli/run_options.h"
#include "cli/run_sources.h"
#include "vmm/machine/machine.h"

/* What a recording says about itself and its machine: its META, as JSON. recording/meta.h and
 * replay/live/recorded_machine.h read it. */

/* The text for the recording of a machine that boots; the caller frees it. NULL: some name in it is
 * not valid UTF-8. */
char *description_of_boot(const struct run_options *o, const struct run_sources *s,
                          const struct machine *m, const struct machine_boot *boot);
/* The text for one that goes on from sync point `sync` of the recording o->from, whose description
 * is `before`. */
char *description_of_live(const struct run_options *o, const json_t *before, uint64_t sync,
                          const struct machine *m);

#endif
