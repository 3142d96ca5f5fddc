#include "guest-tools/litmus/litmus.h"

/*
 * The small shapes by which memory models are told apart. Threads go through the cells of a block,
 * each time from all zero; one outcome a cell. With more CPUs than a shape has threads, groups of
 * them do the same side by side; CPUs that are left over take no part.
 *
 *   shape   1 SB, 2 MP, 3 LB, 4 IRIW, 5 2+2W
 *   blocks  each begins and ends with a barrier
 *   cells   of a block, at most 4096
 *   work    passes of dawdle() before each access
 *
 * What x86-TSO forbids (Sewell et al., x86-TSO, 2010) must not occur. SB's 0,0 it allows; where
 * CPUs take turns it does not occur either, since a CPU's stores are in memory before the next one
 * runs.
 */
#define CELLS_MAX   4096
#define THREADS_MAX 4
#define GROUPS_MAX  (CPUS_MAX / 2)
#define OUTCOMES    16

struct variable {
    OWN_PAGE volatile uint8_t cell[CELLS_MAX];
};

static struct group {
    struct variable x, y;
} group[GROUPS_MAX];

/* What each thread has read: bit 0 first, bit 1 then. */
static struct {
    OWN_PAGE uint8_t cell[CELLS_MAX];
} result[CPUS_MAX];

static unsigned work_passes;

static void store(struct worker *w, volatile uint8_t *at, uint8_t value)
{
    dawdle(w, work_passes);
    *at = value;
}

static uint8_t load(struct worker *w, volatile uint8_t *at)
{
    dawdle(w, work_passes);
    return *at;
}

/* Store to the first, load the second. */
static uint8_t store_load(struct worker *w, volatile uint8_t *first, volatile uint8_t *second)
{
    store(w, first, 1);
    return load(w, second);
}

static uint8_t load_store(struct worker *w, volatile uint8_t *first, volatile uint8_t *second)
{
    const uint8_t value = load(w, first);

    store(w, second, 1);
    return value;
}

static uint8_t load_load(struct worker *w, volatile uint8_t *first, volatile uint8_t *second)
{
    const uint8_t value = load(w, first);

    return value | load(w, second) << 1;
}

static uint8_t sb(struct worker *w, unsigned thread, volatile uint8_t *x, volatile uint8_t *y)
{
    return thread ? store_load(w, y, x) : store_load(w, x, y);
}

static uint8_t mp(struct worker *w, unsigned thread, volatile uint8_t *x, volatile uint8_t *y)
{
    if (thread)
        return load_load(w, y, x);
    store(w, x, 1);
    store(w, y, 1);
    return 0;
}

static uint8_t lb(struct worker *w, unsigned thread, volatile uint8_t *x, volatile uint8_t *y)
{
    return thread ? load_store(w, y, x) : load_store(w, x, y);
}

static uint8_t iriw(struct worker *w, unsigned thread, volatile uint8_t *x, volatile uint8_t *y)
{
    switch (thread) {
    case 0:
        store(w, x, 1);
        return 0;
    case 1:
        store(w, y, 1);
        return 0;
    case 2:
        return load_load(w, x, y);
    default:
        return load_load(w, y, x);
    }
}

static uint8_t w22(struct worker *w, unsigned thread, volatile uint8_t *x, volatile uint8_t *y)
{
    store(w, thread ? y : x, 1);
    store(w, thread ? x : y, 2);
    return 0;
}

/* Outcomes as bits: what was read, the first read of the first reader leftmost. For 2+2W: whether 1
 * is what is left of x, and of y. */
static unsigned outcome_two(const uint8_t *const r[], uint8_t x, uint8_t y)
{
    (void)x;
    (void)y;
    return *r[0] << 1 | *r[1];
}

static unsigned outcome_reader(const uint8_t *const r[], uint8_t x, uint8_t y)
{
    (void)x;
    (void)y;
    return (*r[1] & 1) << 1 | *r[1] >> 1;
}

