/* Watched memory: see struct watchpoint in vmm/points/breakpoint.h. */
#include <assert.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "mmu/walk.h"
#include "vmm/points/breakpoint.h"
#include "vmm/points/watchpoint.h"

/* The pages of all, ascending and each once. Returns how many; more than fit: VM_PROTECTED_MAX + 1.
 */
static unsigned pages_of(const struct breakpoints *set, uint64_t pages[VM_PROTECTED_MAX])
{
    unsigned count = 0;

    for (const struct watchpoint *w = set->watched; w; w = w->next) {
        const uint64_t page = w->gpa & ~(uint64_t)(PAGE_BYTES - 1);
        unsigned at = 0;
        while (at < count && pages[at] < page)
            at++;
        if (at < count && pages[at] == page)
            continue;
        if (count == VM_PROTECTED_MAX)
            return count + 1;
        memmove(&pages[at + 1], &pages[at], (count - at) * sizeof *pages);
        pages[at] = page;
        count++;
    }
    return count;
}

static bool have_room(const uint64_t *pages, unsigned count, struct err *e)
{
    if (count <= VM_PROTECTED_MAX && vm_stretches(pages, count) <= VM_STRETCHES_MAX)
        return true;
    err_set(e, STATUS_ERROR,
            "more than %u pages, or pages in more than %u places, cannot be watched",
            VM_PROTECTED_MAX, VM_STRETCHES_MAX);
    return false;
}

/* What KVM has logged of the guest's writes goes with its memory slots. */
static int protect(struct breakpoints *set, const uint64_t *pages, unsigned count, struct err *e)
{
    struct vm *vm = set->vcpu->vm;

    if (vm->memory.marked && vm_collect_writes(vm, vm->memory.marked, e) < 0)
        return -1;
    return vm_protect(vm, pages, count, e);
}

int breakpoints_rest(struct breakpoints *set, struct err *e)
{
    if (!set->protecting)
        return 0;
    set->protecting = false;
    return protect(set, NULL, 0, e);
}

int watchpoints_protect(struct breakpoints *set, struct err *e)
{
    uint64_t pages[VM_PROTECTED_MAX + 1];

    if (set->protecting || !set->watched)
        return 0;
    const unsigned count = pages_of(set, pages);
    if (!have_room(pages, count, e)) /* one that was taken away may have left two places of one */
        return -1;
    set->protecting = true;
    return protect(set, pages, count, e);
}

bool breakpoints_can_watch(const struct vcpu *vcpu, uint64_t gpa, unsigned len)
{
    const struct guest_memory *m = &vcpu->vm->memory;

    return !vcpu->vm->ownership && len && guest_memory_at(m, gpa, len) &&
           (gpa & (PAGE_BYTES - 1)) + len <= PAGE_BYTES;
}

int breakpoints_watch(struct breakpoints *set, struct watchpoint *w, struct err *e)
{
    struct vm *vm = set->vcpu->vm;
    uint64_t pages[VM_PROTECTED_MAX + 1];
    struct kvm_sregs sregs;
    struct translation t;

    vcpu_get_sregs(set->vcpu, &sregs);
    assert(w->len && (w->va & (PAGE_BYTES - 1)) + w->len <= PAGE_BYTES);
    if (!w->gpa && walk(&vm->memory, sregs.cr3, w->va, &t))
        w->gpa = t.gpa;
    if (!w->gpa || !guest_memory_at(&vm->memory, w->gpa, w->len))
        return err_set(e, STATUS_ERROR, "%#llx cannot be watched: no memory is mapped there now",
                       (unsigned long long)w->va);
    if (!breakpoints_can_watch(set->vcpu, w->gpa, w->len))
        return err_set(e, STATUS_ERROR,
                       "%#llx cannot be watched: its CPUs ran at the same time (--smp crew)",
                       (unsigned long long)w->va);
    w->next = set->watched;
    set->watched = w;
    if (breakpoints_rest(set, e) < 0) {
        set->watched = w->next;
        return -1;
    }
    if (have_room(pages, pages_of(set, pages), e))
        return 0;
    set->watched = w->next;
    return -1;
}

void breakpoints_unwatch(struct breakpoints *set, struct watchpoint *w)
{
    struct err ignored;

    breakpoints_rest(set, &ignored);
    for (struct watchpoint **at = &set->watched; *at; at = &(*at)->next) {
        if (*at != w)
            continue;
        *at = w->next;
        return;
    }
}

/* ---- changes ---- */

static uint64_t digest(const struct breakpoints *set, const struct watchpoint *w)
{
    return XXH3_64bits(guest_memory_at(&set->vcpu->vm->memory, w->gpa, w->len), w->len);
}

void watchpoints_see(struct breakpoints *set)
{
    for (struct watchpoint *w = set->watched; w; w = w->next) {
        w->seen = digest(set, w);
        w->hit = false;
    }
}

bool watchpoints_changed(struct breakpoints *set)
{
    bool any = false;

    for (struct watchpoint *w = set->watched; w; w = w->next) {
        const uint64_t now = digest(set, w);
        w->hit = now != w->seen;
        w->seen = now;
        any |= w->hit;
    }
    return any;
}

bool watchpoints_is_write(const struct breakpoints *set, const struct vcpu_exit *exit)
{
    return set->protecting && exit->kind == EXIT_MMIO_WRITE &&
           guest_memory_at(&set->vcpu->vm->memory, exit->at, exit->size);
}

int watchpoints_step(struct breakpoints *set, struct vcpu_exit *exit, struct err *e)
{
    if (breakpoints_rest(set, e) < 0)
        return -1;
    do {
        if (vcpu_run_step(set->vcpu, exit, e) < 0)
            return -1;
    } while (exit->kind == EXIT_KICK);
    return watchpoints_protect(set, e);
}
