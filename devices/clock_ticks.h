#ifndef DEVICES_CLOCK_TICKS_H
#define DEVICES_CLOCK_TICKS_H

#include <stdint.h>

/*
 * Exact conversion between device time in ns and the ticks of a crystal, both counted from the
 * making of the machine, so that nothing drifts however often it is converted.
 */
#define NS_PER_SECOND 1000000000u

/* How many ticks of a clock of hz (up to 1 GHz) have passed at ns. */
static inline uint64_t ticks_at(uint64_t ns, uint32_t hz)
{
    return (uint64_t)((unsigned __int128)ns * hz / NS_PER_SECOND);
}

/* The first ns at which that many ticks have passed; UINT64_MAX when that is past all time. */
static inline uint64_t ns_of_tick(uint64_t tick, uint32_t hz)
{
    unsigned __int128 ns = ((unsigned __int128)tick * NS_PER_SECOND + hz - 1) / hz;

    return ns > UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
}

#endif
