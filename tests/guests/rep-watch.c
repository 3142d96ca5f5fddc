#include "tests/guests/guest.h"

/*
 * String instructions that write a watched word, which lies at a page's edge: forwards and
 * backwards, in several iterations or one, in a round after the other, which is counted in memory.
 */
#define ROUNDS 3
#define BYTES  40

static uint8_t to[3 * PAGE_BYTES] OWN_PAGE, from[BYTES];
static volatile uint64_t rounds;

__attribute__((noinline)) static void move_up(void *target, const void *source, uint64_t n)
{
    __asm__ volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(n) : : "memory");
}

__attribute__((noinline)) static void move_down(void *target, const void *source, uint64_t n)
{
    __asm__ volatile("std\n\trep movsb\n\tcld" : "+D"(target), "+S"(source), "+c"(n) : : "memory");
}

__attribute__((noinline)) static void fill(void *target, uint64_t value, uint64_t n)
{
    __asm__ volatile("rep stosq" : "+D"(target), "+c"(n) : "a"(value) : "memory");
}

static void work(void)
{
    uint8_t *const word = to + PAGE_BYTES; /* two bytes of it are watched */

    while (rounds < ROUNDS) {
        for (unsigned i = 0; i < BYTES; i++)
            from[i] = (uint8_t)(i + 1 + (unsigned)rounds);
        move_up(word - BYTES / 2, from, BYTES);
        fill(to, 0x0101010101010101u * (0xf0u + rounds), sizeof to / 8);
        move_down(word + BYTES / 2, from + BYTES - 1, BYTES);
        rounds++;
    }
}

static void done(void)
{
    report("byte", to[PAGE_BYTES]);
}

void guest_main(void)
{
    at_chosen_level(work, done);
}
