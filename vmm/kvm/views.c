#include "vmm/kvm/views.h"

#include <assert.h>
#include <stdio.h>

#include "base/x86.h"
#include "mmu/walk.h"
#include "vmm/kvm/vcpu.h"

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

static int create_owners(struct views *v, const struct vm *whole, unsigned count, struct err *e)
{
    v->ownership = ownership_create(&whole->memory, count, e);
    if (!v->ownership)
        return -1;
    v->tables = shared_tables_create(&whole->memory, v->ownership);
    v->pages = whole->memory.size / PAGE_BYTES;
    v->lost = lost_pages_create(v->pages);
    return v->tables && v->lost ? 0 : err_set(e, STATUS_ERROR, "out of memory");
}

int views_create(struct views *v, struct vm *whole, unsigned count, bool owned, struct err *e)
{
    assert(count >= 1 && count <= MAX_VCPUS);
    *v = (struct views){.count = 0};
    if (check_nested_paging(e) < 0)
        return -1;
    int rc = owned ? create_owners(v, whole, count, e) : 0;
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
    lost_pages_destroy(v->lost);
    shared_tables_destroy(v->tables);
    ownership_destroy(v->ownership);
    *v = (struct views){.count = 0};
}

void views_begin(struct views *v)
{
    const uint64_t cr3 = views_root(v->vm[0].vcpu[0]);

    if (v->tables && cr3)
        shared_tables_add(v->tables, cr3, true);
}

uint64_t views_root(struct vcpu *vcpu)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    return sregs.cr0 & CR0_PG ? sregs.cr3 & PTE_ADDRESS : 0;
}

bool views_contended(const struct views *v, unsigned vcpu, const struct page_fault *wanted)
{
    for (unsigned i = 0; i < v->count; i++)
        if (i != vcpu && ownership_conflict(v->ownership, i, wanted))
            return true;
    return false;
}

/* Whether tables are to be looked through where a contended page changes hands. */
static bool looks(const struct views *v, uint64_t cr3)
{
    return v->changing || (cr3 && !shared_tables_has(v->tables, cr3));
}

bool views_conflict(const struct views *v, unsigned vcpu, unsigned other, uint64_t cr3,
                    const struct page_fault *wanted)
{
    return other != vcpu && (ownership_conflict(v->ownership, other, wanted) ||
                             (looks(v, cr3) && views_contended(v, vcpu, wanted)));
}

static void look_through(struct views *v, unsigned vcpu, uint64_t cr3)
{
    uint64_t in_use[MAX_VCPUS];
    unsigned count = 0;

    if (cr3)
        in_use[count++] = cr3;
    for (unsigned i = 0; i < v->count; i++) {
        const uint64_t root = i == vcpu ? 0 : views_root(v->vm[i].vcpu[i]);
        if (root)
            in_use[count++] = root;
    }
    shared_tables_refresh(v->tables, in_use, count);
    if (cr3 && !shared_tables_has(v->tables, cr3)) {
        shared_tables_add(v->tables, cr3, false);
        v->changing = true;
    }
}

void views_return(struct views *v, unsigned vcpu)
{
    const struct guest_memory *m = &v->vm[vcpu].whole->memory;

    if (!v->ownership || !ownership_has_tables(v->ownership, vcpu))
        return;
    const uint64_t cr3 = views_root(v->vm[vcpu].vcpu[vcpu]);
    const uint8_t *root = cr3 ? guest_memory_at(m, cr3, PAGE_BYTES) : NULL;
    ownership_return_tables(v->ownership, vcpu,
                            root ? (uint64_t)(root - m->host) / PAGE_BYTES : UINT64_MAX);
}

/* The other vCPU that can write a page, which is then the only one that has it; -1: there is none.
 */
static int writer(const struct views *v, unsigned vcpu, uint64_t page)
{
    for (unsigned i = 0; i < v->count; i++)
        if (i != vcpu && ownership_table(v->ownership, i)[page] == ACCESS_WRITE)
            return (int)i;
    return -1;
}

