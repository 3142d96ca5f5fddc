/* A machine that boots again in its recording: see vmm/machine/reboot.h. */
#include "replay/player_inside.h"

/* The same as begin_cpus() of a live machine. */
static int begin_cpus(struct player *p, struct cursor *in, struct err *e)
{
    struct vcpu_pending pending;
    struct vcpu_state state;

    for (unsigned i = 0; i < p->cpu_count; i++) {
        struct player_cpu *cpu = &p->cpus[i];
        vcpu_state_decode(in, &state);
        vcpu_pending_decode(in, &pending);
        x87_last_decode(in, &state.fpu);
        if (in->bad)
            return player_bad(p, e, "a boot has no CPU state");
        if (vcpu_begin_anew(&cpu->vcpu, &state, &pending, e) < 0)
            return -1;
        clock_sync(&cpu->clock);
    }
    if (cursor_left(in))
        return player_bad(p, e, "a boot has more than its CPUs' state");
    return 0;
}

int player_boot(struct player *p, const struct boot *boot, struct err *e)
{
    struct cursor in = cursor_of(boot->state, boot->state_len);

    if (p->parallel)
        return player_bad(p, e, "a machine boots again that cannot");
    player_settle(p);
    breakpoints_forget_stores(&p->stops);
    if (begin_cpus(p, &in, e) < 0)
        return -1;
    player_set_cpu(p, 0);
    p->dlab = p->loopback = false;
    return 0;
}
