#ifndef VMM_KVM_KICK_H
#define VMM_KVM_KICK_H

#include <signal.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"

/*
 * Kicks: signals that bring a thread out of KVM_RUN, or out of its sleep. Whoever sent one, what is
 * kicked is what the thread runs.
 */
#define KICK_SIGNAL SIGUSR1

struct kick_target {
    pid_t process, thread;
    void (*kick)(
        void *opaque); /* async-signal-safe: vcpu_kick() of the vCPU that the thread runs */
    void *opaque;
};

/* Make the calling thread a target, from now on and until kick_target_end(), which it calls. -1,
 * with *e: the signal cannot be caught. */
int kick_target_begin(struct kick_target *target, void (*kick)(void *opaque), void *opaque,
                      struct err *e);
void kick_target_end(struct kick_target *target);
/* Kick it, from any thread, while it is one. */
void kick_send(const struct kick_target *target);
/* A timer that kicks the calling thread, or only interrupts one that is no target. The caller owns
 * it (timer_delete()). */
int kick_timer_create(timer_t *timer, struct err *e);

#endif