static unsigned outcome_readers(const uint8_t *const r[], uint8_t x, uint8_t y)
{
    (void)x;
    (void)y;
    return (*r[2] & 1) << 3 | (*r[2] >> 1) << 2 | (*r[3] & 1) << 1 | *r[3] >> 1;
}

static unsigned outcome_left(const uint8_t *const r[], uint8_t x, uint8_t y)
{
    (void)r;
    return (x == 1) << 1 | (y == 1);
}

static const struct shape {
    const char *name;
    unsigned threads, bits;
    unsigned forbidden; /* outcomes, one bit each */
    uint8_t (*thread)(struct worker *w, unsigned thread, volatile uint8_t *x, volatile uint8_t *y);
    unsigned (*outcome)(const uint8_t *const r[], uint8_t x, uint8_t y);
} shapes[] = {
    {"sb", 2, 2, 0, sb, outcome_two},
    {"mp", 2, 2, 1u << 2 /* 1 then 0 */, mp, outcome_reader},
    {"lb", 2, 2, 1u << 3 /* 1, 1 */, lb, outcome_two},
    {"iriw", 4, 4, 1u << 10 /* 1, 0, 1, 0 */, iriw, outcome_readers},
    {"2+2w", 2, 2, 1u << 3 /* 1, 1 */, w22, outcome_left},
};

static const struct shape *shape;
static unsigned blocks, cells;
/* Of each group, by its first thread. */
static struct {
    OWN_PAGE uint64_t of[OUTCOMES];
} seen[GROUPS_MAX];

static void prepare(void)
{
    const uint64_t number = parameter("shape", 1);

    if (number < 1 || number > sizeof shapes / sizeof *shapes)
        refuse("shape= is 1 to 5");
    shape = &shapes[number - 1];
    litmus.name = shape->name;
    blocks = (unsigned)parameter("blocks", 20);
    cells = (unsigned)parameter("cells", 2000);
    work_passes = (unsigned)parameter("work", 500);
    if (cells > CELLS_MAX)
        refuse("cells= is at most 4096");
    if (workers < shape->threads)
        refuse("it needs 4 CPUs");
    workers -= workers % shape->threads;
}

static void take_down(struct worker *w, struct group *g)
{
    const uint8_t *r[THREADS_MAX] = {NULL};
    const unsigned first = w->number;

    for (unsigned i = 0; i < cells; i++) {
        for (unsigned thread = 0; thread < shape->threads; thread++)
            r[thread] = &result[first + thread].cell[i];
        const unsigned outcome = shape->outcome(r, g->x.cell[i], g->y.cell[i]);
        seen[first / shape->threads].of[outcome]++;
        note(w, outcome);
        g->x.cell[i] = g->y.cell[i] = 0;
    }
}

static void work(struct worker *w)
{
    struct group *g = &group[w->number / shape->threads];
    const unsigned thread = w->number % shape->threads;

    for (unsigned block = 0; block < blocks; block++) {
        barrier(w);
        for (unsigned i = 0; i < cells; i++) {
            const uint8_t read = shape->thread(w, thread, &g->x.cell[i], &g->y.cell[i]);

            result[w->number].cell[i] = read;
            note(w, read);
        }
        barrier(w);
        if (thread == 0)
            take_down(w, g);
    }
}

static bool check(void)
{
    static char name[OUTCOMES][5];
    bool forbidden = false;

    for (unsigned outcome = 0; outcome < 1u << shape->bits; outcome++) {
        uint64_t times = 0;
        for (unsigned i = 0; i < workers / shape->threads; i++)
            times += seen[i].of[outcome];
        for (unsigned bit = 0; bit < shape->bits; bit++)
            name[outcome][bit] = (char)('0' + (outcome >> (shape->bits - 1 - bit) & 1));
        if (times)
            count(name[outcome], times);
        forbidden |= times && (shape->forbidden >> outcome & 1);
    }
    return !forbidden;
}

struct litmus litmus = {"shapes", prepare, work, check};
