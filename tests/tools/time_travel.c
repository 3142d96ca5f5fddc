/*
 * Time travel in a recording, at random: from many places N steps forwards and back must lead to
 * the same registers and memory; seeking, breakpoints forwards and backwards must agree. What was
 * changed and has gone astray must leave nothing behind when it is undone. The recording's
 * snapshots must be what playing to them leads to. Writes TAP.
 *
 * usage: time_travel REC SEED ROUNDS [MAX_STEPS [BUDGET_MIB]]
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/now.h"
#include "mmu/digest.h"
#include "replay/timeline.h"
#include "tests/tools/tool_host.h"

#define ASTRAY_SECONDS 5

static struct player player;
static struct timeline timeline;
static unsigned number, bad;

struct look {
    uint64_t memory, cpu, rip, ordinal;
};

static void fail(const char *what)
{
    printf("Bail out! %s\n", what);
    exit(1);
}

static struct look look(void)
{
    struct err e = {0};
    uint64_t cpu;

    if (player_finish_exit(&player, &e) < 0 || vcpus_digest(&player.vm, &cpu, &e) < 0)
        fail(e.text);
    return (struct look){
        .memory = memory_digest(&player.vm.memory, NULL),
        .cpu = cpu,
        .rip = player.cpu->vcpu.regs->rip,
        .ordinal = player.ordinal,
    };
}

static bool same(const struct look *a, const struct look *b)
{
    return !memcmp(a, b, sizeof *a);
}

static void ok(bool good, const char *what, uint64_t n, const struct look *a, const struct look *b,
               uint64_t ns)
{
    printf("%sok %u %s %llu # %.0f ms, sync point %llu, rip %#llx\n", good ? "" : "not ", ++number,
           what, (unsigned long long)n, (double)ns / 1e6, (unsigned long long)a->ordinal,
           (unsigned long long)a->rip);
    bad += !good;
    if (!good)
        printf("# then: sync point %llu, rip %#llx, memory %s, cpu %s\n",
               (unsigned long long)b->ordinal, (unsigned long long)b->rip,
               a->memory == b->memory ? "same" : "differs", a->cpu == b->cpu ? "same" : "differs");
}

static void expect(enum timeline_stop stop, enum timeline_stop wanted, const struct err *e)
{
    if (stop == TIMELINE_FAILED)
        fail(e->text);
    if (stop != wanted) {
        printf("# stop %d, not %d, at sync point %llu\n", stop, wanted,
               (unsigned long long)player.ordinal);
        bad++;
    }
}

/* N steps and N back. */
static void there_and_back(uint64_t n)
{
    struct err e = {0};
    const struct look from = look();
    const uint64_t began = host_now_ns();
    enum timeline_stop stop = TIMELINE_THERE;
    uint64_t done = 0;

    for (; done < n && stop == TIMELINE_THERE; done += stop == TIMELINE_THERE)
        stop = timeline_step(&timeline, &e);
    if (stop == TIMELINE_FAILED)
        fail(e.text);
    if (stop != TIMELINE_THERE)
        return; /* the end came first */
    for (uint64_t i = 0; i < done; i++)
        expect(timeline_reverse_step(&timeline, &e), TIMELINE_THERE, &e);
    const struct look to = look();
    ok(same(&from, &to), "steps and back:", n, &from, &to, host_now_ns() - began);
}

/* The vCPUs' digest, if the one that runs had these flags of results. */
static uint64_t cpu_with_flags(uint64_t rflags)
{
    struct vcpu *const vcpu = &player.cpu->vcpu;
    const struct kvm_regs before = *vcpu->regs;
    struct kvm_regs regs = before;

    regs.rflags = (regs.rflags & ~RFLAGS_STATUS) | (rflags & RFLAGS_STATUS);
    vcpu_set_regs(vcpu, &regs);
    const uint64_t digest = look().cpu;
    vcpu_set_regs(vcpu, &before);
    return digest;
}

/* One back, one forth. A forced point and the place before it are the same to the CPU, but for the
 * dead piece of stack that is cleared there, and for flags that nobody reads: of the recording they
 * are, where its alarm counted that entry into the kernel (docs/nondeterminism.md). */
static void back_and_there(void)
{
    struct err e = {0};
    const bool forced = player.at_sync && player.cpu->last_sync.kind == EXIT_FORCED;
    const struct look from = look();
    const uint64_t flags = player.cpu->vcpu.regs->rflags;
    const uint64_t began = host_now_ns();
    enum timeline_stop stop = timeline_reverse_step(&timeline, &e);

    if (stop == TIMELINE_BEGIN)
        return;
    expect(stop, TIMELINE_THERE, &e);
    const uint64_t ns = host_now_ns() - began;
    expect(timeline_step(&timeline, &e), TIMELINE_THERE, &e);
    const struct look to = look();
    ok((forced || from.memory == to.memory) &&
           from.cpu == (forced ? cpu_with_flags(flags) : to.cpu),
       "a step back, and there again", 1, &from, &to, ns);
}

static void interrupt(int signal_number)
{
    (void)signal_number;
    timeline_interrupt(&timeline);
    player_interrupt(&player);
}

/* Change a register and some memory, code and stack among it, go on with that for n steps or to
 * where it ends, and come back, in one of three ways. */
