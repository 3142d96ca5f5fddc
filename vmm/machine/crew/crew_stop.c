/* Stopping a CPU that runs: when, and where. */
#include <assert.h>

#include "vmm/machine/code_watch.h"
#include "vmm/machine/crew/crew_inside.h"
#include "vmm/machine/kernel_hooks.h"
#include "vmm/machine/pc_access.h"
#include "vmm/machine/run_loop.h"
#include "vmm/points/gphook.h"

/* How long it is waited for an exit of its own of a CPU that has to give up a page. */
#define PAGE_GRACE_NS 1000000ull
/* When to look for the first time whether who has the token only waits for somebody who needs it;
 * each time twice as long after the last. */
#define LOOK_NS      2000000ull
#define LOOK_LAST_NS 32000000ull

uint64_t crew_look_due(struct member *c, uint64_t now)
{
    if (c->crew->token != c || !crew_next_for_token(c->crew))
        return NEVER;
    if (!c->look_after_ns) {
        c->look_after_ns = LOOK_NS;
        c->look_ns = now + LOOK_NS;
    }
    return c->look_ns;
}

uint64_t crew_stop_due(struct member *c, uint64_t now)
{
    struct machine *m = c->crew->machine;
    struct machine_cpu *cpu = c->cpu;
    uint64_t due = NEVER;

    if (m->ended && c->crew->ended_ns)
        return c->crew->ended_ns;
    if (m->ended || c->crew->failed)
        return now;
    if (cpu->state != CPU_RUNS) { /* it was sent an INIT */
        c->pending_ns = c->pending_ns ? c->pending_ns : now;
        return c->pending_ns;
    }
    if (!crew_gives_way(c))
        c->wanted_ns = 0;
    else if (!c->wanted_ns)
        c->wanted_ns = now;
    if (cpu->nmi || (!cpu->window && pc_irq_pending(&m->pc, c->index)) || arrivals_wait(m))
        c->pending_ns = c->pending_ns ? c->pending_ns : now;
    else
        c->pending_ns = 0;
    if (c->wanted_ns)
        due = c->wanted_ns + PAGE_GRACE_NS;
    if (c->pending_ns)
        due = earlier(due, c->pending_ns + m->config.grace_ns);
    return due;
}

uint64_t crew_kick_due(struct member *c, uint64_t now)
{
    const uint64_t due = crew_stop_due(c, now);

    if (c->forcing || c->kicked_ns)
        return NEVER;
    return earlier(due > c->retry_ns ? due : c->retry_ns, crew_look_due(c, now));
}

static bool rings_doorbell(const struct member *c)
{
    const struct vcpu_exit *exit = &c->exit;

    if (!exit_is_access(exit))
        return false;
    const struct bus_access access = access_of(c->index, exit);
    return pc_may_use_memory(&access);
}

/* Whether memory is used at this exit that may be anybody's: by a device, or for the #GP hook. */
static bool uses_memory(const struct member *c)
{
    struct machine *m = c->crew->machine;

    return rings_doorbell(c) || arrivals_wait(m) || hook_is_due(m, c->cpu) ||
           code_watch_is_due(m, host_elapsed(m)) || kernel_hook_exit(m, &c->cpu->vcpu, &c->exit);
}

void crew_arrive(struct member *c, const struct vcpu_exit *exit)
{
    const struct machine *m = c->crew->machine;

    c->runs = false;
    c->arrived = true;
    c->exit = *exit;
    gphook_arrive(&c->cpu->vcpu, &m->hook, &c->exit, &c->cpu->trap);
    c->waits_ns = host_elapsed(m);
    c->for_all = uses_memory(c);
    if (exit->kind != EXIT_FAULT)
        return;
    const uint8_t *at = guest_memory_at(&m->vm.memory, exit->at, PAGE_BYTES);
    assert(at);
    c->fault = (struct page_fault){(uint64_t)(at - m->vm.memory.host) / PAGE_BYTES, exit->size};
    c->root = views_root(&c->cpu->vcpu);
    crew_needs_token_again(c, c->waits_ns);
}

void crew_look_again(struct crew *crew)
{
    for (unsigned i = 0; i < crew->count; i++) {
        struct member *c = &crew->member[i];
        if (c->arrived)
            c->for_all |= kernel_hook_exit(crew->machine, &c->cpu->vcpu, &c->exit);
    }
}

static void try_later(struct member *c, bool only_waiting, uint64_t now)
{
    if (only_waiting) {
        if (c->look_after_ns < LOOK_LAST_NS)
            c->look_after_ns *= 2;
        c->look_ns = now + c->look_after_ns;
        return;
    }
    c->retry_after_ns = next_retry(c->retry_after_ns);
    c->retry_ns = now + c->retry_after_ns;
}

static void kick_after(void *opaque, uint64_t ns)
{
    const struct member *c = opaque;
    const struct itimerspec spec = {.it_value.tv_nsec = (long)ns};

    assert(ns > 0 && ns < 1000000000ull);
    int rc = timer_settime(c->timer, 0, &spec, NULL);
    assert(rc == 0);
}

int crew_force(struct member *c, uint64_t since, bool only_waiting, struct err *e)
{
    struct crew *crew = c->crew;
    struct machine *m = crew->machine;
    struct vcpu_exit exit = {.kind = EXIT_FORCED};
    struct landmark landmark;
    struct clock_host host = m->clock_host;

    host.concurrent = true;
    host.watches = m->config.grace_ns > 0;
    host.kick_after = kick_after;
    host.opaque = c;
    host.reason = only_waiting ? CLOCK_IF_WAITING : CLOCK_FOR_ANOTHER;
    host.effort = host_elapsed(m) - since >= HURRY_NS ? CLOCK_ANY_PLACE : CLOCK_GOOD_PLACE;
    m->stats.forced_tries++;
    if (!vcpu_is_settled(&c->cpu->vcpu)) {
        try_later(c, only_waiting, host_elapsed(m));
        return 0;
    }
    c->forcing = true;
    pthread_mutex_unlock(&crew->lock);
    const enum clock_choice choice =
        c->cpu->clock.ops->choose(&c->cpu->clock, &host, &landmark, &exit, e);
    pthread_mutex_lock(&crew->lock);
    c->forcing = false;
    switch (choice) {
    case CLOCK_CHOSEN:
        landmark.counted = false;
        if (landmark.cpl == 3)
            gphook_clear_user_frame(&c->cpu->vcpu);
        machine_forced(m, &landmark);
        recorder_forced_ahead(m->recorder, c->index, &landmark);
        exit = (struct vcpu_exit){.kind = EXIT_FORCED};
        crew_arrive(c, &exit);
        m->stats.forced++;
        if (only_waiting)
            crew_give_up_token(c);
        return 0;
    case CLOCK_LATER:
        try_later(c, only_waiting, host_elapsed(m));
        return 0;
    case CLOCK_EXITED:
        crew_arrive(c, &exit);
        return 0;
    case CLOCK_FAILED:
        break;
    }
    return -1;
}
