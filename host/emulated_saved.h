#ifndef HOST_EMULATED_SAVED_H
#define HOST_EMULATED_SAVED_H

#include "host/emulated_args.h"

/*
 * A saved emulated host: started, with its agent waiting for the request, and nothing of the outer
 * machine in it yet. A command that begins there need not wait for a kernel to start. The first one
 * that could makes it, in ${XDG_CACHE_HOME:-$HOME/.cache}/dittovm, for this QEMU, these two files,
 * this amount of memory and this TSC. One that was not used for a week is removed by the next
 * command. Where making or using one was in vain, it is tried again after an hour.
 */

/*
 * A descriptor of the saved host to begin in, for EMULATED_STATE_FD; the caller closes it. -1 where
 * there is none: somebody makes it at the moment, the directory is not ours or cannot be written,
 * the TSC's frequency is unknown, the command has more than EMULATED_RW_DIRS_LEAST directories or
 * its user wants to see the console. start_seconds: how long a host may take to start.
 */
int emulated_saved_open(const struct emulated_options *o, const struct string_list *rw_dirs,
                        unsigned start_seconds);

/* It could not be used. */
void emulated_saved_give_up(const struct emulated_options *o);

#endif
