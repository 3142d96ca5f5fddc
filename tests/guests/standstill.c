#include "tests/guests/guest.h"

/*
 * It comes to a standstill: "how=1" sleeps and "how=2" spins, with nothing that could end it, how=0
 * ends. An input that is another than the first (tests/tools/flip_input) hangs it before.
 */
void guest_main(void)
{
    const uint64_t how = parameter("how", 0);
    const uint8_t status = inb(0x64);

    for (unsigned i = 0; i < 50; i++)
        if (inb(0x64) != status)
            for (;;)
                __asm__ volatile("");
    put("nothing comes any more\n");
    while (how == 1)
        __asm__ volatile("sti\n\thlt");
    while (how == 2)
        __asm__ volatile("");
}
