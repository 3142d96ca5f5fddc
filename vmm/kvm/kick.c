#include "vmm/kvm/kick.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A handler has nothing but what is static. */
static _Thread_local const struct kick_target *volatile own;

static void on_kick(int signal)
{
    const struct kick_target *target = own;

    (void)signal;
    if (target)
        target->kick(target->opaque);
}

static int catch_kicks(struct err *e)
{
    struct sigaction action = {.sa_handler = on_kick};

    sigemptyset(&action.sa_mask);
    if (sigaction(KICK_SIGNAL, &action, NULL) < 0)
        return err_set(e, STATUS_ERROR, "cannot catch a signal: %s", strerror(errno));
    return 0;
}

int kick_target_begin(struct kick_target *target, void (*kick)(void *opaque), void *opaque,
                      struct err *e)
{
    assert(!own);
    *target = (struct kick_target){
        .process = getpid(),
        .thread = (pid_t)syscall(SYS_gettid),
        .kick = kick,
        .opaque = opaque,
    };
    own = target;
    return catch_kicks(e);
}

void kick_target_end(struct kick_target *target)
{
    assert(own == target);
    own = NULL;
}

void kick_send(const struct kick_target *target)
{
    syscall(SYS_tgkill, target->process, target->thread, KICK_SIGNAL);
}

int kick_timer_create(timer_t *timer, struct err *e)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = KICK_SIGNAL};

    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    if (catch_kicks(e) < 0)
        return -1;
    if (timer_create(CLOCK_MONOTONIC, &event, timer) < 0)
        return err_set(e, STATUS_ERROR, "cannot make a timer: %s", strerror(errno));
    return 0;
}
