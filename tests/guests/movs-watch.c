#include "tests/guests/guest.h"

#define ROUNDS 40
#define DEVICE 0xd0000ff0u

static volatile uint8_t word;

/* A byte that is to be watched is read from a device by MOVS, and cleared: nearly each interrupt
 * comes where a MOVS is half done. Parameters: rounds=; spins=, of a loop behind each MOVS, where
 * interrupts come then; hz=, how many. */
void guest_main(void)
{
    const uint64_t n = parameter("rounds", ROUNDS), spins = parameter("spins", 0);

    timer_start((unsigned)parameter("hz", 2000));
    for (uint64_t i = 0; i < n; i++) {
        uint64_t from = DEVICE, to = (uint64_t)&word;
        __asm__ volatile("movsb" : "+S"(from), "+D"(to) : : "memory");
        for (volatile uint64_t spin = 0; spin < spins; spin++)
            ;
        word = 0;
    }
    report("there were ticks", ticks > 0);
}
