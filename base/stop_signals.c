#include "base/stop_signals.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

/* A handler has nothing but what is static. */
static _Atomic(const struct stopper *) current;
static atomic_int came;
static atomic_bool stood_in;

static void on_signal(int signal)
{
    const struct stopper *stopper = atomic_load(&current);

    came = signal;
    if (stopper)
        stopper->stop(stopper->opaque);
}

void stop_signals_call(const struct stopper *stopper)
{
    struct sigaction action = {.sa_handler = on_signal};

    atomic_store(&current, stopper);
    sigemptyset(&action.sa_mask);
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
    if (stopper && came)
        stopper->stop(stopper->opaque);
}

const atomic_int *stop_signals_came(void)
{
    return &came;
}

bool stop_signals_wanted(void)
{
    sigset_t pending;
    bool wanted = came || stood_in;

    sigpending(&pending);
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
        wanted |= sigismember(&pending, signals[i]) == 1;
    return wanted;
}

void stop_signals_stand_in(void)
{
    stood_in = true;
}

void stop_signals_block(void)
{
    sigset_t set;

    sigemptyset(&set);
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&set, signals[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}
