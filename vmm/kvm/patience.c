#include "vmm/kvm/patience.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/now.h"
#include "vmm/kvm/kick_timer.h"

static void on_signal(int signal)
{
    (void)signal; /* that it came is enough to end KVM_RUN */
}

/* A machine that is recorded in this process has a handler already. */
static int catch_signal(struct err *e)
{
    struct sigaction action;

    if (sigaction(KICK_SIGNAL, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
        action.sa_handler != SIG_IGN)
        return 0;
    action = (struct sigaction){.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    if (sigaction(KICK_SIGNAL, &action, NULL) < 0)
        return err_set(e, STATUS_ERROR, "cannot catch a signal: %s", strerror(errno));
    return 0;
}

int patience_begin(struct patience *p, uint64_t seconds, struct err *e)
{
    const struct itimerspec when = {{.tv_sec = 1}, {.tv_sec = (time_t)seconds}};

    assert(seconds > 0);
    p->until = host_now_ns() + seconds * 1000000000u;
    if (catch_signal(e) < 0 || kick_timer_create(&p->timer, e) < 0)
        return -1;
    const int rc = timer_settime(p->timer, 0, &when, NULL);
    assert(rc == 0);
    return 0;
}

void patience_end(struct patience *p)
{
    timer_delete(p->timer);
}
