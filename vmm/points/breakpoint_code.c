/* Where the code of a breakpoint lies: see vmm/points/breakpoint.h. */
#include <string.h>

#include "mmu/walk.h"
#include "vmm/points/breakpoint.h"

struct breakpoint breakpoint_at_place_of(const struct breakpoint *b)
{
    struct breakpoint same = {.va = b->va,
                              .gpa = b->gpa,
                              .cr3 = b->cr3,
                              .cpl = b->cpl,
                              .any_cpl = b->any_cpl,
                              .found = b->found,
                              .root = b->root,
                              .code_len = b->code_len};

    memcpy(same.code, b->code, sizeof same.code);
    return same;
}

/*
 * Whether that is the code of a program at whose address the breakpoint was found: its page may be
 * another's by now, or time has gone back. The program may write some of it. A kernel patches its
 * own.
 */
static bool is_as_found(const struct breakpoint *b, const uint8_t *at)
{
    unsigned same = 0;

    for (unsigned i = 0; i < b->code_len; i++)
        same += at[i] == b->code[i];
    return b->cpl == 0 || 2 * same >= b->code_len;
}

/* Where its address is still mapped to the page that it has, code may be written as it likes. */
static bool is_still_there(const struct guest_memory *m, const struct breakpoint *b)
{
    struct translation t;

    return is_as_found(b, guest_memory_at(m, b->gpa, b->code_len)) ||
           (walk(m, b->root, b->va, &t) && t.gpa == b->gpa);
}

void breakpoint_find_code(struct breakpoints *set, struct breakpoint *b)
{
    const struct guest_memory *m = &set->vcpu->vm->memory;
    struct kvm_sregs sregs;
    struct translation t;

    if (b->gpa && (!b->found || is_still_there(m, b))) {
        b->at = guest_memory_at(m, b->gpa, 1);
        return;
    }
    b->at = NULL;
    vcpu_get_sregs(set->vcpu, &sregs);
    const uint64_t root = b->cr3 ? b->cr3 : sregs.cr3;
    if (!walk(m, root, b->va, &t))
        return;
    const unsigned left = (unsigned)(PAGE_BYTES - (t.gpa & (PAGE_BYTES - 1))),
                   len = left < BREAKPOINT_SAVED ? left : BREAKPOINT_SAVED;
    uint8_t *at = guest_memory_at(m, t.gpa, len);
    if (!at || (b->found && t.gpa != b->gpa && !is_as_found(b, at)))
        return;
    b->gpa = t.gpa;
    b->at = at;
    b->root = root;
    if (!b->found)
        memcpy(b->code, at, len);
    b->code_len = len;
    b->found = true;
}
