#ifndef VMM_KVM_KICK_TIMER_H
#define VMM_KVM_KICK_TIMER_H

#include <time.h>

#include "base/err.h"

/* What brings a thread out of KVM_RUN, or out of its sleep; whoever runs vCPUs has a handler. */
#define KICK_SIGNAL SIGUSR1

/* A timer that sends it to the calling thread. The caller owns it (timer_delete()). */
int kick_timer_create(timer_t *timer, struct err *e);

#endif
