/* `monitor info WHAT`: what the other stubs that gdb knows answer, too, in their form. */
#include <string.h>

#include "base/version.h"
#include "mmu/walk.h"
#include "recording/format.h"
#include "replay/gdb/gdb_monitor.h"
#include "replay/gdb/gdb_text.h"

/* What is read of page tables, which may lead to each other for ever, and shown of them. */
#define TABLES_MAX 16384u
#define RANGES_MAX 4096u

static int info_checkpoints(struct timeline *t, struct bytes *out, struct err *e)
{
    unsigned count = 0;

    (void)e;
    for (const struct moment *m = &t->first.moment; m; m = m->later) {
        const struct checkpoint *c = (const struct checkpoint *)m;
        count++;
        if (c->number)
            gdb_put_text(out, "%c %llu: sync point %llu%s, rip %#llx\n", c == t->here ? '*' : ' ',
                         (unsigned long long)c->number, (unsigned long long)c->mark.ordinal,
                         c->mark.at_sync ? "" : " and some instructions",
                         (unsigned long long)player_mark_regs(&c->mark)->rip);
    }
    gdb_put_text(out, "%u checkpoints with those made on the way, %.1f MiB\n", count,
                 (double)t->history.bytes / 1048576);
    return 0;
}

static int info_version(struct timeline *t, struct bytes *out, struct err *e)
{
    (void)t;
    (void)e;
    gdb_put_text(out, "dittovm %s (recording format %u)\n", DITTO_VERSION, RECORDING_VERSION);
    return 0;
}

/* ---- registers ---- */

static void put_segment(struct bytes *out, const char *name, const struct kvm_segment *s)
{
    gdb_put_text(out, "%-3s=%04x %016llx %08x DPL=%u%s%s\n", name, s->selector,
                 (unsigned long long)s->base, s->limit, s->dpl, s->l ? " CS64" : "",
                 s->unusable ? " unusable" : "");
}

static int info_registers(struct timeline *t, struct bytes *out, struct err *e)
{
    static const char *const names[16] = {"RAX", "RBX", "RCX", "RDX", "RSI", "RDI", "RSP", "RBP",
                                          "R8",  "R9",  "R10", "R11", "R12", "R13", "R14", "R15"};
    struct vcpu *vcpu = &t->player->cpu->vcpu;
    struct vcpu_state state;

    if (player_finish_exit(t->player, e) < 0 || vcpu_state_get(vcpu, &state, e) < 0)
        return -1;
    const struct kvm_sregs *s = &state.sregs;
    const uint64_t *regs = (const uint64_t *)&state.regs;
    gdb_put_text(out, "CPU#%u\n", vcpu->index);
    for (unsigned i = 0; i < 16; i++)
        gdb_put_text(out, "%-3s=%016llx%c", names[i], (unsigned long long)regs[i],
                     i % 4 == 3 ? '\n' : ' ');
    gdb_put_text(out, "RIP=%016llx RFL=%08llx CPL=%u\n", (unsigned long long)state.regs.rip,
                 (unsigned long long)state.regs.rflags, s->ss.dpl);
    put_segment(out, "ES", &s->es);
    put_segment(out, "CS", &s->cs);
    put_segment(out, "SS", &s->ss);
    put_segment(out, "DS", &s->ds);
    put_segment(out, "FS", &s->fs);
    put_segment(out, "GS", &s->gs);
    put_segment(out, "LDT", &s->ldt);
    put_segment(out, "TR", &s->tr);
    gdb_put_text(out, "GDT=     %016llx %08x\nIDT=     %016llx %08x\n",
                 (unsigned long long)s->gdt.base, s->gdt.limit, (unsigned long long)s->idt.base,
                 s->idt.limit);
    gdb_put_text(out, "CR0=%08llx CR2=%016llx CR3=%016llx CR4=%08llx\nEFER=%016llx\n",
                 (unsigned long long)s->cr0, (unsigned long long)s->cr2, (unsigned long long)s->cr3,
                 (unsigned long long)s->cr4, (unsigned long long)s->efer);
    return 0;
}

