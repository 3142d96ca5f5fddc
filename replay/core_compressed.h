#ifndef REPLAY_CORE_COMPRESSED_H
#define REPLAY_CORE_COMPRESSED_H

#include "replay/core.h"
#include "replay/core_output.h"

/*
 * The same core in the format of kdump's makedumpfile (version 6 of its header), in blocks of 4096
 * bytes; crash reads it, and whatever uses libkdumpfile:
 *
 *     header | its second part, notes | bitmap of RAM | bitmap of what is here | descriptors | data
 *
 * A descriptor for each page of RAM, in the order of its addresses: where its bytes are, and
 * whether zlib has packed them. All pages of zeroes share theirs.
 */
int core_compressed_write(const struct core *core, struct core_output *out, struct err *e);

#endif
