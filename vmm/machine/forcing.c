/* Forced points of a machine whose vCPUs take turns: when one is due, and where it is. */
#include <string.h>

#include "vmm/machine/run_loop.h"
#include "vmm/machine/schedule.h"
#include "vmm/points/entry_count.h"

/* When it is looked for the first time whether kernel code is in a loop that waits, before there is
 * user space; and how much longer than a look it runs in between. */
#define LOOP_NS    30000000ull
#define LOOP_SHARE 8
/* How long what waits for the CPU waits for a sync point before it is to stop where it enters its
 * kernel next; and at the least before it is to stop anywhere. */
#define ENTRY_GRACE_NS 1000000ull
#define LEAST_GRACE_NS 2000000ull
/* How long a stop by the user waits for a sync point. */
#define STOP_GRACE_NS 20000000ull
/* After this a stop does not wait any longer for a point that can be compared in a replay. */
#define STOP_LIMIT_NS 3000000000ull

/* The exception frames that landing at CPL3 leaves behind differ from run to run, so both sides
 * clear that dead piece of stack. */
static void scrub_user_frame(struct machine *m)
{
    static const uint8_t zero[sizeof(struct exception_frame)];
    uint64_t gpa = gphook_user_frame_gpa(&m->cpu->vcpu);

    if (gpa)
        m->dma.dma.write(&m->dma.dma, gpa, zero, sizeof zero);
}

/* Since when something has waited for the CPU to stop; NEVER: nothing does. */
static uint64_t waiting_since(struct machine *m, uint64_t now)
{
    const uint64_t turn_ends = schedule_deadline(m);

    if (!machine_stop_wanted(m) && !m->cpu->nmi && !arrivals_wait(m) &&
        (m->cpu->window || !pc_irq_pending(&m->pc, m->cpu->vcpu.index)))
        m->pending_ns = 0;
    else if (!m->pending_ns)
        m->pending_ns = now;
    return m->pending_ns && m->pending_ns < turn_ends ? m->pending_ns : turn_ends;
}

/* The vCPU stands at a point that was chosen. */
static void stop_here(struct machine *m, struct landmark *landmark)
{
    const struct vcpu_exit exit = {.kind = EXIT_FORCED};

    landmark->counted = m->cpu->clock.ops->counts;
    landmark->branches = m->cpu->clock.branches;
    machine_forced(m, landmark);
    recorder_forced(m->recorder, landmark);
    recorder_sync(m->recorder, &m->cpu->vcpu, &exit);
    clock_sync(&m->cpu->clock);
    note_task_priority(m, m->cpu);
    if (landmark->cpl == 3)
        scrub_user_frame(m);
    m->at_sync = true;
    m->stats.forced++;
}

static enum clock_reason stop_reason(const struct machine *m, bool only_waiting, uint64_t now)
{
    return only_waiting                                 ? CLOCK_IF_WAITING
           : m->cpu->nmi || schedule_deadline(m) <= now ? CLOCK_FOR_ANOTHER
                                                        : CLOCK_FOR_ITSELF;
}

/* only_waiting: if the CPU only waits for another one, and not otherwise. */
static int force_point(struct machine *m, bool only_waiting, struct err *e)
{
    struct vcpu_exit exit;
    struct landmark landmark;
    struct clock *clock = &m->cpu->clock;
    const uint64_t now = host_elapsed(m), since = waiting_since(m, now);
    const uint64_t waited = since < now ? now - since : 0;
    const bool patches = clock_patches_itself(&m->cpu->vcpu, &m->hook);
    const bool looks_for_loop = waited >= LOOP_NS && now >= m->loop_look_ns;

    m->stats.forced_tries++;
    m->clock_host.reason = stop_reason(m, only_waiting, now);
    m->clock_host.effort = waited >= (patches ? HURRY_PATCHING_NS : HURRY_NS) ? CLOCK_ANY_PLACE
                           : looks_for_loop                                   ? CLOCK_WAITING_LOOP
                                                                              : CLOCK_GOOD_PLACE;
    const enum clock_choice choice = clock->ops->choose(clock, &m->clock_host, &landmark, &exit, e);
    if (looks_for_loop)
        m->loop_look_ns = now + (1 + LOOP_SHARE) * (host_elapsed(m) - now);
    switch (choice) {
    case CLOCK_CHOSEN:
        stop_here(m, &landmark);
        schedule_looked(m, now, only_waiting);
        return 0;
    case CLOCK_LATER:
        schedule_looked(m, host_elapsed(m), false);
        if (only_waiting)
            return 0;
        m->retry_after_ns = next_retry(m->retry_after_ns);
        m->retry_ns = host_elapsed(m) + m->retry_after_ns;
        return 0;
    case CLOCK_EXITED:
        if (exit.kind == EXIT_WINDOW && m->forced_window)
            return 0;
        handle_sync(m, m->cpu, &exit);
        return 0;
    case CLOCK_FAILED:
        break;
    }
    return -1;
}

