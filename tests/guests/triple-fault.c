#include "tests/guests/guest.h"

/* An exception without an IDT. */
void guest_main(void)
{
    struct __attribute__((packed)) {
        uint16_t limit;
        uint64_t base;
    } none = {0, 0};

    put("about to triple fault\n");
    __asm__ volatile("lidt %0\n\tud2" : : "m"(none));
}
