#include "guest-tools/litmus/litmus.h"

/*
 * BubbleSort (IBM Concurrency Testing Repository): a non-atomic operation. All CPUs sort one array
 * by exchanging neighbours, each until it finds nothing to exchange; an exchange that others come
 * between loses one number and doubles another.
 *
 *   numbers  of the array, at most 4096
 *   work     passes of dawdle() at each step
 */
#define NUMBERS_MAX 4096

static struct {
    OWN_PAGE volatile uint32_t number[NUMBERS_MAX];
} array;

static unsigned numbers, work_passes;
static uint64_t sum_before, xor_before;

static void prepare(void)
{
    numbers = (unsigned)parameter("numbers", 160);
    work_passes = (unsigned)parameter("work", 200);
    if (numbers < 2 || numbers > NUMBERS_MAX)
        refuse("numbers= is 2 to 4096");
    for (unsigned i = 0; i < numbers; i++) {
        const uint32_t number = (uint32_t)(next_random(&worker[0]) >> 32);
        array.number[i] = number;
        sum_before += number;
        xor_before ^= number;
    }
}

static void work(struct worker *w)
{
    bool exchanged;

    do {
        exchanged = false;
        for (unsigned i = 0; i + 1 < numbers; i++) {
            dawdle(w, work_passes);
            const uint32_t a = array.number[i], b = array.number[i + 1];
            if (a <= b)
                continue;
            /* The bug: others may have exchanged one of the two meanwhile. */
            array.number[i] = b;
            dawdle(w, work_passes / 8 + 1);
            array.number[i + 1] = a;
            exchanged = true;
            w->count[0]++;
            note(w, (uint64_t)a << 32 | b);
        }
    } while (exchanged);
}

static bool check(void)
{
    uint64_t total = 0, all = 0;
    unsigned unsorted = 0;

    for (unsigned i = 0; i < numbers; i++) {
        total += array.number[i];
        all ^= array.number[i];
        unsorted += i && array.number[i - 1] > array.number[i];
    }
    count("exchanges", sum(0));
    count("unsorted", unsorted);
    count("altered", total != sum_before || all != xor_before);
    return !unsorted && total == sum_before && all == xor_before;
}

struct litmus litmus = {"bubble-sort", prepare, work, check};
