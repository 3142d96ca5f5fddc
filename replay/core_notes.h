#ifndef REPLAY_CORE_NOTES_H
#define REPLAY_CORE_NOTES_H

#include "base/bytes.h"
#include "replay/core.h"

/* Append the notes of a core (core_file.h), as ELF has them. Where in `out` the text of VMCOREINFO
 * begins; 0: there is none. */
size_t core_put_notes(struct bytes *out, const struct core *core);

#endif
