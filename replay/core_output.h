#ifndef REPLAY_CORE_OUTPUT_H
#define REPLAY_CORE_OUTPUT_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"

/* The file that a core is written to, and who waits for it. */
struct core_output {
    int fd;
    const char *path;                              /* what errors call the file */
    const atomic_int *stop;                        /* writing fails as soon as this is not 0 */
    void (*progress)(void *opaque, uint64_t done); /* bytes of memory; NULL: nobody is told */
    void *opaque;
    uint64_t bytes; /* of memory, in pages that are not zero; counted by who writes */
};

/* All of `data`; -1 with *e. */
int core_output_write(const struct core_output *out, const void *data, uint64_t len,
                      uint64_t offset, struct err *e);
/* So many bytes of memory are done. -1 with *e: it is to stop. */
int core_output_done(const struct core_output *out, uint64_t done, struct err *e);

#endif
