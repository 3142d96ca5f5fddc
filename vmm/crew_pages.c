/* Who gets which page when. */
#include "base/random.h"
#include "vmm/crew_inside.h"
#include "vmm/run_loop.h"

/*
 * How long a CPU may run on without having to give up a page that it wants itself, if others wait:
 * so many times as long as it has waited for pages since it got the token, so that what pages cost
 * is a small part of the whole, whatever stopping the others takes.
 */
#define QUANTUM_SHARE    20
#define QUANTUM_LEAST_NS 1000000ull
#define QUANTUM_MOST_NS  250000000ull
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

uint64_t crew_quantum(const struct crew *crew)
{
    const uint64_t paid = QUANTUM_SHARE * crew->token_waited_ns;

    if (crew->random)
        return crew->token_random_ns;
    return paid < QUANTUM_LEAST_NS ? QUANTUM_LEAST_NS : earlier(paid, QUANTUM_MOST_NS);
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
    crew->token = next;
    crew->token_since_ns = now;
    crew->token_used_ns = crew->token_waited_ns = 0;
    if (crew->random)
        crew->token_random_ns =
            QUANTUM_LEAST_NS + random_next(&crew->random) % (QUANTUM_RANDOM_NS - QUANTUM_LEAST_NS);
    next->look_after_ns = 0;
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