static void astray(unsigned way, uint64_t n)
{
    struct err e = {0};
    const struct look from = look();
    const uint64_t began = host_now_ns(), bytes = timeline.history.bytes;
    const struct guest_memory *m = &player.vm.memory;
    struct vcpu_state state;
    enum timeline_stop stop = TIMELINE_THERE;

    if (timeline_change(&timeline, &e) < 0 || vcpu_state_get(&player.cpu->vcpu, &state, &e) < 0)
        fail(e.text);
    state.regs.rbx ^= 1ull << rand() % 64;
    state.regs.r12 = (uint64_t)rand();
    if (vcpu_state_set(&player.cpu->vcpu, &state, &e) < 0)
        fail(e.text);
    for (unsigned i = 0; i < 20; i++) {
        uint8_t *at = m->host + (uint64_t)rand() % m->size;
        guest_memory_mark(m, at, 1);
        *at ^= 0x5a;
    }
    const struct look changed = look();
    for (uint64_t i = 0; i < n && stop == TIMELINE_THERE; i++)
        stop = timeline_step(&timeline, &e);
    /* It may well go round for ever. */
    signal(SIGALRM, interrupt);
    alarm(ASTRAY_SECONDS);
    if (stop == TIMELINE_THERE && n)
        stop = timeline_continue(&timeline, &e);
    alarm(0);
    if (stop == TIMELINE_FAILED)
        printf("# %s\n", e.text); /* KVM may give up on nonsense */
    if (n && timeline_checkpoint(&timeline, &e))
        fail("a checkpoint was made of what was not recorded");
    if (way == 0) {
        expect(timeline_reverse_step(&timeline, &e), TIMELINE_UNDONE, &e);
    } else if (way == 1) {
        expect(timeline_undo(&timeline, &e), n ? TIMELINE_UNDONE : TIMELINE_THERE, &e);
    } else {
        expect(timeline_seek(&timeline, from.ordinal, &e), TIMELINE_THERE, &e);
    }
    const struct look to = look();
    ok(same(&from, &to) && changed.memory != from.memory && changed.cpu != from.cpu &&
           timeline.history.bytes == bytes,
       "changed, astray and undone, steps", n, &from, &to, host_now_ns() - began);
}

/* Every snapshot is gone to at once, and then played to, from the one before it. Steps back from it
 * come from before it, too. */
static void visit_snapshots(void)
{
    struct err e = {0};
    const struct snapshot_entry *s;

    for (uint64_t from = 0, upto = 0; upto != UINT64_MAX; from = s->ordinal) {
        upto = UINT64_MAX;
        for (size_t i = 0; i < timeline.snapshots.count; i++)
            if (timeline.snapshots.at[i].ordinal > from && timeline.snapshots.at[i].ordinal < upto)
                upto = timeline.snapshots.at[i].ordinal;
        if (upto == UINT64_MAX)
            return;
        s = snapshot_list_before(&timeline.snapshots, upto);
        const uint64_t began = host_now_ns();
        expect(timeline_seek(&timeline, upto, &e), TIMELINE_THERE, &e);
        const uint64_t ns = host_now_ns() - began;
        const struct look there = look();
        there_and_back(100);
        back_and_there();
        expect(timeline_seek(&timeline, from, &e), TIMELINE_THERE, &e);
        expect(timeline_run(&timeline, upto, &e), TIMELINE_THERE, &e);
        const struct look played = look();
        ok(same(&there, &played), "a snapshot, and played to: pages", s->pages, &there, &played,
           ns);
    }
}

int main(int argc, char **argv)
{
    struct err e = {0};
    int status;

    if (argc < 4)
        return 2;
    const struct host_needs needs = {.guest_memory = 512u << 20};
    if (tool_ran_in_host("time_travel", argv, &needs, &status))
        return status;
    const uint64_t budget = (argc > 5 ? strtoull(argv[5], NULL, 0) : 256) << 20;
    struct recording *recording = recording_open(argv[1], &e);
    if (!recording || player_open(&player, recording, NULL, &e) < 0 ||
        timeline_open(&timeline, &player, budget, &e) < 0)
        fail(e.text);
    srand((unsigned)atoi(argv[2]));
    const uint64_t most = argc > 4 ? strtoull(argv[4], NULL, 0) : 1000;

    visit_snapshots();
    uint64_t began = host_now_ns();
    expect(timeline_continue(&timeline, &e), TIMELINE_END, &e);
    const uint64_t last = player.ordinal;
    printf("# %llu sync points, to the end in %.1f s, %.1f MiB of checkpoints, pauses of up to "
           "%.1f ms\n",
           (unsigned long long)last, (double)(host_now_ns() - began) / 1e9,
           (double)timeline.history.bytes / 1048576, (double)timeline.pause_max_ns / 1e6);
    for (int round = 0; round < atoi(argv[3]); round++) {
        const uint64_t ordinal = (uint64_t)rand() % last;
        began = host_now_ns();
        expect(timeline_seek(&timeline, ordinal, &e), TIMELINE_THERE, &e);
        printf("# seek to %llu: %.0f ms\n", (unsigned long long)ordinal,
               (double)(host_now_ns() - began) / 1e6);
        for (uint64_t n = 1; n <= most; n *= 10)
            there_and_back(n);
        expect(timeline_seek(&timeline, ordinal, &e), TIMELINE_THERE, &e);
        for (unsigned way = 0; way < 3; way++)
            astray(way, way == 1 ? 0 : (uint64_t)rand() % 50 + 1);
        back_and_there();
    }
    /* What follows is as if nothing had happened: everything is compared up to the end. */
    began = host_now_ns();
    const struct look at = look();
    enum timeline_stop stop = timeline_continue(&timeline, &e);
    const struct look end = look();
    ok(stop == TIMELINE_END && end.ordinal == last, "to the end from", at.ordinal, &at, &end,
       host_now_ns() - began);
    printf("1..%u\n", number);
    timeline_close(&timeline);
    player_close(&player);
    recording_close(recording);
    return bad ? 1 : 0;
}
