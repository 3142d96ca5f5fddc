#include "host/emulated_tsc.h"

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "base/now.h"

#define WINDOWS   5
#define WINDOW_NS 3000000u
/* Windows agree that differ by less: one part in so many. */
#define AGREEMENT 1000

#ifdef __x86_64__

struct moment {
    uint64_t ns, tsc;
};

/* The reading nearest in time to one of the clock, of some: we may lose the CPU between the two. */
static struct moment moment_now(void)
{
    struct moment best = {0};
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 5; i++) {
        const uint64_t before = __builtin_ia32_rdtsc();
        const uint64_t ns = host_now_ns();
        const uint64_t took = __builtin_ia32_rdtsc() - before;
        if (took < least) {
            least = took;
            best = (struct moment){ns, before + took / 2};
        }
    }
    return best;
}

static int khz_order(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

unsigned emulated_tsc_khz(void)
{
    const struct timespec window = {.tv_nsec = WINDOW_NS};
    uint64_t khz[WINDOWS];

    for (int i = 0; i < WINDOWS; i++) {
        const struct moment start = moment_now();
        nanosleep(&window, NULL); /* a signal only makes it shorter */
        const struct moment end = moment_now();
        if (end.ns <= start.ns || end.tsc <= start.tsc) /* this TSC does not count as time does */
            return 0;
        khz[i] =
            (uint64_t)((unsigned __int128)(end.tsc - start.tsc) * 1000000 / (end.ns - start.ns));
    }
    qsort(khz, WINDOWS, sizeof khz[0], khz_order);
    const uint64_t middle = khz[WINDOWS / 2];
    const uint64_t spread = khz[WINDOWS / 2 + 1] - khz[WINDOWS / 2 - 1];
    return middle <= UINT32_MAX && spread <= middle / AGREEMENT ? (unsigned)middle : 0;
}

#else

unsigned emulated_tsc_khz(void)
{
    return 0; /* QEMU counts ns there, and Linux measures that well enough */
}

#endif

bool emulated_tsc_steps(unsigned khz, unsigned steps[2])
{
    const unsigned step = EMULATED_TSC_STEP_KHZ;

    if (khz < step)
        return false;
    steps[0] = (khz + step / 2) / step;
    steps[1] = khz < steps[0] * step ? steps[0] - 1 : steps[0] + 1;
    return true;
}
