#ifndef VMM_KVM_PATIENCE_H
#define VMM_KVM_PATIENCE_H

#include <stdint.h>
#include <time.h>

#include "base/err.h"

/*
 * A bound for what a vCPU may never come to: its thread gets a signal every second, at which
 * vcpu_run() returns EXIT_KICK; the one at `until`, by host_now_ns(), or later is the last that it
 * waits for. The thread that began it ends it.
 */
struct patience {
    timer_t timer;
    uint64_t until;
};

int patience_begin(struct patience *p, uint64_t seconds, struct err *e);
void patience_end(struct patience *p);

#endif
