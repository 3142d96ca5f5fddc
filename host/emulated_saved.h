#ifndef HOST_EMULATED_SAVED_H
#define HOST_EMULATED_SAVED_H

#include "host/emulated_args.h"

/*
 * A saved emulated host: started, with its agent waiting for the request, and nothing of the outer
 * machine in it yet. A command that begins there need not wait for a kernel to start. The first one
 * that could makes it, in ${XDG_CACHE_HOME:-$HOME/.cache}/dittovm, for this QEMU, these two files
 * and this amount of memory; one that was not used for a week is removed.
 */

/*
 * A descriptor of the saved host to begin in, for EMULATED_STATE_FD; the caller closes it. -1 where
 * there is none: the directory cannot be written, the command needs a host of its own kind, or a
 * try to make or use one has failed before. start_seconds as emulated_relay() takes them.
 */
int emulated_saved_open(const struct emulated_options *o, const struct string_list *rw_dirs,
                        unsigned start_seconds);

/* The saved host could not be used: it is not tried again. */
void emulated_saved_give_up(const struct emulated_options *o);

#endif
