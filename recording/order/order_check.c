#include "recording/order/order_check.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/random.h"
#include "recording/order/order_objects.h"

/* Accesses are named by their place in the list, counted from 1; 0 is the initial value. */
struct check {
    const struct order_encoder *encoder;
    const struct access_list *list;
    void *replay;
    uint32_t *found;                         /* for each access: the store before it */
    uint32_t *program, begin[MAX_VCPUS + 1]; /* each vCPU's accesses, one after another */
    uint32_t next[MAX_VCPUS];                /* in `program` */
    struct order_objects last_store;         /* uint32_t */
    enum order_schedule schedule;
    uint64_t random;
    uint64_t pace;
    uint64_t now, due[MAX_VCPUS]; /* points; when each one's next access is, if it need not wait */
};

static const struct access *next_of(const struct check *c, unsigned vcpu)
{
    return &c->list->at[c->program[c->next[vcpu]]];
}

/* The store before this access, which from now on is the last one if it is one itself. */
static uint32_t happen(struct check *c, uint32_t number)
{
    const struct access *a = &c->list->at[number];
    uint32_t *last = order_objects_get(&c->last_store, a->object);
    const uint32_t before = *last;

    if (a->store)
        *last = number + 1;
    return before;
}

static void prepare(struct check *c)
{
    uint32_t end[MAX_VCPUS] = {0}, sum = 0;
    const uint32_t count = (uint32_t)c->list->count;

    c->found = order_allocate((size_t)count * sizeof *c->found + 1);
    c->program = order_allocate((size_t)count * sizeof *c->program + 1);
    order_objects_init(&c->last_store, sizeof(uint32_t));
    for (uint32_t i = 0; i < count; i++) {
        c->found[i] = happen(c, i);
        end[c->list->at[i].vcpu]++;
    }
    for (unsigned i = 0; i < MAX_VCPUS; i++) {
        c->begin[i] = c->next[i] = sum;
        sum += end[i];
        end[i] = c->begin[i];
    }
    c->begin[MAX_VCPUS] = sum;
    for (uint32_t i = 0; i < count; i++)
        c->program[end[c->list->at[i].vcpu]++] = i;
    order_objects_free(&c->last_store);
    order_objects_init(&c->last_store, sizeof(uint32_t));
}

/* The less, the sooner it is asked whether it may. */
static uint64_t rank(struct check *c, unsigned vcpu)
{
    const uint32_t done = c->next[vcpu] - c->begin[vcpu];

    switch (c->schedule) {
    case ORDER_SCHEDULE_RANDOM:
        return random_next(&c->random) >> 1;
    case ORDER_SCHEDULE_AHEAD:
        return UINT32_MAX - done;
    case ORDER_SCHEDULE_BEHIND:
        return done;
    case ORDER_SCHEDULE_FIRST:
        return vcpu;
    case ORDER_SCHEDULE_LAST:
    case ORDER_SCHEDULES:
        break;
    }
    return MAX_VCPUS - vcpu;
}

static int wrong(const struct check *c, uint32_t number, struct err *e, const char *what)
{
    const struct access *a = &c->list->at[number];

    return err_set(
        e, STATUS_DIVERGED,
        "the %s log does not replay: %s at access %" PRIu32 " (vCPU %u, %s, object %#" PRIx64 ")",
        c->encoder->name, what, number + 1, a->vcpu, a->store ? "store" : "load", a->object);
}

static bool has_ended(const struct check *c, unsigned vcpu)
{
    return c->next[vcpu] == c->begin[vcpu + 1];
}

/* Whether the vCPU, which has not ended, may do its next access: 1 or 0; -1 with *e. */
static int may(const struct check *c, unsigned vcpu, struct err *e)
{
    switch (c->encoder->may(c->replay, next_of(c, vcpu))) {
    case ORDER_WAIT:
        return 0;
    case ORDER_GO:
        return 1;
    case ORDER_WRONG:
        break;
    }
    return wrong(c, c->program[c->next[vcpu]], e, "it has nothing that fits");
}

/* Have the vCPU do its next access: 1, or -1 with *e. */
static int go_on(struct check *c, unsigned vcpu, struct err *e)
{
    const uint32_t number = c->program[c->next[vcpu]];

    if (happen(c, number) != c->found[number])
        return wrong(c, number, e, "another store came before");
    c->encoder->did(c->replay, &c->list->at[number]);
    c->next[vcpu]++;
    return 1;
}

/* Who has not ended, by rank. Returns how many. */
static unsigned by_rank(struct check *c, unsigned vcpus[MAX_VCPUS])
{
    uint64_t ranks[MAX_VCPUS];
    unsigned count = 0;

    for (unsigned vcpu = 0; vcpu < c->list->vcpus; vcpu++) {
        if (has_ended(c, vcpu))
            continue;
        const uint64_t mine = rank(c, vcpu);
        unsigned at = count++;
        for (; at > 0 && ranks[at - 1] > mine; at--) {
            ranks[at] = ranks[at - 1];
            vcpus[at] = vcpus[at - 1];
        }
        ranks[at] = mine;
        vcpus[at] = vcpu;
    }
    return count;
}

