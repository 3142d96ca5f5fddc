#include "vmm/views.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mmu/walk.h"
#include "vmm/vcpu.h"

#define CR0_PG (1ull << 31)

/* Shadow page tables, where the CPU does not do nested paging, are made by KVM from the guest's in
 * one VM, and do not follow what is changed by way of another one. */
static int check_nested_paging(struct err *e)
{
    static const char *const parameters[] = {"/sys/module/kvm_amd/parameters/npt",
                                             "/sys/module/kvm_intel/parameters/ept"};

    for (unsigned i = 0; i < 2; i++) {
        FILE *f = fopen(parameters[i], "r");
        const int c = f ? fgetc(f) : EOF;
        if (f)
            fclose(f);
        if (c == 'Y' || c == '1')
            return 0;
    }
    return err_set(e, STATUS_ERROR,
                   "this host's KVM does not use nested paging (NPT or EPT), which --smp crew "
                   "needs; give --smp uni");
}

int views_create(struct views *v, struct vm *whole, unsigned count, struct err *e)
{
    int rc = 0;

    assert(count >= 1 && count <= MAX_VCPUS);
    *v = (struct views){.count = 0};
    if (check_nested_paging(e) < 0)
        return -1;
    v->ownership = ownership_create(&whole->memory, count, e);
    if (!v->ownership)
        return -1;
    for (unsigned i = 0; i < count && rc == 0; i++) {
        rc = vm_create_view(&v->vm[i], whole, v->ownership, i, e);
        v->count += rc == 0;
    }
    if (rc < 0)
        views_destroy(v);
    return rc;
}

void views_destroy(struct views *v)
{
    for (unsigned i = 0; i < v->count; i++)
        vm_destroy(&v->vm[i]);
    ownership_destroy(v->ownership);
    *v = (struct views){.count = 0};
}

/* seen: the levels at which each page was met, one bit each. */
static void share_table(struct views *v, const struct guest_memory *m, uint64_t gpa, unsigned level,
                        uint8_t *seen)
{
    const uint64_t *entries = guest_memory_at(m, gpa, PAGE_BYTES);

    if (!entries)
        return;
    const uint64_t page = (uint64_t)((const uint8_t *)entries - m->host) / PAGE_BYTES;
    if (seen[page] >> level & 1)
        return;
    if (!seen[page])
        ownership_share(v->ownership, page);
    seen[page] |= (uint8_t)(1u << level);
    for (unsigned i = 0; i < PAGE_BYTES / 8 && level > 1; i++)
        if ((entries[i] & PTE_PRESENT) && (level == 4 || !(entries[i] & PTE_LARGE)))
            share_table(v, m, entries[i] & PTE_ADDRESS, level - 1, seen);
}

void views_share_tables(struct views *v, uint64_t cr3)
{
    const struct guest_memory *m = &v->vm[0].whole->memory;
    uint8_t *seen = calloc(m->size / PAGE_BYTES, 1);

    assert(seen && v->roots < VIEWS_ROOTS);
    v->root[v->roots++] = cr3 & PTE_ADDRESS;
    share_table(v, m, cr3 & PTE_ADDRESS, 4, seen);
    free(seen);
}

bool views_new_tables(const struct views *v, struct vcpu *vcpu, uint64_t *cr3)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    *cr3 = sregs.cr3;
    for (unsigned i = 0; i < v->roots; i++)
        if (v->root[i] == (sregs.cr3 & PTE_ADDRESS))
            return false;
    return sregs.cr0 & CR0_PG;
}
