#include "tests/guests/guest.h"

/* The same at CPL3. */
static uint64_t count;

static void user(void)
{
    uint64_t n = 0;

    UNTIL_TICKS(40, "inc %0", : "+r"(n));
    count = n;
    leave_user();
}

static void done(void)
{
    report("ticks", 40);
    report("count", count);
}

void guest_main(void)
{
    timer_start(100);
    enter_user(user, done);
}
