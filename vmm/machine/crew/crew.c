#include "vmm/machine/crew/crew_inside.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/stop_signals.h"
#include "vmm/machine/code_watch.h"
#include "vmm/machine/run_loop.h"
#include "vmm/machine/schedule.h"
#include "vmm/points/written.h"

/* When an end that not all have come to is looked at again. */
#define END_LOOK_NS 8000000ull
/* After this an end does not wait any longer for CPUs to come to a point that can be compared. */
#define END_LIMIT_NS 3000000000ull

static void kick_vcpu(void *opaque)
{
    struct member *c = opaque;

    vcpu_kick(&c->cpu->vcpu);
}

void crew_ring(struct crew *crew)
{
    const uint64_t one = 1;

    if (write(crew->bell, &one, sizeof one) < 0)
        return; /* it has been rung so often that it is heard */
}

void crew_fail(struct crew *crew, const struct err *e)
{
    if (!crew->failed)
        crew->error = *e;
    crew->failed = true;
    crew_ring(crew);
}

/* ---- turns ---- */

/* Whether a turn of one that rests is to be, and can be, for what has arrived for the devices: all
 * stand. */
static bool may_exchange(const struct member *c)
{
    const struct crew *crew = c->crew;

    if (c->index != 0 || !c->rests || !arrivals_wait(crew->machine))
        return false;
    for (unsigned i = 0; i < crew->count; i++)
        if (crew->member[i].runs)
            return false;
    return true;
}

/* Whether one that stands can be served, or go on. */
static bool can_go_on(const struct member *c)
{
    const struct machine *m = c->crew->machine;

    if (crew_gives_way(c))
        return false;
    if (c->arrived)
        return !crew_needs_others(c) || (!m->ended && crew_may_be_served(c));
    return !m->ended && (cpu_can_run(m, c->cpu) || may_exchange(c));
}

static void begin_turn(struct member *c)
{
    struct crew *crew = c->crew;

    if (crew->turn != c || c->rests)
        recorder_schedule(crew->machine->recorder, c->index);
    crew->turn = c;
    c->rests = false;
}

static void note_accesses(struct member *c, const struct page_fault *given, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const struct access access = {
            .object = given[i].page,
            .point = c->served,
            .vcpu = (uint8_t)c->index,
            .store = given[i].access == ACCESS_WRITE,
        };
        recorder_access(c->crew->machine->recorder, &access);
    }
}

/* It gets the page that it has come to. */
static void give_page(struct member *c)
{
    struct machine *m = c->crew->machine;
    struct page_fault given[VIEWS_GIVEN_MAX];
    const unsigned count = views_give(&m->views, c->index, c->root, &c->fault, given);

    if (!count)
        return;
    note_accesses(c, given, count);
    const enum crew_return what = crew_what_comes_back(c->crew);
    const bool all = what == RETURN_ALL;
    if (what != RETURN_NOTHING && views_can_regain(&m->views, c->index, all)) {
        recorder_regain(m->recorder, all);
        note_accesses(c, given, views_regain(&m->views, c->index, all, given));
    }
    crew_pay_for_page(c, host_elapsed(m));
}

/* Serve what it has come to. */
static void serve(struct member *c)
{
    struct machine *m = c->crew->machine;
    const bool fault = c->exit.kind == EXIT_FAULT;

    handle_sync(m, c->cpu, &c->exit);
    control_note(m->control);
    c->served++;
    views_return(&m->views, c->index);
    if (fault)
        give_page(c);
    if (c->for_all) {
        take_arrivals(m);
        install_hook(m, c->cpu);
        if (code_watch_is_due(m, host_elapsed(m)))
            code_watch_look(m, &c->cpu->vcpu, host_elapsed(m));
        crew_look_again(c->crew);
    }
    c->arrived = c->for_all = false;
}

/* It was sent a STARTUP. */
static int start(struct member *c, struct err *e)
{
    struct machine_cpu *cpu = c->cpu;

    cpu->starts = cpu->window = cpu->fault_pending = false;
    recorder_start(c->crew->machine->recorder, cpu->start_vector);
    return vcpu_start(&cpu->vcpu, cpu->start_vector, e);
}

/* Its turn: what it has come to is served, and then it runs on or rests. */
static int take_turn(struct member *c, struct err *e)
{
    struct machine *m = c->crew->machine;
    const bool exchanges = may_exchange(c);

    begin_turn(c);
    if (c->arrived)
        serve(c);
    else if (exchanges)
        take_arrivals(m);
    m->pc.apics.signalled = 0; /* for CPUs that take turns */
    if (m->ended || !cpu_can_run(m, c->cpu)) {
        recorder_rest(m->recorder);
        c->rests = true;
        return 0;
    }
    c->cpu->state = CPU_RUNS;
    if (c->cpu->starts && start(c, e) < 0)
        return -1;
    if (deliver(m, c->cpu, e) < 0)
        return -1;
    c->wanted_ns = c->pending_ns = c->retry_ns = c->retry_after_ns = 0;
    c->runs = true;
    written_forget(c->cpu->vcpu.vm, host_elapsed(m));
    return recorder_epoch(m->recorder, host_elapsed(m), e);
}

