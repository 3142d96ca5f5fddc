#ifndef VMM_KVM_ISOLATED_H
#define VMM_KVM_ISOLATED_H

#include "base/err.h"

/* A trial of what this KVM really does, in a child process under a time limit, so that one which
 * hangs or crashes takes nothing else down. */
enum probe_result {
    PROBE_OK,
    PROBE_MISSING, /* this host does not offer it */
    PROBE_BROKEN,  /* it is offered and does something else */
    PROBE_RESULTS,
};

struct probe_outcome {
    enum probe_result result;
    char detail[232]; /* what was seen: one line, lower case */
};

/* Fill *o with a detail like printf's. */
void probe_says(struct probe_outcome *o, enum probe_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Run one probe in a child process. After limit_ms it is stopped and the outcome says so; a child
 * that does not even die of SIGKILL is left behind after two more seconds.
 */
void isolated_run(void (*run)(struct probe_outcome *), unsigned limit_ms, struct probe_outcome *o);

#endif
