/* Taking down the state of a replay, and bringing it back: see replay/player.h. */
#include "replay/player_inside.h"

int player_finish_exit(struct player *p, struct err *e)
{
    player_settle(p);
    return vcpu_complete(&p->cpu.vcpu, e);
}

int player_mark(struct player *p, struct player_mark *mark, struct err *e)
{
    struct vcpu_player *cpu = &p->cpu;
    struct vcpu *vcpu = &cpu->vcpu;

    player_settle(p);
    *mark = (struct player_mark){
        .window = vcpu->run->request_interrupt_window,
        .at_sync = cpu->at_sync,
        .last_sync = cpu->last_sync,
        .codec = cpu->has_next ? cpu->codec_before : cpu->codec,
        .ordinal = cpu->ordinal,
        .tsc = cpu->tsc,
        .branches = cpu->clock.branches,
        .hook = p->hook,
        .outputs = p->outputs,
        .dlab = p->dlab,
        .loopback = p->loopback,
    };
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++)
        mark->at[kind] = stream_tell(cpu->stream[kind]);
    return vcpu_complete(vcpu, e) < 0 || mark_get_vcpu(vcpu, mark, e) < 0 ? -1 : 0;
}

int player_restore(struct player *p, const struct player_mark *mark, struct err *e)
{
    struct vcpu_player *cpu = &p->cpu;
    struct vcpu *vcpu = &cpu->vcpu;

    player_settle(p);
    vcpu_want_window(vcpu, mark->window);
    /* An instruction that is half done would be finished in the state that is set now. */
    if (vcpu_complete(vcpu, e) < 0 || vcpu_state_set(vcpu, &mark->cpu, e) < 0 ||
        vcpu_pending_set(vcpu, &mark->pending, e) < 0)
        return -1;
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++)
        stream_seek(cpu->stream[kind], mark->at[kind]);
    cpu->last_sync = mark->last_sync;
    cpu->codec = mark->codec;
    cpu->has_next = false;
    cpu->at_sync = mark->at_sync;
    cpu->ordinal = mark->ordinal;
    cpu->tsc = mark->tsc;
    clock_restore(&cpu->clock, mark->branches);
    p->hook = mark->hook;
    p->outputs = mark->outputs;
    p->dlab = mark->dlab;
    p->loopback = mark->loopback;
    p->status = PLAYER_RUNNING;
    p->interrupted = false;
    /* Once more, for what KVM says in kvm_run about interrupts. */
    return vcpu_complete(vcpu, e);
}