/* Behind anything that may have changed what others wait for. */
static void look_around(struct crew *crew)
{
    struct machine *m = crew->machine;
    const uint64_t now = host_elapsed(m);
    uint64_t wake =
        earlier(crew_pass_token(crew, now), host_when(m, pc_deadline(&m->pc, device_at(m, now))));

    for (unsigned i = 0; i < crew->count; i++) {
        struct member *c = &crew->member[i];
        if (c->runs)
            wake = earlier(wake, crew_kick_due(c, now));
        else if (can_go_on(c))
            pthread_cond_signal(&c->may_go_on);
    }
    wake = earlier(wake, recorder_epoch_due(m->recorder));
    if (wake < crew->sleeps_until || m->ended)
        crew_ring(crew);
}

/* ---- a CPU's thread ---- */

static int run_guest(struct member *c, struct err *e)
{
    struct crew *crew = c->crew;
    struct machine *m = crew->machine;
    struct vcpu_exit exit;

    c->entered_ns = host_elapsed(m);
    pthread_mutex_unlock(&crew->lock);
    int rc = c->cpu->clock.ops->run(&c->cpu->clock, &exit, e);
    pthread_mutex_lock(&crew->lock);
    const uint64_t now = host_elapsed(m);
    c->kicked_ns = 0;
    m->stats.exits++;
    if (rc == 0 && exit.kind != EXIT_KICK && exit.kind != EXIT_STEP) {
        crew_arrive(c, &exit);
    } else if (rc == 0) {
        m->stats.kicks++;
        const uint64_t due = crew_stop_due(c, now);
        if (now >= due && now >= c->retry_ns)
            rc = crew_force(c, due, false, e);
        else if (now >= crew_look_due(c, now))
            rc = crew_force(c, now, true, e);
    }
    crew_spend_token(c, host_elapsed(m) - c->entered_ns);
    c->entered_ns = host_elapsed(m);
    return rc;
}

static void work(struct member *c)
{
    struct crew *crew = c->crew;
    struct err e;

    while (!crew->failed && !(c->runs && crew->given_up)) {
        int rc = 0;
        if (c->runs)
            rc = run_guest(c, &e);
        else if (can_go_on(c))
            rc = take_turn(c, &e);
        else if (crew->machine->ended)
            break;
        else
            pthread_cond_wait(&c->may_go_on, &crew->lock);
        if (rc < 0)
            crew_fail(crew, &e);
        look_around(crew);
    }
}

static void *member_thread(void *arg)
{
    struct member *c = arg;
    struct err e;

    pthread_mutex_lock(&c->crew->lock);
    if (kick_target_begin(&c->kick_target, kick_vcpu, c, &e) < 0 ||
        kick_timer_create(&c->timer, &e) < 0) {
        crew_fail(c->crew, &e);
    } else {
        work(c);
        timer_delete(c->timer);
    }
    kick_target_end(&c->kick_target);
    c->done = true;
    crew_ring(c->crew);
    pthread_mutex_unlock(&c->crew->lock);
    return NULL;
}

/* ---- the thread that watches over them ---- */

static void end(struct crew *crew, enum end_reason reason)
{
    if (!crew->machine->ended)
        crew->machine->ended = reason;
}

/* Nothing will ever happen any more. */
static bool all_halted(const struct crew *crew)
{
    for (unsigned i = 0; i < crew->count; i++)
        if (!crew->member[i].rests || cpu_can_run(crew->machine, crew->member[i].cpu))
            return false;
    return !schedule_can_wake(crew->machine);
}

/* Kick who must stop, wake who can go on. Returns when to look again. */
static uint64_t supervise(struct crew *crew, uint64_t now)
{
    uint64_t wake = crew_pass_token(crew, now);

    for (unsigned i = 0; i < crew->count; i++) {
        struct member *c = &crew->member[i];
        if (c->done)
            continue;
        if (!c->runs) {
            if (can_go_on(c) || crew->machine->ended || crew->failed)
                pthread_cond_signal(&c->may_go_on);
            continue;
        }
        const uint64_t due = crew_kick_due(c, now);
        if (now < due) {
            wake = earlier(wake, due);
        } else {
            c->kicked_ns = now;
            kick_send(&c->kick_target);
        }
    }
    return wake;
}

static bool all_done(const struct crew *crew)
{
    for (unsigned i = 0; i < crew->count; i++)
        if (!crew->member[i].done)
            return false;
    return true;
}

static void sleep_until(struct crew *crew, uint64_t until, const sigset_t *signals)
{
    struct pollfd bell = {.fd = crew->bell, .events = POLLIN};
    const uint64_t now = host_elapsed(crew->machine), left = until > now ? until - now : 0;
    const struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000u),
                                     .tv_nsec = (long)(left % 1000000000u)};
    uint64_t count;

    if (ppoll(&bell, 1, until == NEVER ? NULL : &timeout, signals) > 0 &&
        read(crew->bell, &count, sizeof count) < 0)
        return; /* another one has heard it */
}