/* It is time for a forced point. */
static int try_to_force(struct machine *m, bool only_waiting, uint64_t now, uint64_t *wake,
                        struct err *e)
{
    const bool for_others = stop_reason(m, only_waiting, now) != CLOCK_FOR_ITSELF;
    int rc = 0;

    if (for_others ? vcpu_is_settled(&m->cpu->vcpu) : vcpu_interruptible(&m->cpu->vcpu)) {
        rc = force_point(m, only_waiting, e);
    } else if (for_others) { /* an instruction or two */
        m->retry_ns = now + LEAST_RUN_NS;
        schedule_looked(m, now, false);
    } else if (!m->cpu->window) { /* run until interrupts are on again, unseen by the recording */
        vcpu_want_window(&m->cpu->vcpu, true);
        m->forced_window = true;
    }
    /* Not here: the guest runs on until then. */
    *wake = earlier(*wake, earlier(m->retry_ns > now ? m->retry_ns : NEVER, schedule_look(m)));
    return rc;
}

/* ---- where the guest enters its kernel ---- */

/* From when on the vCPU is stopped at the next one. */
static void note_entry_wanted(struct machine *m, uint64_t since, uint64_t now, uint64_t *wake)
{
    const uint64_t due =
        since == NEVER ? NEVER : since + earlier(m->config.grace_ns, ENTRY_GRACE_NS);

    m->entry_wanted = now >= due;
    if (!m->entry_wanted)
        *wake = earlier(*wake, due);
}

static int step_of_clock(void *clock, struct vcpu_exit *exit, struct err *e)
{
    return ((struct clock *)clock)->ops->step(clock, exit, e);
}

int run_to_entry(struct machine *m, struct vcpu_exit *exit, bool *entered, struct err *e)
{
    struct clock *clock = &m->cpu->clock;
    uint64_t *word =
        m->entry_wanted ? entry_count_word(&m->cpu->vcpu, &m->kernel_code.entries, NULL) : NULL;
    struct entry_alarm alarm;
    int rc;

    *entered = false;
    if (!word)
        return clock->ops->run(clock, exit, e);
    entry_alarm_set(&alarm, word, 1);
    rc = clock->ops->run(clock, exit, e);
    if (rc == 0 && exit->kind == EXIT_KICK)
        rc = entry_alarm_reach(&alarm, &m->cpu->vcpu, step_of_clock, clock, exit, e);
    *entered = rc == 0 && exit->kind == EXIT_HLT && entry_alarm_goes_off(&alarm, &m->cpu->vcpu);
    entry_alarm_clear(&alarm);
    return rc;
}

void force_point_at_entry(struct machine *m)
{
    struct landmark landmark;

    if (!entries_describe(&m->cpu->vcpu, &m->kernel_code.entries, &landmark))
        return;
    stop_here(m, &landmark);
    m->stats.entries++;
    schedule_looked(m, host_elapsed(m), false);
}

/* When what has waited since then has a point forced. A guest that has not come to a sync point for
 * long when something begins to wait, hardly comes to one soon. */
static uint64_t force_due(const struct machine *m, uint64_t since)
{
    const uint64_t grace = m->config.grace_ns;

    if (since == NEVER)
        return NEVER;
    if (machine_stop_wanted(m))
        return since + STOP_GRACE_NS;
    since += earlier(grace, LEAST_GRACE_NS);
    return since > m->left_ns + grace ? since : m->left_ns + grace;
}

int consider_forcing(struct machine *m, uint64_t now, uint64_t *wake, struct err *e)
{
    const bool stop = machine_stop_wanted(m);
    const uint64_t since = waiting_since(m, now), look = schedule_look(m);
    uint64_t due = force_due(m, since);

    if (stop && !m->stop_ns)
        m->stop_ns = now;
    if (stop && now - m->stop_ns > STOP_LIMIT_NS) {
        m->ended = END_STOPPED;
        m->ended_between = true;
        return 0;
    }
    if (due != NEVER && m->retry_ns > due)
        due = m->retry_ns;
    note_entry_wanted(m, since, now, wake);
    if (now >= due)
        return try_to_force(m, false, now, wake, e);
    if (now >= look)
        return try_to_force(m, true, now, wake, e);
    *wake = earlier(*wake, earlier(due, look));
    return 0;
}

int force_point_at_window(struct machine *m, struct err *e)
{
    vcpu_want_window(&m->cpu->vcpu, false);
    m->forced_window = false;
    return force_point(m, false, e); /* if it is to be later, the next round sets the timer */
}
