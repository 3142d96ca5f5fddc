#include "base/deaf_thread.h"

#include <signal.h>
#include <stddef.h>

int deaf_thread_create(pthread_t *thread, void *(*run)(void *opaque), void *opaque)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int error = pthread_create(thread, NULL, run, opaque);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}