/* The rest of what a live machine needs: devices in time, console, its end. Signals are let in only
 * while it sleeps. */
static void watch(struct crew *crew, const sigset_t *signals)
{
    struct machine *m = crew->machine;
    struct err e;

    while (!all_done(crew)) {
        const uint64_t now = host_elapsed(m);
        if (machine_stop_wanted(m))
            end(crew, END_STOPPED);
        if (all_halted(crew))
            end(crew, END_HALTED);
        machine_look_for_hypercalls(m, now);
        if (recorder_epoch(m->recorder, now, &e) < 0)
            crew_fail(crew, &e);
        uint64_t wake = m->ended ? NEVER : update_devices(m, now);
        if (m->ended && !crew->ended_ns)
            crew->ended_ns = now ? now : 1;
        if (m->ended && now - crew->ended_ns > END_LIMIT_NS)
            crew->given_up = true;
        wake = earlier(wake, supervise(crew, now));
        wake = show_output(m, now, earlier(wake, recorder_epoch_due(m->recorder)));
        if (m->ended || crew->failed)
            wake = earlier(wake, now + END_LOOK_NS);
        crew->sleeps_until = wake;
        pthread_mutex_unlock(&crew->lock);
        sleep_until(crew, wake, signals);
        pthread_mutex_lock(&crew->lock);
        crew->sleeps_until = 0;
    }
}

/* ---- the whole ---- */

static void on_input(void *opaque)
{
    crew_ring(opaque);
}

static int start_threads(struct crew *crew, struct err *e)
{
    for (unsigned i = 0; i < crew->count; i++) {
        struct member *c = &crew->member[i];
        int rc = pthread_create(&c->thread, NULL, member_thread, c);
        if (rc) {
            for (; i < crew->count; i++)
                crew->member[i].done = true;
            return err_set(e, STATUS_ERROR, "cannot make a thread: %s", strerror(rc));
        }
        c->has_thread = true;
    }
    return 0;
}

static void prepare(struct crew *crew)
{
    struct machine *m = crew->machine;

    views_begin(&m->views);
    m->clock_host.hook = &m->hook;
    crew->turn = &crew->member[0];
    for (unsigned i = 0; i < crew->count; i++)
        crew->member[i].rests = i > 0;
    console_on_input(m->console, on_input, crew);
    nics_listen(&m->nics, on_input, crew);
    disks_listen(&m->disks, on_input, crew);
    control_listen(m->control, m, on_input, crew);
}

int crew_run(struct machine *m, enum end_reason *reason, struct err *e)
{
    struct crew *crew = m->crew;
    sigset_t old;
    struct err error;

    prepare(crew);
    pthread_sigmask(SIG_BLOCK, NULL, &old);
    stop_signals_block();
    pthread_mutex_lock(&crew->lock);
    if (start_threads(crew, &error) < 0)
        crew_fail(crew, &error);
    watch(crew, &old);
    pthread_mutex_unlock(&crew->lock);
    for (unsigned i = 0; i < crew->count; i++) {
        struct member *c = &crew->member[i];
        if (c->has_thread)
            pthread_join(c->thread, NULL);
        if (!c->arrived && !c->rests) /* on its way somewhere, or it has not begun */
            recorder_endless(m->recorder, c->index);
        m->ended_between |= c->runs;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    control_ignore(m->control);
    disks_ignore(&m->disks);
    nics_ignore(&m->nics);
    console_ignore_input(m->console); /* it rings the bell of a crew that is about to go */
    console_flush(m->console);
    *reason = crew->failed ? END_FAILED : m->ended;
    if (crew->failed)
        *e = crew->error;
    return crew->failed ? -1 : 0;
}

struct crew *crew_create(struct machine *m, struct err *e)
{
    struct crew *crew = calloc(1, sizeof *crew);

    if (crew)
        crew->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!crew || crew->bell < 0) {
        free(crew);
        err_set(e, STATUS_ERROR, "cannot make what CPUs at the same time need: %s",
                strerror(errno));
        return NULL;
    }
    crew->machine = m;
    crew->count = m->config.cpus;
    crew->random = m->config.chaos;
    pthread_mutex_init(&crew->lock, NULL);
    for (unsigned i = 0; i < crew->count; i++) {
        struct member *c = &crew->member[i];
        c->crew = crew;
        c->index = i;
        c->cpu = &m->cpus[i];
        pthread_cond_init(&c->may_go_on, NULL);
    }
    return crew;
}

void crew_destroy(struct crew *crew)
{
    if (!crew)
        return;
    for (unsigned i = 0; i < crew->count; i++)
        pthread_cond_destroy(&crew->member[i].may_go_on);
    pthread_mutex_destroy(&crew->lock);
    close(crew->bell);
    free(crew);
}