static bool nobody_has(const struct views *v, uint64_t page)
{
    for (unsigned i = 0; i < v->count; i++)
        if (ownership_table(v->ownership, i)[page])
            return false;
    return true;
}

/* A page that nobody has: how many, from it on, the vCPU gets. It has them to be written: of those
 * that are read first, three of four are written next (a boot of Debian). */
static unsigned window_of(struct views *v, unsigned vcpu, uint64_t page)
{
    struct views_window *w = &v->window[vcpu];
    unsigned count = 1;

    w->size = page == w->next && w->size ? 2 * w->size : 1;
    if (w->size > VIEWS_GIVEN_MAX)
        w->size = VIEWS_GIVEN_MAX;
    while (count < w->size && page + count < v->pages && nobody_has(v, page + count))
        count++;
    w->next = page + count;
    return count;
}

unsigned views_give(struct views *v, unsigned vcpu, uint64_t cr3, const struct page_fault *wanted,
                    struct page_fault given[VIEWS_GIVEN_MAX])
{
    unsigned count = 1;

    v->given[vcpu].from = -1;
    if (looks(v, cr3) && views_contended(v, vcpu, wanted))
        look_through(v, vcpu, cr3);
    if (ownership_table(v->ownership, vcpu)[wanted->page] >= wanted->access)
        return 0;
    const int from = writer(v, vcpu, wanted->page);
    v->given[vcpu].from = from;
    v->given[vcpu].page = wanted->page;
    lost_pages_asked(v->lost, vcpu, wanted->page);
    if (from >= 0)
        lost_pages_note(v->lost, (unsigned)from, vcpu, wanted->page);
    given[0] = *wanted;
    if (nobody_has(v, wanted->page)) {
        count = window_of(v, vcpu, wanted->page);
        for (unsigned i = 0; i < count; i++)
            given[i] = (struct page_fault){wanted->page + i, ACCESS_WRITE};
    }
    for (unsigned i = 0; i < count; i++)
        ownership_transfer(v->ownership, vcpu, &given[i]);
    return count;
}

/* Whether the page that it was given last was lost to who had it, and is one that it can only read.
 */
static bool may_write_again(const struct views *v, unsigned vcpu)
{
    const int from = v->given[vcpu].from;
    const uint64_t page = v->given[vcpu].page;

    return from >= 0 && ownership_table(v->ownership, vcpu)[page] == ACCESS_READ &&
           lost_pages_has(v->lost, vcpu, (unsigned)from, page);
}

bool views_can_regain(const struct views *v, unsigned vcpu, bool all)
{
    const int from = v->given[vcpu].from;

    return all ? from >= 0 && lost_pages_any(v->lost, vcpu, (unsigned)from)
               : may_write_again(v, vcpu);
}

unsigned views_regain(struct views *v, unsigned vcpu, bool all,
                      struct page_fault given[VIEWS_GIVEN_MAX])
{
    const unsigned from = (unsigned)v->given[vcpu].from;
    uint64_t lost[LOST_PAGES_MAX];
    unsigned count = 0;

    assert(views_can_regain(v, vcpu, all));
    if (may_write_again(v, vcpu))
        given[count++] = (struct page_fault){v->given[vcpu].page, ACCESS_WRITE};
    const unsigned losses = all ? lost_pages_take(v->lost, vcpu, from, lost) : 0;
    for (unsigned i = 0; i < losses; i++) {
        if (ownership_table(v->ownership, vcpu)[lost[i]] || writer(v, vcpu, lost[i]) != (int)from)
            continue;
        lost_pages_guessed(v->lost, vcpu, lost[i]);
        lost_pages_note(v->lost, from, vcpu, lost[i]);
        given[count++] = (struct page_fault){lost[i], ACCESS_WRITE};
    }
    for (unsigned i = 0; i < count; i++)
        ownership_transfer(v->ownership, vcpu, &given[i]);
    v->given[vcpu].from = -1;
    return count;
}
