#include "guest-tools/litmus/litmus.h"

/*
 * Manager (IBM Concurrency Testing Repository): a non-atomic operation. Managers of one pool take
 * the first block that is free; looking and taking are two steps, and two may take the same.
 *
 *   passes  of each CPU
 *   window  passes of dawdle() between looking and taking
 *   hold    the same while it has the block
 *   work    the same between
 */
static struct {
    OWN_PAGE volatile unsigned owner[CPUS_MAX]; /* number + 1 */
} pool;

static unsigned passes, window, hold, work_passes;

enum { CLASHES, BLOCKS_USED };

static void prepare(void)
{
    passes = (unsigned)parameter("passes", 200);
    window = (unsigned)parameter("window", 3000);
    hold = (unsigned)parameter("hold", 6000);
    work_passes = (unsigned)parameter("work", 10000);
}

static unsigned take(struct worker *w)
{
    for (unsigned block = 0;; block = (block + 1) % workers) {
        if (pool.owner[block])
            continue;
        dawdle(w, window); /* the bug: it may be taken by now */
        pool.owner[block] = w->number + 1;
        return block;
    }
}

static void work(struct worker *w)
{
    for (unsigned i = 0; i < passes; i++) {
        const unsigned block = take(w);

        dawdle(w, hold);
        w->count[CLASHES] += pool.owner[block] != w->number + 1;
        w->count[BLOCKS_USED] += block != 0;
        note(w, block);
        pool.owner[block] = 0;
        dawdle(w, work_passes);
    }
}

static bool check(void)
{
    count("second_blocks", sum(BLOCKS_USED));
    count("clashes", sum(CLASHES));
    return sum(CLASHES) == 0;
}

struct litmus litmus = {"manager", prepare, work, check};
