#ifndef CLI_RUN_TO_END_H
#define CLI_RUN_TO_END_H

#include <stdint.h>

#include "cli/run_options.h"
#include "vmm/machine/machine.h"

/*
 * Run a machine that is ready to, until it ends or a signal comes, finish its recording, if there
 * is one (NULL: none), and say on stderr how it went. start: when it was begun to be made, of
 * host_now_ns(). -1, with the reason: what was recorded by then is finished, and replays.
 */
int run_to_end(const struct run_options *o, struct machine *m, struct recorder *recorder,
               uint64_t start, struct err *e);

#endif
