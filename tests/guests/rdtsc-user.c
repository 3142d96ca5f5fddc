#include "tests/guests/guest.h"

/* RDTSC at CPL3, which raises #GP (CR4.TSD) and is emulated without the guest's handler. */
static uint64_t sum;

static void user(void)
{
    for (unsigned i = 0; i < 200; i++)
        sum = mix(sum, rdtsc_user());
    leave_user();
}

static void done(void)
{
    report("sum", sum);
}

void guest_main(void)
{
    enter_user(user, done);
}
