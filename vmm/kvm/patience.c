#include "vmm/kvm/patience.h"

#include <assert.h>

#include "base/now.h"
#include "vmm/kvm/kick.h"

int patience_begin(struct patience *p, uint64_t seconds, struct err *e)
{
    const struct itimerspec when = {{.tv_sec = 1}, {.tv_sec = 1}};

    assert(seconds > 0);
    p->until = host_now_ns() + seconds * 1000000000u;
    if (kick_timer_create(&p->timer, e) < 0)
        return -1;
    const int rc = timer_settime(p->timer, 0, &when, NULL);
    assert(rc == 0);
    return 0;
}

void patience_end(struct patience *p)
{
    timer_delete(p->timer);
}
