#include "tests/guests/guest.h"

/* HLT with interrupts off: nothing can wake this machine up again. */
void guest_main(void)
{
    put("about to halt\n");
    __asm__ volatile("cli\n\thlt");
    put("awake again\n");
}
