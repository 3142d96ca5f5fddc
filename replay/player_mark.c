/* Taking down the state of a replay, and bringing it back: see replay/player.h. */
#include "replay/player_inside.h"

int player_finish_exit(struct player *p, struct err *e)
{
    player_settle(p);
    return breakpoints_complete(&p->stops, e);
}

int player_abandon_exit(struct player *p, struct err *e)
{
    player_settle(p);
    return vcpu_abandon(&p->cpu->vcpu, e);
}

int player_is_halfway(struct player *p, struct err *e)
{
    if (!p->at_sync || p->parallel)
        return 0;
    return player_finish_exit(p, e) < 0 ? -1 : vcpu_is_halfway(&p->cpu->vcpu);
}

static int mark_cpu(struct player_cpu *cpu, struct cpu_mark *mark, struct err *e)
{
    struct vcpu *vcpu = &cpu->vcpu;

    mark->window = vcpu->run->request_interrupt_window;
    mark->last_sync = cpu->last_sync;
    mark->branches = cpu->clock.branches;
    mark->without_x87_last = vcpu->without_mxcsr;
    return vcpu_complete(vcpu, e) < 0 || vcpu_state_get(vcpu, &mark->state, e) < 0 ||
                   vcpu_pending_get(vcpu, &mark->pending, e) < 0
               ? -1
               : 0;
}

int player_mark(struct player *p, struct player_mark *mark, struct err *e)
{
    if (p->parallel)
        return err_set(e, STATUS_ERROR,
                       "%s was recorded with --smp crew: for now it can be replayed and verified, "
                       "but not debugged or given snapshots",
                       recording_path(p->recording));
    if (player_finish_exit(p, e) < 0)
        return -1;
    *mark = (struct player_mark){
        .cpu_count = p->cpu_count,
        .cpu = p->cpu->vcpu.index,
        .at_sync = p->at_sync,
        .codec = p->has_next ? p->codec_before : p->codec,
        .ordinal = p->ordinal,
        .tsc = p->tsc,
        .hook = p->hook,
        .outputs = p->outputs,
        .dlab = p->dlab,
        .loopback = p->loopback,
    };
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++)
        mark->at[kind] = stream_tell(p->stream[kind]);
    for (unsigned i = 0; i < p->cpu_count; i++) {
        if (mark_cpu(&p->cpus[i], &mark->cpus[i], e) < 0)
            return -1;
        if (vcpu_is_halfway(&p->cpus[i].vcpu))
            return err_set(e, STATUS_ERROR, "sync point %llu is in the middle of an instruction",
                           (unsigned long long)p->ordinal);
    }
    return 0;
}

static int restore_cpu(struct player_cpu *cpu, const struct cpu_mark *mark, struct err *e)
{
    struct vcpu *vcpu = &cpu->vcpu;

    vcpu_want_window(vcpu, mark->window);
    /* An instruction that is half done would be finished in the state that is set now. */
    if (vcpu_abandon(vcpu, e) < 0 || vcpu_state_set(vcpu, &mark->state, e) < 0)
        return -1;
    vcpu_flush_tlb(vcpu); /* its page tables are others, though CR3 may be the same */
    if (vcpu_pending_set(vcpu, &mark->pending, e) < 0)
        return -1;
    cpu->last_sync = mark->last_sync;
    clock_restore(&cpu->clock, mark->branches);
    /* Once more, for what KVM says in kvm_run about interrupts. */
    return vcpu_complete(vcpu, e);
}

int player_restore(struct player *p, const struct player_mark *mark, struct err *e)
{
    player_settle(p);
    breakpoints_forget_stores(&p->stops);
    if (mark->cpu_count != p->cpu_count)
        return err_set(e, STATUS_BAD_RECORDING, "it is of a machine with %u CPUs, not %u",
                       mark->cpu_count, p->cpu_count);
    for (unsigned i = 0; i < p->cpu_count; i++)
        if (restore_cpu(&p->cpus[i], &mark->cpus[i], e) < 0)
            return -1;
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++)
        stream_seek(p->stream[kind], mark->at[kind]);
    player_set_cpu(p, mark->cpu);
    p->codec = mark->codec;
    p->has_next = false;
    p->at_sync = mark->at_sync;
    p->ordinal = mark->ordinal;
    p->tsc = mark->tsc;
    p->hook = mark->hook;
    p->outputs = mark->outputs;
    p->dlab = mark->dlab;
    p->loopback = mark->loopback;
    p->status = PLAYER_RUNNING;
    p->interrupted = false;
    return 0;
}

static int load_pages(struct player *p, const struct snapshot *s, struct err *e)
{
    struct page_chunk *list = calloc(s->pages + 1, sizeof *list);
    size_t count = 0;

    if (!list)
        return err_set(e, STATUS_ERROR, "out of memory");
    for (size_t i = 0; i < s->run_count; i++) {
        const struct page_run *run = &s->runs[i];
        for (uint32_t n = 0; n < run->count; n++)
            list[count++] = (struct page_chunk){run->page + n, run->chunk + (run->same ? 0 : n)};
    }
    int rc = chunk_read_pages(p->chunks, list, count, p->vm.memory.host, e);
    free(list);
    return rc;
}

int player_enter(struct player *p, const struct snapshot_entry *entry, struct err *e)
{
    struct snapshot s;
    int rc = snapshot_read(p->recording, entry, p->vm.memory.size / PAGE_BYTES, &s, e);

    assert(p->ordinal == 0 && !p->vm.memory.marked);
    if (rc == 0)
        rc = load_pages(p, &s, e);
    if (rc == 0 && player_restore(p, &s.mark, e) < 0) {
        const struct err cause = *e;
        rc = err_set(e, STATUS_BAD_RECORDING, "%s: its snapshot '%s' makes no sense: %s",
                     recording_path(p->recording), entry->name, cause.text);
    }
    snapshot_free(&s);
    return rc;
}
