#include "guest-tools/litmus/litmus.h"

#include "tests/guests/smp.h"

#define SEED 1

unsigned workers;
struct worker worker[CPUS_MAX];

static unsigned cpus;
static bool at_cpl3;

/* How many workers have come to barriers, and how many CPUs to their ends. */
static struct {
    OWN_PAGE volatile unsigned count;
} arrived, ended;

void refuse(const char *why)
{
    put("litmus ");
    put(litmus.name);
    put(" refused: ");
    put(why);
    put("\n");
    power_off();
}

void dawdle(struct worker *w, unsigned n)
{
    uint64_t left = 1 + random_below(w, 2 * n);

    __asm__ volatile("pause\n1:\n\tdec %0\n\tjnz 1b" : "+r"(left) : : "cc");
}

void barrier(struct worker *w)
{
    const unsigned all = ++w->barriers * workers;

    __atomic_add_fetch(&arrived.count, 1, __ATOMIC_SEQ_CST);
    while (arrived.count < all)
        pause();
}

/* ---- the outcome ---- */

/* What is counted before it is known whether the program has passed. */
static struct {
    const char *name;
    uint64_t value;
} counted[24];
static unsigned counts;

void count(const char *name, uint64_t value)
{
    if (counts == sizeof counted / sizeof *counted)
        refuse("it counts too much");
    counted[counts].name = name;
    counted[counts++].value = value;
}

uint64_t sum(unsigned i)
{
    uint64_t total = 0;

    for (unsigned n = 0; n < workers; n++)
        total += worker[n].count[i];
    return total;
}

static void put_outcome(void)
{
    const unsigned stuck = monitors_stuck();
    uint64_t order = monitors_order();
    const bool passed = litmus.check() && !stuck;

    for (unsigned n = 0; n < workers; n++)
        order = mix(order, worker[n].seen);
    if (stuck)
        count("stuck", stuck);
    count("order", order);
    put("litmus ");
    put(litmus.name);
    put(passed ? " passed:" : " failed:");
    for (unsigned i = 0; i < counts; i++) {
        put(" ");
        put(counted[i].name);
        put("=");
        put_number(counted[i].value);
    }
    put("\n");
}

/* ---- a CPU's life ---- */

static void at_end(void)
{
    const unsigned cpu = this_cpu();

    __atomic_add_fetch(&ended.count, 1, __ATOMIC_SEQ_CST);
    while (cpu != 0)
        __asm__ volatile("cli\n\thlt");
    while (ended.count < cpus)
        pause();
    put_outcome();
    power_off();
}

void worker_leaves(void)
{
    if (at_cpl3)
        leave_user();
    at_end();
    __builtin_unreachable();
}

static void live(unsigned number)
{
    struct worker *w = &worker[number];

    if (number < workers) {
        barrier(w);
        litmus.work(w);
        monitors_leave(w);
    }
    worker_leaves();
}

static void start(unsigned cpu)
{
    if (cpu != 0)
        use_own_page_tables(cpu);
    if (at_cpl3)
        enter_user_on(cpu, live);
    live(cpu);
}

void guest_main(void)
{
    const uint64_t seed = parameter("seed", SEED);

    cpus = workers = (unsigned)parameter("cpus", 2);
    at_cpl3 = parameter("user", 1);
    if (cpus < 2 || cpus > CPUS_MAX)
        refuse("cpus= is 2 to 8");
    for (unsigned n = 0; n < cpus; n++) {
        worker[n].number = n;
        worker[n].seen = 1;
        worker[n].random = mix(seed, n + 1) | 1;
        for (unsigned i = 0; i < 8; i++) /* away from few bits */
            next_random(&worker[n]);
    }
    litmus.prepare();
    prepare_user(at_end);
    start_cpus(cpus, start);
    start(0);
}
