#include "vmm/kvm/kick_timer.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int kick_timer_create(timer_t *timer, struct err *e)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = KICK_SIGNAL};

    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &event, timer) < 0)
        return err_set(e, STATUS_ERROR, "cannot make a timer: %s", strerror(errno));
    return 0;
}