/* ---- memory ---- */

/* Addresses in a row that may be used in the same way. */
struct range {
    uint64_t va, end; /* end 0 behind the last byte there is */
    uint64_t bits;    /* PTE_USER, PTE_WRITE and PTE_NX; others are not shown */
    bool any;
};

struct mappings {
    const struct guest_memory *memory;
    struct bytes *out;
    struct range range;
    unsigned tables, ranges;
};

static void put_range(struct mappings *l)
{
    const struct range *r = &l->range;

    if (r->any && l->ranges++ < RANGES_MAX)
        gdb_put_text(l->out, "%016llx-%016llx %016llx %cr%c%c\n", (unsigned long long)r->va,
                     (unsigned long long)r->end, (unsigned long long)(r->end - r->va),
                     r->bits & PTE_USER ? 'u' : '-', r->bits & PTE_WRITE ? 'w' : '-',
                     r->bits & PTE_NX ? '-' : 'x');
}

static void add_page(struct mappings *l, uint64_t va, uint64_t size, uint64_t bits)
{
    if (!l->range.any || l->range.end != va || l->range.bits != bits) {
        put_range(l);
        l->range = (struct range){.va = va, .bits = bits, .any = true};
    }
    l->range.end = va + size;
}

/* A table whose entries are for 1 << shift bytes each, from va on. bits: what all tables to it
 * allow, and PTE_NX if one forbids. */
static void add_table(struct mappings *l, uint64_t table, unsigned shift, uint64_t va,
                      uint64_t bits)
{
    const uint64_t *entry = guest_memory_at(l->memory, table & PTE_ADDRESS, PAGE_BYTES);

    if (!entry || l->tables == TABLES_MAX || l->ranges > RANGES_MAX)
        return;
    l->tables++;
    for (uint64_t i = 0; i < 512; i++) {
        uint64_t at = va + (i << shift);
        if (shift == 39 && i >= 256)
            at |= 0xffffull << 48;
        if (!(entry[i] & PTE_PRESENT))
            continue;
        const uint64_t allowed =
            (bits & entry[i] & (PTE_USER | PTE_WRITE)) | ((bits | entry[i]) & PTE_NX);
        if (shift == 12 || (shift < 39 && (entry[i] & PTE_LARGE)))
            add_page(l, at, 1ull << shift, allowed);
        else
            add_table(l, entry[i], shift - 9, at, allowed);
    }
}

static int info_mem(struct timeline *t, struct bytes *out, struct err *e)
{
    struct mappings l = {.memory = &t->player->vm.memory, .out = out};
    struct kvm_sregs sregs;

    if (player_finish_exit(t->player, e) < 0)
        return -1;
    vcpu_get_sregs(&t->player->cpu->vcpu, &sregs);
    if (!(sregs.cr0 >> 31 & 1)) {
        gdb_put_text(out, "PG disabled\n");
        return 0;
    }
    if (!(sregs.efer >> 10 & 1) || (sregs.cr4 >> 12 & 1))
        return err_set(e, STATUS_ERROR, "only tables of four levels can be shown");
    add_table(&l, sregs.cr3, 39, 0, PTE_USER | PTE_WRITE);
    put_range(&l);
    if (l.ranges > RANGES_MAX || l.tables == TABLES_MAX)
        gdb_put_text(out, "... and more\n");
    return 0;
}

int gdb_monitor_info(struct timeline *t, const char *what, struct bytes *out, struct err *e)
{
    static const struct {
        const char *name;
        int (*put)(struct timeline *t, struct bytes *out, struct err *e);
    } kinds[] = {
        {"checkpoints", info_checkpoints}, {"", info_checkpoints}, {"version", info_version},
        {"registers", info_registers},     {"mem", info_mem},
    };

    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(what, kinds[i].name))
            return kinds[i].put(t, out, e);
    return err_set(e, STATUS_USAGE, "info takes checkpoints, version, registers or mem");
}
