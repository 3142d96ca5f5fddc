#ifndef TESTS_TOOLS_CHILD_H
#define TESTS_TOOLS_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>

/* Before the first child: child_await() takes its end from here. */
static inline void child_block_ends(void)
{
    sigset_t ends;

    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ends, NULL);
}

/* The wait status of a child that has these seconds; *late: it took longer, and was killed
 * (SIGKILL). False: it is none. */
static inline bool child_await(pid_t child, double seconds, int *status, bool *late)
{
    const time_t whole = (time_t)seconds;
    const struct timespec limit = {whole, (long)((seconds - (double)whole) * 1e9)};
    sigset_t ends;

    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    *late = sigtimedwait(&ends, NULL, &limit) < 0;
    if (*late)
        kill(child, SIGKILL);
    if (waitpid(child, status, 0) != child)
        return false;
    if (*late) /* that of this end, too, or the next run would seem to have ended */
        sigtimedwait(&ends, NULL, &(struct timespec){0});
    return true;
}

#endif
