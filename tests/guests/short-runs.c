#include "tests/guests/guest.h"

#define TICKS   120
#define LONGEST 20011

/*
 * Short loops between RDTSCs at CPL3, each of which is a sync point: a forced point lies some
 * hundred branches behind one, near enough to be found by stepping there. Where loops are shorter
 * than user code is watched for (vmm/points/look.c) there are few.
 */
static uint64_t limit, longest, sum;

static void user(void)
{
    while (ticks < limit) {
        for (uint64_t i = 1000 + sum % longest; i--;)
            sum = mix(sum, i);
        sum = mix(sum, rdtsc_user());
    }
    leave_user();
}

static void done(void)
{
    report_ticks(limit);
    report("sum", sum);
}

void guest_main(void)
{
    limit = parameter("ticks", TICKS);
    longest = parameter("longest", LONGEST);
    timer_start(100);
    enter_user(user, done);
}
