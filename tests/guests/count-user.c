#include "tests/guests/guest.h"

#define TICKS 40

/* The same at CPL3. */
static uint64_t n, count;

static void user(void)
{
    uint64_t passes = 0;

    UNTIL_TICKS(n, "inc %0", "+r"(passes));
    count = passes;
    leave_user();
}

static void done(void)
{
    report_ticks(n);
    report("count", count);
}

void guest_main(void)
{
    n = parameter("ticks", TICKS);
    timer_start(100);
    enter_user(user, done);
}
