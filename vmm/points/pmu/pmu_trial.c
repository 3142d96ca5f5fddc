/*
 * The self-test of the branch counter on this machine: a micro-guest of doctor's and a counter of
 * perf_event_open(2), in a child process.
 */
#include "vmm/points/pmu/pmu_selftest.h"

#include "vmm/kvm/micro_guest.h"

/* Where the host has no PMU this is never reached; where it has one it takes some 10 ms. */
#define LIMIT_MS 3000

/* 100 times: 999 branches of a loop with a locked instruction, one exit, one branch more. */
GUEST_CODE(micro_branches, "mov $100, %ebx\n"
                           "1: mov $999, %ecx\n"
                           "2: lock incl 0x800000\n"
                           "dec %ecx\n"
                           "jnz 2b\n"
                           "out %al, $0x51\n"
                           "dec %ebx\n"
                           "jnz 1b\n" GUEST_DONE);
#define BRANCHES 100000
#define BETWEEN  0x51

struct trial {
    struct pmu_trial trial; /* its first member */
    struct micro_guest guest;
    struct pmu_perf counter, spoiler;
    struct kvm_regs first;
};

static int start(struct pmu_trial *t, struct err *e)
{
    struct trial *own = (struct trial *)t;

    (void)e;
    vcpu_set_regs(&own->guest.vcpu, &own->first);
    return 0;
}

static int run(struct pmu_trial *t, struct vcpu_exit *exit, bool *finished, struct err *e)
{
    struct micro_guest *g = &((struct trial *)t)->guest;

    if (vcpu_run(&g->vcpu, exit, e) < 0)
        return -1;
    *finished = exit->kind == EXIT_PIO_OUT && exit->at == MICRO_DONE;
    if (*finished) /* or it would be finished after the registers have been set again */
        return vcpu_complete(&g->vcpu, e);
    if (exit->kind == EXIT_KICK || (exit->kind == EXIT_PIO_OUT && exit->at == BETWEEN))
        return 0;
    return err_set(e, STATUS_ERROR, "the counter's test guest does not run (exit %d at rip %#llx)",
                   exit->kind, (unsigned long long)g->vcpu.regs->rip);
}

static void work(struct pmu_trial *t)
{
    (void)t;
    for (volatile unsigned i = 0; i < 5000; i++)
        ;
}

static const struct pmu_trial_ops trial_ops = {.start = start, .run = run, .work = work};

const struct pmu_event *pmu_event_here(struct err *e)
{
    const struct pmu_cpu cpu = pmu_cpu_here();
    const struct pmu_event *event = pmu_event_find(&cpu, e);

    if (!event || !event->needs_smi_freeze || pmu_perf_frozen_on_smi())
        return event;
    err_set(e, STATUS_ERROR,
            "%s counts what its firmware does; as root: echo 1 > /sys/devices/cpu/freeze_on_smi",
            event->name);
    return NULL;
}

/* Both counters, before the guest: where there are none, that is the answer. */
static bool open_counters(struct trial *t, struct err *e)
{
    const struct pmu_event *event = t->trial.event;

    if (pmu_perf_open(&t->counter, event->raw, &t->guest.vcpu, e) < 0 ||
        (event->spoiler && pmu_perf_open(&t->spoiler, event->spoiler, NULL, e) < 0))
        return false;
    t->trial.counter = &t->counter.counter;
    t->trial.spoiler = event->spoiler ? &t->spoiler.counter : NULL;
    return true;
}

void pmu_probe(struct probe_outcome *o)
{
    static struct trial t = {.trial = {.ops = &trial_ops, .branches = BRANCHES}};
    struct err e = {0};

    t.trial.event = pmu_event_here(&e);
    if (!t.trial.event) {
        probe_says(o, PROBE_MISSING, "%.220s", e.text);
        return;
    }
    if (!micro_guest_start(&t.guest, PROGRAM(micro_branches), 0, o))
        return;
    t.first = *t.guest.vcpu.regs;
    if (!open_counters(&t, &e)) {
        probe_says(o, PROBE_MISSING, "%s: %.180s", t.trial.event->name, e.text);
        return;
    }
    if (pmu_selftest(&t.trial, &e) < 0) {
        probe_says(o, PROBE_BROKEN, "%s: %.180s", t.trial.event->name, e.text);
        return;
    }
    probe_says(o, PROBE_OK,
               "%s, raw event %#llx: exact, overflows up to %llu of %llu branches late",
               t.trial.event->name, (unsigned long long)t.trial.event->raw,
               (unsigned long long)t.trial.latest, (unsigned long long)t.trial.event->skid);
}

int pmu_selftest_isolated(struct err *e)
{
    struct probe_outcome o;

    isolated_run(pmu_probe, LIMIT_MS, &o);
    return o.result == PROBE_OK ? 0 : err_set(e, STATUS_ERROR, "%s", o.detail);
}
