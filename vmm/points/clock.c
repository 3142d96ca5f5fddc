#include "vmm/points/clock.h"

#include <string.h>

const struct clock_ops *const clock_table[] = {&clock_pmu, &clock_landmark, &clock_step, NULL};

const struct clock_ops *clock_find(const char *name)
{
    for (unsigned i = 0; clock_table[i]; i++)
        if (!strcmp(clock_table[i]->name, name))
            return clock_table[i];
    return NULL;
}

int clock_option(const char *text, const struct clock_ops **ops, struct err *e)
{
    *ops = clock_find(text);
    if (*ops || !strcmp(text, "auto"))
        return 0;
    return err_set(e, STATUS_USAGE, "--clock takes auto, pmu, landmark or step, not '%s'", text);
}

bool code_is_stable(const struct stable_code *stable, uint64_t va, uint64_t gpa,
                    const uint8_t *code, uint64_t len)
{
    for (unsigned i = 0; i < stable->count; i++) {
        uint64_t offset = gpa - stable->range[i].gpa;
        if (gpa >= stable->range[i].gpa && offset + len <= stable->range[i].len &&
            va - stable->range[i].va == offset)
            return !memcmp(stable->range[i].bytes + offset, code, len);
    }
    return true;
}

static int open_one(struct clock *c, const struct clock_ops *ops, struct vcpu *vcpu,
                    const struct gp_hook *hook, struct err *e)
{
    *c = (struct clock){.ops = ops, .vcpu = vcpu, .hook = hook, .patience = LANDING_SECONDS};
    if (!ops->open || ops->open(c, e) == 0)
        return 0;
    *c = (struct clock){0};
    return -1;
}

int clock_open(struct clock *c, const struct clock_ops *ops, struct vcpu *vcpu,
               const struct gp_hook *hook, struct err *e)
{
    if (ops)
        return open_one(c, ops, vcpu, hook, e);
    for (unsigned i = 0; clock_table[i]; i++)
        if (!clock_table[i]->only_asked_for && open_one(c, clock_table[i], vcpu, hook, e) == 0)
            return 0;
    return -1;
}

void clock_close(struct clock *c)
{
    if (c->ops && c->ops->close)
        c->ops->close(c);
    *c = (struct clock){0};
}

void clock_sync(struct clock *c)
{
    if (c->ops->sync)
        c->ops->sync(c);
}

void clock_restore(struct clock *c, uint64_t branches)
{
    c->branches = branches;
    if (c->ops->restore)
        c->ops->restore(c, branches);
}
