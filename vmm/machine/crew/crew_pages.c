/* Who gets which page when. */
#include "base/random.h"
#include "vmm/machine/crew/crew_inside.h"
#include "vmm/machine/run_loop.h"

/*
 * How long a CPU may run on without having to give up a page that it wants itself, if others wait:
 * so many times as long as it has waited for pages since it got the token, so that what pages cost
 * is a small part of the whole, whatever stopping the others takes. Always 4 ms takes twice as long
 * where all is shared, 20 ms a little longer, 80 ms no less (docs/crew.md).
 */
#define QUANTUM_SHARE    20
#define QUANTUM_LEAST_NS 1000000ull
#define QUANTUM_MOST_NS  250000000ull
/*
 * Where CPUs share little, who has lost the token runs for long before it needs a page of the
 * other: so many times as long as passing it costs, and CPUs that pass it at once run at the same
 * time more than taking turns would have them. Without, a boot has some 10 % more sync points.
 */
#define APART_SHARE 2
/* Both are averages, of which the last time is such a part. */
#define AVERAGE_SHARE 4
/* With --chaos it is random: up to this. */
#define QUANTUM_RANDOM_NS 20000000ull

bool crew_needs_others(const struct member *c)
{
    return c->arrived && (c->exit.kind == EXIT_FAULT || c->for_all);
}

static bool conflict(const struct member *c, const struct member *other)
{
    return c != other && (c->for_all || views_conflict(&c->crew->machine->views, c->index,
                                                       other->index, c->root, &c->fault));
}

/* Whether what it wants takes the token: another CPU, which does not rest, has it. */
static bool needs_token(const struct member *c)
{
    for (unsigned i = 0; i < c->crew->count; i++)
        if (!c->crew->member[i].rests && conflict(c, &c->crew->member[i]))
            return true;
    return false;
}

static uint64_t token_used(const struct crew *crew, uint64_t now)
{
    return crew->token_used_ns + (crew->token->runs ? now - crew->token->entered_ns : 0);
}

static uint64_t average(uint64_t before, uint64_t now)
{
    return before - before / AVERAGE_SHARE + now / AVERAGE_SHARE;
}

/* Whether CPUs run on for long without what others have taken from them. */
static bool share_little(const struct crew *crew)
{
    return crew->apart_ns > APART_SHARE * crew->paid_ns;
}

enum crew_return crew_what_comes_back(struct crew *crew)
{
    if (crew->random)
        return random_next(&crew->random) % (RETURN_ALL + 1);
    return share_little(crew) ? RETURN_AS_IT_WAS : RETURN_ALL;
}

uint64_t crew_quantum(const struct crew *crew)
{
    uint64_t quantum = earlier(QUANTUM_SHARE * crew->token_waited_ns, QUANTUM_MOST_NS);

    if (crew->random)
        return crew->token_random_ns;
    if (share_little(crew))
        quantum = 0;
    return quantum < QUANTUM_LEAST_NS ? QUANTUM_LEAST_NS : quantum;
}

void crew_needs_token_again(struct member *c, uint64_t now)
{
    if (!c->lost_token_ns || !needs_token(c))
        return;
    c->crew->apart_ns =
        average(c->crew->apart_ns, earlier(now - c->lost_token_ns, QUANTUM_MOST_NS));
    c->lost_token_ns = 0;
}

/* It is this one's now. */
static void take_token(struct member *c, uint64_t now)
{
    struct crew *crew = c->crew;

    if (crew->token) {
        crew->token->lost_token_ns = now;
        crew->paid_ns = average(crew->paid_ns, crew->token_waited_ns);
    }
    crew->token = c;
    crew->token_since_ns = now;
    crew->token_used_ns = crew->token_waited_ns = 0;
    if (crew->random)
        crew->token_random_ns =
            QUANTUM_LEAST_NS + random_next(&crew->random) % (QUANTUM_RANDOM_NS - QUANTUM_LEAST_NS);
    c->lost_token_ns = c->look_after_ns = 0;
}

void crew_pay_for_page(struct member *c, uint64_t now)
{
    struct crew *crew = c->crew;

    if (crew->token == c)
        crew->token_waited_ns +=
            now - (c->waits_ns > crew->token_since_ns ? c->waits_ns : crew->token_since_ns);
}

struct member *crew_next_for_token(struct crew *crew)
{
    struct member *next = NULL;

    for (unsigned i = 0; i < crew->count; i++) {
        struct member *c = &crew->member[i];
        if (c != crew->token && crew_needs_others(c) && needs_token(c) &&
            (!next || c->waits_ns < next->waits_ns))
            next = c;
    }
    return next;
}

uint64_t crew_pass_token(struct crew *crew, uint64_t now)
{
    struct member *next = crew_next_for_token(crew);
    const uint64_t quantum = crew_quantum(crew);

    if (!next)
        return NEVER;
    if (crew->token && !crew->token->rests && token_used(crew, now) < quantum)
        return crew->token->runs ? now + quantum - token_used(crew, now) : NEVER;
    take_token(next, now);
    return NEVER;
}

bool crew_gives_way(const struct member *c)
{
    const struct member *token = c->crew->token;

    return token && crew_needs_others(token) && conflict(token, c) && !c->crew->machine->ended;
}

bool crew_may_be_served(const struct member *c)
{
    if (needs_token(c) && c->crew->token != c)
        return false;
    for (unsigned i = 0; i < c->crew->count; i++)
        if (c->crew->member[i].runs && conflict(c, &c->crew->member[i]))
            return false;
    return true;
}

void crew_spend_token(struct member *c, uint64_t ns)
{
    if (c->crew->token == c)
        c->crew->token_used_ns += ns;
}

void crew_give_up_token(struct member *c)
{
    crew_spend_token(c, QUANTUM_MOST_NS);
}
