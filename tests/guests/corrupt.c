#include "tests/guests/guest.h"

#define TICKS 20

/*
 * A bug to be found: results go round in a ring, and once, at a moment that nobody knows before,
 * one goes past its end, into a word that has nothing to do with it.
 */
static volatile struct {
    uint64_t ring[512];
    uint64_t balance;
} __attribute__((aligned(4096))) shared;

static uint64_t slips_at; /* a tick */

__attribute__((noinline)) static void store(uint64_t slot, uint64_t value)
{
    shared.ring[slot] = value;
}

static uint64_t limit;

static void user(void)
{
    uint64_t sum = 1;
    unsigned slipped = 0;

    for (uint64_t i = 0; ticks < limit; i++) {
        sum = mix(sum, i);
        uint64_t slot = i % 512;
        if (ticks >= slips_at && slot == 511 && !slipped) {
            slipped = 1;
            slot++;
        }
        store(slot, sum);
    }
    leave_user();
}

static void done(void)
{
    report_ticks(limit);
    report("balance", shared.balance);
    put(shared.balance == 1000 ? "as it should be\n" : "somebody has written over it\n");
}

void guest_main(void)
{
    limit = parameter("ticks", TICKS);
    shared.balance = 1000;
    slips_at = limit / 4 + rdtsc() % (limit / 2);
    timer_start(100);
    enter_user(user, done);
}
