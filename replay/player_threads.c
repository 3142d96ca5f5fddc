/*
 * Plays a recording of vCPUs that ran at the same time at the same time: each on a thread of its
 * own, as KVM wants it (a vCPU that changes threads costs an RCU grace period). Turns are played in
 * the order of the recording, by the thread whose vCPU's turn it is, under one lock; a run from
 * exit to exit is outside of it. What a turn waits for is what the recorder has waited for:
 *
 *   a page fault           those who have the page, which must have come to their exits
 *   memory used by devices, and landings (they put bytes of ours into code)    all others
 *
 * so a run finds memory as it did when it was recorded, and everything that is compared is compared
 * as ever.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "replay/player_inside.h"

/* Brings a vCPU's thread out of KVM_RUN; its handler does nothing. */
#define LEAVE_SIGNAL SIGUSR1

struct player_thread {
    struct player *player;
    unsigned index;
    pthread_t thread;
    _Atomic pid_t tid; /* 0: not begun, or at its end */
};

struct player_threads {
    pthread_mutex_t lock; /* of the player, but for the vCPU of a thread that runs */
    pthread_cond_t changed;
    struct player_thread thread[MAX_VCPUS];
    unsigned started;
    uint64_t until;
    bool failed;
    struct err error;
};

static void on_leave(int signal)
{
    (void)signal;
}

/* Whatever status it was: nobody plays on. */
static bool goes_on(const struct player *p)
{
    return p->status == PLAYER_RUNNING && !p->threads->failed;
}

void player_threads_kick(struct player *p)
{
    for (unsigned i = 0; i < p->cpu_count; i++) {
        const pid_t tid = p->threads->thread[i].tid;
        if (!tid)
            continue;
        vcpu_kick(&p->cpus[i].vcpu);
        syscall(SYS_tgkill, getpid(), tid, LEAVE_SIGNAL);
    }
}

/* Behind anything that others may wait for. */
static void tell(struct player *p)
{
    if (!goes_on(p))
        player_threads_kick(p);
    pthread_cond_broadcast(&p->threads->changed);
}

/* ---- waiting for others ---- */

static bool is_in_the_way(struct player *p, const struct player_cpu *other,
                          const struct page_fault *wanted)
{
    const unsigned own = p->cpu->vcpu.index;

    return other != p->cpu && other->runs &&
           (!wanted ||
            views_conflict(&p->views, own, other->vcpu.index, views_root(&p->cpu->vcpu), wanted));
}

static bool stand(struct player *p, const struct page_fault *wanted)
{
    if (!p->threads)
        return true;
    for (unsigned i = 0; i < p->cpu_count && goes_on(p); i++)
        while (goes_on(p) && is_in_the_way(p, &p->cpus[i], wanted))
            pthread_cond_wait(&p->threads->changed, &p->threads->lock);
    return goes_on(p);
}

bool player_all_stand(struct player *p)
{
    return stand(p, NULL);
}

bool player_losers_stand(struct player *p, const struct page_fault *wanted)
{
    return stand(p, wanted);
}

/* ---- a vCPU's thread ---- */

static void fail(struct player *p, const struct err *e)
{
    if (!p->threads->failed)
        p->threads->error = *e;
    p->threads->failed = true;
}

static bool stop_if_interrupted(struct player *p)
{
    if (!p->interrupted || !goes_on(p))
        return false;
    p->interrupted = false;
    p->status = PLAYER_STOPPED;
    return true;
}

/* To its next exit, or until nobody plays on: then it is still on its way. */
static void run(struct player *p, struct player_cpu *cpu)
{
    struct vcpu_exit exit;
    struct err e;

    pthread_mutex_unlock(&p->threads->lock);
    int rc = cpu->clock.ops->run(&cpu->clock, &exit, &e);
    pthread_mutex_lock(&p->threads->lock);
    if (rc < 0) {
        fail(p, &e);
    } else if (exit.kind != EXIT_KICK) {
        cpu->exit = exit;
        gphook_arrive(&cpu->vcpu, &p->hook, &cpu->exit, &cpu->trap);
        cpu->waits = true;
        cpu->runs = false;
    } else {
        stop_if_interrupted(p);
    }
    tell(p);
}

/* Its turn. */
static void play(struct player *p, const struct player_cpu *cpu)
{
    struct err e;

    while (goes_on(p) && p->cpu == cpu && !cpu->runs) {
        if (stop_if_interrupted(p))
            break;
        if (player_crew_step(p, p->threads->until, &e) < 0)
            fail(p, &e);
    }
    tell(p);
}

static void *thread(void *argument)
{
    struct player_thread *t = argument;
    struct player *p = t->player;
    struct player_cpu *cpu = &p->cpus[t->index];

    pthread_mutex_lock(&p->threads->lock);
    t->tid = (pid_t)syscall(SYS_gettid);
    while (goes_on(p)) {
        if (cpu->runs)
            run(p, cpu);
        else if (p->cpu == cpu)
            play(p, cpu);
        else
            pthread_cond_wait(&p->threads->changed, &p->threads->lock);
    }
    t->tid = 0;
    pthread_mutex_unlock(&p->threads->lock);
    return NULL;
}

/* ---- the whole ---- */

/* The caller's thread alone gets the signals that somebody sends to the process. */
static int start(struct player *p, struct err *e)
{
    const struct sigaction action = {.sa_handler = on_leave};
    sigset_t all, old;
    int rc = 0;

    if (sigaction(LEAVE_SIGNAL, &action, NULL) < 0)
        return err_set(e, STATUS_ERROR, "cannot catch a signal: %s", strerror(errno));
    sigfillset(&all);
    sigdelset(&all, LEAVE_SIGNAL);
    sigdelset(&all, OWNERSHIP_SIGNAL);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (unsigned i = 0; i < p->cpu_count && rc == 0; i++) {
        struct player_thread *t = &p->threads->thread[i];
        *t = (struct player_thread){.player = p, .index = i};
        rc = pthread_create(&t->thread, NULL, thread, t);
        p->threads->started += rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc ? err_set(e, STATUS_ERROR, "cannot make a thread: %s", strerror(rc)) : 0;
}

int player_threads_run(struct player *p, uint64_t until, struct err *e)
{
    struct player_threads threads = {.until = until};
    struct err error;

    assert(!p->threads && !breakpoints_any(&p->stops) && !p->follower);
    pthread_mutex_init(&threads.lock, NULL);
    pthread_cond_init(&threads.changed, NULL);
    p->threads = &threads;
    pthread_mutex_lock(&threads.lock);
    if (start(p, &error) < 0)
        fail(p, &error);
    pthread_mutex_unlock(&threads.lock);
    for (unsigned i = 0; i < threads.started; i++)
        pthread_join(threads.thread[i].thread, NULL);
    p->threads = NULL;
    pthread_cond_destroy(&threads.changed);
    pthread_mutex_destroy(&threads.lock);
    if (threads.failed)
        *e = threads.error;
    return threads.failed ? -1 : 0;
}
