#include "tests/guests/guest.h"

/* An exception without an IDT. */
void guest_main(void)
{
    const struct table_pointer none = {0, 0};

    put("about to triple fault\n");
    __asm__ volatile("lidt %0\n\tud2" : : "m"(none));
}
