#ifndef RECORDING_DOUBTS_H
#define RECORDING_DOUBTS_H

#include <stdint.h>

#include "recording/reader.h"
#include "recording/streams.h"

/* A recorder says a few. */
#define DOUBTS_MAX 1024u

/* What a recording's recorder could not make exact, and said so (recorder_doubt()). */
struct doubt {
    uint64_t ordinal;         /* of the last sync point before */
    char text[DOUBT_MAX + 1]; /* cleaned (base/text.h) */
};

/* Call `each` for every doubt, in order. -1: the recording is damaged. */
int doubts_read(const struct recording *r, void (*each)(void *opaque, const struct doubt *doubt),
                void *opaque, struct err *e);

#endif