/* One access of one vCPU: 1; 0 when all have ended; -1 with *e. */
static int step(struct check *c, struct err *e)
{
    unsigned vcpus[MAX_VCPUS];
    const unsigned count = by_rank(c, vcpus);

    for (unsigned i = 0; i < count; i++) {
        const int go = may(c, vcpus[i], e);
        if (go)
            return go < 0 ? -1 : go_on(c, vcpus[i], e);
    }
    return count ? wrong(c, c->program[c->next[vcpus[0]]], e, "all vCPUs wait (deadlock)") : 0;
}

/* Points from the access `before` to the vCPU's next one. */
static uint64_t points_between(const struct check *c, const struct access *before, uint32_t number)
{
    const uint64_t point = c->list->at[number].point;
    uint64_t points = point > before->point ? point - before->point : 1;

    if (c->pace) {
        uint64_t random = (c->pace + number) * 0x9e3779b97f4a7c15ull | 1;
        random_next(&random);
        points = 1 + random_next(&random) % (points <= UINT64_MAX / 2 ? 2 * points : UINT64_MAX);
    }
    return points;
}

/* When the vCPU, which has just done an access, comes to its next; UINT64_MAX is never. */
static uint64_t next_due(const struct check *c, unsigned vcpu)
{
    const uint32_t *next = &c->program[c->next[vcpu]];

    if (has_ended(c, vcpu))
        return UINT64_MAX;
    const uint64_t points = points_between(c, &c->list->at[next[-1]], next[0]);
    return points < UINT64_MAX - c->now ? c->now + points : UINT64_MAX - 1;
}

static bool is_together(const struct access *before, const struct access *a)
{
    return before->vcpu == a->vcpu && before->point == a->point;
}

/* What the slowest vCPU takes alone. */
static uint64_t points_alone(const struct check *c)
{
    const struct access *before[MAX_VCPUS] = {0};
    uint64_t own[MAX_VCPUS] = {0}, most = 1;

    for (uint32_t i = 0; i < c->list->count; i++) {
        const struct access *a = &c->list->at[i];
        const struct access *last = before[a->vcpu];
        const uint64_t points = !last ? 1 : is_together(last, a) ? 0 : points_between(c, last, i);
        own[a->vcpu] = points < UINT64_MAX - own[a->vcpu] ? own[a->vcpu] + points : UINT64_MAX;
        before[a->vcpu] = a;
        if (own[a->vcpu] > most)
            most = own[a->vcpu];
    }
    return most;
}

/* The vCPU's next access, and those that are together with it as far as they may be. */
static int go_on_together(struct check *c, unsigned vcpu, struct err *e)
{
    const struct access *first = next_of(c, vcpu);
    int rc;

    do
        rc = go_on(c, vcpu, e);
    while (rc > 0 && !has_ended(c, vcpu) && is_together(first, next_of(c, vcpu)) &&
           (rc = may(c, vcpu, e)) > 0);
    return rc;
}

/* At c->now, each vCPU whose next access is due does it if it may; then go to when something can
 * happen. Returns as step() does. */
static int tick(struct check *c, struct err *e)
{
    unsigned vcpus[MAX_VCPUS], goes[MAX_VCPUS], going = 0;
    const unsigned count = by_rank(c, vcpus);
    uint64_t later = UINT64_MAX;

    for (unsigned i = 0; i < count; i++) {
        const bool is_due = c->due[vcpus[i]] <= c->now;
        const int go = is_due ? may(c, vcpus[i], e) : 0;
        if (go < 0)
            return -1;
        if (go)
            goes[going++] = vcpus[i];
        else if (!is_due && c->due[vcpus[i]] < later)
            later = c->due[vcpus[i]];
    }
    for (unsigned i = 0; i < going; i++) {
        if (go_on_together(c, goes[i], e) < 0)
            return -1;
        c->due[goes[i]] = next_due(c, goes[i]);
    }
    if (count && !going && later == UINT64_MAX)
        return wrong(c, c->program[c->next[vcpus[0]]], e, "all vCPUs wait (deadlock)");
    if (count)
        c->now = going ? c->now + 1 : later;
    return count != 0;
}

/* To the end. */
static int run(struct check *c, const struct order_log *log,
               int (*one)(struct check *c, struct err *e), struct err *e)
{
    int rc;

    assert(c->list->count <= ACCESSES_MAX && c->list->vcpus == log->vcpus);
    c->replay = c->encoder->replay(log);
    if (!c->replay)
        return err_set(e, STATUS_DIVERGED, "the %s log makes no sense", c->encoder->name);
    prepare(c);
    while ((rc = one(c, e)) > 0)
        ;
    if (rc == 0 && !c->encoder->ended(c->replay))
        rc = err_set(e, STATUS_DIVERGED, "the %s log holds more than happened", c->encoder->name);
    c->encoder->close(c->replay);
    order_objects_free(&c->last_store);
    free(c->found);
    free(c->program);
    return rc;
}

int order_check(const struct order_encoder *encoder, const struct order_log *log,
                const struct access_list *list, enum order_schedule schedule, uint64_t seed,
                struct err *e)
{
    struct check c = {
        .encoder = encoder, .list = list, .schedule = schedule, .random = seed ? seed : 1};

    return run(&c, log, step, e);
}

int order_time(const struct order_encoder *encoder, const struct order_log *log,
               const struct access_list *list, uint64_t pace, double *time, struct err *e)
{
    struct check c = {
        .encoder = encoder, .list = list, .schedule = ORDER_SCHEDULE_FIRST, .pace = pace};
    const int rc = run(&c, log, tick, e);

    *time = (double)c.now / (double)points_alone(&c);
    return rc;
}
