#include "guest-tools/litmus/litmus.h"

/*
 * Account (IBM Concurrency Testing Repository): wrong lock. Accounts are monitors, and deposits are
 * made inside; a transfer is inside the monitor of the account that it takes from only, so that
 * what is put on the other one may be overwritten.
 *
 *   passes  of each CPU: a deposit on its own account, and a transfer from there to another one
 *   window  passes of dawdle() between the other balance's load and store
 *   work    the same between
 */
static struct account {
    struct monitor monitor;
    OWN_PAGE volatile int64_t balance;
} account[CPUS_MAX];

static unsigned passes, window, work_passes;

static void prepare(void)
{
    passes = (unsigned)parameter("passes", 100);
    window = (unsigned)parameter("window", 1000);
    work_passes = (unsigned)parameter("work", 20000);
}

static void deposit(struct worker *w, struct account *to, unsigned amount)
{
    monitor_enter(w, &to->monitor);
    to->balance += amount;
    monitor_exit(w, &to->monitor);
    w->count[0] += amount;
}

static void transfer(struct worker *w, struct account *from, struct account *to, unsigned amount)
{
    monitor_enter(w, &from->monitor);
    from->balance -= amount;
    const int64_t before = to->balance; /* the bug: this is not in the monitor `to` */
    dawdle(w, window);
    to->balance = before + amount;
    monitor_exit(w, &from->monitor);
    note(w, (uint64_t)before);
}

static void work(struct worker *w)
{
    for (unsigned i = 0; i < passes; i++) {
        const unsigned amount = 1 + random_below(w, 100), next = 1 + random_below(w, workers - 1);

        deposit(w, &account[w->number], amount);
        dawdle(w, work_passes);
        transfer(w, &account[w->number], &account[(w->number + next) % workers], amount);
    }
}

static bool check(void)
{
    int64_t there = 0;

    for (unsigned i = 0; i < workers; i++)
        there += account[i].balance;
    const int64_t missing = (int64_t)sum(0) - there;
    count("deposited", sum(0));
    count(missing < 0 ? "surplus" : "missing", (uint64_t)(missing < 0 ? -missing : missing));
    return missing == 0;
}

struct litmus litmus = {"account", prepare, work, check};
