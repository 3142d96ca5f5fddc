#include "tests/guests/guest.h"

/* The keyboard controller's reset line. */
void guest_main(void)
{
    put("about to reset\n");
    while (inb(0x64) & 2)
        continue;
    outb(0x64, 0xfe);
    for (;;)
        __asm__ volatile("pause");
}
