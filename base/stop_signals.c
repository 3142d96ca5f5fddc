#include "base/stop_signals.h"

#include <pthread.h>

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

void stop_signals_catch(void (*handler)(int signal))
{
    struct sigaction action = {.sa_handler = handler};

    sigemptyset(&action.sa_mask);
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
}

void stop_signals_block(void)
{
    sigset_t set;

    sigemptyset(&set);
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&set, signals[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}
