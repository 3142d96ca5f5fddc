#include "tests/guests/guest.h"

/* The smallest run: some output, then power off. */
void guest_main(void)
{
    put("hello from a bare machine\n");
}
