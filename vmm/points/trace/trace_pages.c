/* The guest's code as a trace reads it, and whether it is still that: see
 * vmm/points/trace/trace_code.h. */
#include <string.h>

#include "mmu/walk.h"
#include "vmm/points/trace/trace_code.h"

/* The bytes at a GPA, as they are without the breakpoints that are in place. */
static void without_breakpoints(const struct trace *t, uint64_t gpa, uint8_t *bytes, size_t len)
{
    if (!t->active)
        return;
    if (t->site_gpa - gpa < len)
        bytes[t->site_gpa - gpa] = t->site_byte;
    for (unsigned i = 0; i < t->trap_count; i++)
        if (t->trap[i].gpa - gpa < len)
            bytes[t->trap[i].gpa - gpa] = t->trap[i].saved;
}

/*
 * Whether user code in a page may change while the trace is in place. It may be writable, or have
 * another mapping that is, as just-in-time compilers have.
 */
static bool may_change(const struct trace *t, uint64_t gpa)
{
    return t->cpl == 3 && (!t->written || guest_memory_in(t->memory, t->written, gpa));
}

static struct trace_page *find_page(struct trace *t, uint64_t va)
{
    for (unsigned i = t->page_count; i--;)
        if (va - t->page[i].va < PAGE_BYTES)
            return &t->page[i];
    return NULL;
}

/* Keep the page as it is now. */
static bool note_page(struct trace *t, uint64_t va, uint64_t gpa)
{
    va &= ~(uint64_t)(PAGE_BYTES - 1);
    gpa &= ~(uint64_t)(PAGE_BYTES - 1);
    struct trace_page *page = find_page(t, va);
    if (page)
        return page->gpa == gpa;
    const uint8_t *from = guest_memory_at(t->memory, gpa, PAGE_BYTES);
    if (!from || t->page_count == TRACE_PAGES) {
        t->full |= t->page_count == TRACE_PAGES;
        return false;
    }
    page = &t->page[t->page_count++];
    page->va = va;
    page->gpa = gpa;
    page->guarded = may_change(t, gpa);
    memcpy(page->bytes, from, PAGE_BYTES);
    without_breakpoints(t, gpa, page->bytes, PAGE_BYTES);
    return true;
}

/* Whether code may be copied from a page. */
static bool page_is_fit(const struct trace *t, const struct translation *at)
{
    /* What was not accessed yet gets its Accessed bit when the guest gets there, not when we do. */
    return at->executable && at->accessed && (t->cpl == 0 || at->user);
}

bool trace_is_current(const struct trace *t)
{
    for (unsigned i = 0; i < t->page_count; i++) {
        const struct trace_page *page = &t->page[i];
        struct translation at;
        if (!walk(t->memory, t->root, page->va, &at) || at.gpa != page->gpa ||
            !page_is_fit(t, &at) || (!page->guarded && may_change(t, page->gpa)))
            return false;
        const void *now = guest_memory_at(t->memory, at.gpa, PAGE_BYTES);
        if (!now || memcmp(now, page->bytes, PAGE_BYTES))
            return false;
    }
    return true;
}

bool trace_read_insn(struct trace *t, uint64_t va, struct insn *insn)
{
    struct translation at[2];
    uint8_t bytes[INSN_MAX];
    size_t first = PAGE_BYTES - (va & (PAGE_BYTES - 1));

    if (!walk(t->memory, t->root, va, &at[0]) || !page_is_fit(t, &at[0]))
        return false;
    size_t n = walk_read(t->memory, t->root, va, bytes, sizeof bytes);
    without_breakpoints(t, at[0].gpa, bytes, n < first ? n : first);
    if (n > first && walk(t->memory, t->root, va + first, &at[1]))
        without_breakpoints(t, at[1].gpa, bytes + first, n - first);
    if (!insn_decode_bytes(va, bytes, n, insn))
        return false;
    if (insn->info.length > first &&
        (!page_is_fit(t, &at[1]) || !note_page(t, va + first, at[1].gpa)))
        return false;
    return note_page(t, va, at[0].gpa);
}

bool trace_insn_may_change(struct trace *t, const struct insn *insn)
{
    return find_page(t, insn->va)->guarded ||
           find_page(t, insn->va + insn->info.length - 1)->guarded;
}

void trace_read_again(struct trace *t, uint64_t va)
{
    for (unsigned i = 0; i < t->page_count; i++) {
        struct trace_page *page = &t->page[i];
        if (va - page->va >= PAGE_BYTES && va + INSN_MAX - 1 - page->va >= PAGE_BYTES)
            continue;
        memcpy(page->bytes, guest_memory_at(t->memory, page->gpa, PAGE_BYTES), PAGE_BYTES);
        without_breakpoints(t, page->gpa, page->bytes, PAGE_BYTES);
    }
}
