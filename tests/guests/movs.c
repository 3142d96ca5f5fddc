#include "tests/guests/guest.h"

/* Interrupts that find the CPU inside long string moves. */
#define BUFFER_BYTES (2u << 20)

static uint8_t from[BUFFER_BYTES], to[BUFFER_BYTES];

static void copy(void *target, const void *source)
{
    uint64_t n = BUFFER_BYTES;

    __asm__ volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(n) : : "memory");
}

void guest_main(void)
{
    const uint64_t n = parameter("ticks", 20);
    uint64_t copies = 0, sum = 0;

    for (unsigned i = 0; i < BUFFER_BYTES; i++)
        from[i] = (uint8_t)(i * 2654435761u >> 24);
    timer_start(100);
    for (; ticks < n; copies++) {
        copy(to, from);
        from[copies % BUFFER_BYTES]++;
    }
    for (unsigned i = 0; i < BUFFER_BYTES; i++)
        sum = mix(sum, to[i]);
    report("copies", copies);
    report("sum", sum);
}
