#include "vmm/points/written.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/now.h"
#include "mmu/digest.h"
#include "mmu/ownership.h"
#include "mmu/walk.h"
#include "vmm/kvm/vcpu.h"

/* The log is begun anew at a forced point when it has grown to so many times what it had in it the
 * first time after the last beginning, but not while it has no more than so many pages. */
#define GROWTH    2u
#define FEW_PAGES 32u
/* How often that is considered at other sync points, where it has more than so many: what is
 * written while a CPU that is real looks away for longer would make long lists. */
#define FORGET_NS   1000000000ull
#define MANY_PAGES  256u
#define CROWD_NS    20000000ull
#define CROWD_PAGES 4096u
/* But no more often than after so many times what it takes, as of a large memory. */
#define CROWD_SHARE 100u
/* Pages of which a copy is kept for written_changed(). */
#define LOOK_PAGES 4096u
/* What is looked for pointers, where they are more. */
#define POINTER_WORDS 48u
/* Fewer than LOOK_PAGES for each of several CPUs that run at the same time. */
#define LOOK_PAGES_EACH 1024u
/* How far a count goes in a moment, at most. */
#define COUNT_NEAR (1u << 20)
/* Roots of page tables that are remembered. */
#define ROOTS 16u

/* Pages as they were at a look: those that were in the log then. */
struct look {
    unsigned pages, room; /* room: for copies */
    bool is_whole;        /* they are all */
    uint32_t page[LOOK_PAGES];
    uint8_t (*copy)[PAGE_BYTES];
};

struct written {
    struct vm_part part; /* its first member */
    uint64_t *bitmap;    /* for reading the log */
    uint64_t *also;      /* pages that belong to it: written_also() */
    unsigned first; /* pages in it at the first forced point after it was begun anew; 0: none */
    uint64_t forget_ns, crowd_ns;
    unsigned roots;
    uint64_t root[ROOTS]; /* of the last landmarks, the latest first */
    /* Of written_list(): all pages; those that look like page tables; the list that is made of it.
     */
    uint32_t *all, *like_table;
    bool *is_table;
    struct bytes list;
    uint8_t *checks; /* written_checks() */
    struct look look[2];
    struct look *now, *before; /* of written_look(), and of the choice before this one */
    /* Where a page was last found by written_changed(). */
    struct {
        uint32_t page;
        uint64_t va;
    } found[WRITTEN_CHANGED];
    unsigned next_found;
};

static void written_free(struct vm_part *part)
{
    struct written *w = (struct written *)part;

    free(w->bitmap);
    free(w->also);
    free(w->now->copy);
    free(w->before->copy);
    free(w->all);
    free(w->like_table);
    free(w->is_table);
    bytes_free(&w->list);
    free(w->checks);
    free(w);
}

int written_follow(struct vm *vm, struct err *e)
{
    if (!vm->reads_writes)
        return err_set(e, STATUS_ERROR,
                       "this host's KVM cannot list the pages that a guest has written "
                       "(KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, Linux 5.2): nothing can be recorded");
    struct written *w = calloc(1, sizeof *w);
    if (w) {
        w->bitmap = calloc(vm_bitmap_words(vm), sizeof *w->bitmap);
        w->also = calloc(vm_bitmap_words(vm), sizeof *w->also);
        w->now = &w->look[0];
        w->before = &w->look[1];
        w->checks = malloc(LANDMARK_PAGES);
        w->all = calloc(LANDMARK_PAGES, sizeof *w->all);
        w->like_table = calloc(LANDMARK_PAGES, sizeof *w->like_table);
        w->is_table = calloc(LANDMARK_PAGES, sizeof *w->is_table);
    }
    if (!w || !w->bitmap || !w->also || !w->all || !w->like_table || !w->is_table || !w->checks) {
        if (w)
            written_free(&w->part);
        return err_set(e, STATUS_ERROR, "out of memory");
    }
    w->part = (struct vm_part){.free = written_free};
    vm->written = w;
    vm_attach(vm, &w->part);
    return vm_log_writes(vm, true, e);
}

/* Begin the log anew, for nobody else loses what is in it. */
static void begin_anew(struct vm *vm)
{
    struct written *w = vm->written;
    struct err ignored;
    uint64_t *keep = vm->memory.marked ? vm->memory.marked : w->bitmap;

    vm_collect_writes(vm, keep, &ignored);
    memset(w->also, 0, vm_bitmap_words(vm) * sizeof *w->also);
    w->first = 0;
}

/* Page tables that all vCPUs use at the same time say nothing about one of them. */
static bool is_listed(const struct vm *vm, uint64_t page)
{
    return !vm->memory.readable ||
           (vm->memory.readable[page] == ACCESS_WRITE && !ownership_is_shared(vm->ownership, page));
}

/* Into w->bitmap. */
static bool read_log(struct vm *vm)
{
    struct written *w = vm->written;
    struct err ignored;

    memcpy(w->bitmap, w->also, vm_bitmap_words(vm) * sizeof *w->bitmap);
    return vm_read_writes(vm, w->bitmap, &ignored) == 0;
}

void written_also(struct vm *vm, const uint8_t *at)
{
    guest_memory_mark(&vm->memory, at, 1);
    if (vm->written)
        bitmap_set(vm->written->also, (uint64_t)(at - vm->memory.host) / PAGE_BYTES);
}

/* All in the log, in ascending order; false when they are more than `most`. */
static bool list(struct vm *vm, uint32_t *page, unsigned most, unsigned *count)
{
    struct written *w = vm->written;

    *count = 0;
    if (!read_log(vm))
        return false;
    for (uint64_t at = 0; bitmap_next(w->bitmap, vm_bitmap_words(vm), &at); at++) {
        if (!is_listed(vm, at))
            continue;
        if (*count == most)
            return false;
        page[(*count)++] = (uint32_t)at;
    }
    return true;
}

bool written_maybe(struct vm *vm, uint64_t gpa)
{
    const uint8_t *at = guest_memory_any(&vm->memory, gpa, 1);
    struct written *w = vm->written;

    if (!w || !at)
        return true;
    const uint64_t page = (uint64_t)(at - vm->memory.host) / PAGE_BYTES;
    return !read_log(vm) || (w->bitmap[page / 64] >> page % 64 & 1);
}

/* The roots of page tables that the guest uses are this one and those of the landmarks before. */
static void remember_root(struct written *w, uint64_t cr3)
{
    unsigned at = 0;

    while (at < w->roots && w->root[at] != cr3)
        at++;
    if (at == w->roots && w->roots < ROOTS)
        w->roots++;
    else if (at == w->roots)
        at--; /* instead of the oldest */
    memmove(w->root + 1, w->root, at * sizeof *w->root);
    w->root[0] = cr3;
}

/* Which of them are page tables, in w->is_table, in the order of w->like_table: they look like it,
 * and a root that is in use leads to them. (A page with a counter, odd at the moment, looks like
 * it, too.) */
static void find_tables(const struct guest_memory *m, struct written *w, unsigned pages)
{
    unsigned count = 0;

    for (unsigned i = 0; i < pages; i++)
        if (page_looks_like_table(m->host + (uint64_t)w->all[i] * PAGE_BYTES))
            w->like_table[count++] = w->all[i];
    if (!walk_find_tables(m, w->root, w->roots, w->like_table, count, w->is_table))
        memset(w->is_table, true, count * sizeof *w->is_table); /* not all were looked at */
    if (count < LANDMARK_PAGES)
        w->like_table[count] = UINT32_MAX; /* no page */
}

bool written_list(struct vm *vm, struct landmark *l)
{
    struct landmark_page last = {0};
    struct written *w = vm->written;
    unsigned tables = 0;

    l->exact = w && list(vm, w->all, LANDMARK_PAGES, &l->pages);
    if (!l->exact) {
        l->pages = 0;
        return false;
    }
    remember_root(w, l->cr3);
    find_tables(&vm->memory, w, l->pages);
    bytes_clear(&w->list);
    for (unsigned i = 0; i < l->pages; i++) {
        struct landmark_page page = {.page = w->all[i]};
        if (tables < LANDMARK_PAGES && w->like_table[tables] == page.page)
            page.is_table = w->is_table[tables++];
        landmark_put_page(&w->list, &last, &page);
    }
    l->page_list = w->list.data;
    l->page_list_bytes = w->list.len;
    return true;
}

uint8_t *written_checks(struct vm *vm)
{
    return vm->written->checks;
}

void written_forget(struct vm *vm, uint64_t now)
{
    struct written *w = vm->written;
    unsigned count;

    if (!w || now < w->crowd_ns)
        return;
    const bool is_time = now >= w->forget_ns;
    if (is_time)
        w->forget_ns = now + FORGET_NS;
    const uint64_t began = host_now_ns();
    if (!list(vm, w->all, is_time ? MANY_PAGES : CROWD_PAGES, &count))
        begin_anew(vm);
    const uint64_t rest = CROWD_SHARE * (host_now_ns() - began);
    w->crowd_ns = now + (rest > CROWD_NS ? rest : CROWD_NS);
}

void written_forced(struct vm *vm, const struct landmark *l)
{
    struct written *w = vm->written;

    if (!w)
        return;
    if (!l->exact || (w->first && l->pages > FEW_PAGES && l->pages >= GROWTH * w->first))
        begin_anew(vm);
    else if (!w->first)
        w->first = l->pages + 1;
}

/* One of the pages of a look, as it is now. */
static const uint8_t *page_at(const struct vm *vm, const struct look *look, unsigned i)
{
    return vm->memory.host + (uint64_t)look->page[i] * PAGE_BYTES;
}

void written_look_away(struct vm *vm)
{
    struct written *w = vm->written;

    if (!w)
        return;
    if (w->now->pages) {
        struct look *const now = w->before;
        w->before = w->now;
        w->now = now;
    }
    w->now->pages = 0;
}

/* Room for that many copies; what was in them is lost. */
static bool make_room(struct look *look, unsigned pages)
{
    if (pages <= look->room)
        return true;
    free(look->copy);
    look->room = pages <= LOOK_PAGES / 2 ? 2 * pages : LOOK_PAGES;
    look->copy = malloc(look->room * sizeof *look->copy);
    if (!look->copy)
        look->room = 0;
    return look->copy != NULL;
}

/* Of the pages in the log, which are too many: those that registers and the stack's words point to,
 * each once. */
static void list_pointed(struct vcpu *vcpu, struct look *look)
{
    uint64_t value[REG_COUNT + POINTER_WORDS];
    const struct guest_memory *m = &vcpu->vm->memory;
    struct translation t;
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    memcpy(value, vcpu->regs, REG_COUNT * sizeof *value);
    const size_t words =
        walk_read(m, sregs.cr3, vcpu->regs->rsp, value + REG_COUNT, POINTER_WORDS * sizeof *value) /
        sizeof *value;
    look->pages = 0;
    for (size_t i = 0; i < REG_COUNT + words; i++) {
        const uint8_t *at = walk(m, sregs.cr3, value[i], &t) ? guest_memory_at(m, t.gpa, 1) : NULL;
        const uint64_t page = at ? (uint64_t)(at - m->host) / PAGE_BYTES : 0;
        unsigned known = 0;
        while (known < look->pages && look->page[known] != page)
            known++;
        if (at && known == look->pages && bitmap_has(vcpu->vm->written->bitmap, page) &&
            is_listed(vcpu->vm, page))
            look->page[look->pages++] = (uint32_t)page;
    }
}

unsigned written_look(struct vcpu *vcpu)
{
    struct vm *vm = vcpu->vm;
    struct written *w = vm->written;

    if (!w)
        return 0;
    struct look *const look = w->now;
    look->is_whole =
        list(vm, look->page, vm->memory.readable ? LOOK_PAGES_EACH : LOOK_PAGES, &look->pages);
    if (!look->is_whole)
        list_pointed(vcpu, look);
    if (!make_room(look, look->pages)) {
        look->is_whole = false;
        look->pages = 0;
    }
    for (unsigned i = 0; i < look->pages; i++)
        memcpy(look->copy[i], page_at(vm, look, i), PAGE_BYTES);
    return look->pages;
}

bool written_is_as_it_was(struct vm *vm)
{
    const struct written *w = vm->written;
    unsigned count;

    return !w || (w->now->is_whole && list(vm, w->all, w->now->pages, &count) &&
                  count == w->now->pages && !written_any_changed(vm));
}

bool written_any_changed(const struct vm *vm)
{
    const struct written *w = vm->written;

    for (unsigned i = 0; w && i < w->now->pages; i++)
        if (memcmp(page_at(vm, w->now, i), w->now->copy[i], PAGE_BYTES) != 0)
            return true;
    return false;
}

/* How many words of a page have changed since a look. */
static unsigned changed_words(const struct vm *vm, const struct look *look, unsigned i)
{
    const uint8_t *now = page_at(vm, look, i);
    unsigned count = 0;

    if (!memcmp(now, look->copy[i], PAGE_BYTES))
        return 0;
    for (unsigned at = 0; at < PAGE_BYTES; at += 8)
        count += memcmp(now + at, look->copy[i] + at, 8) != 0;
    return count;
}

/* Where code at this CPL has this page; false: nowhere. */
static bool find_page(const struct vm *vm, uint64_t cr3, unsigned cpl, uint32_t page, uint64_t *va)
{
    struct written *w = vm->written;
    const uint64_t gpa = guest_memory_gpa(&vm->memory, (uint64_t)page * PAGE_BYTES);
    struct translation t;

    for (unsigned i = 0; i < WRITTEN_CHANGED; i++) {
        *va = w->found[i].va;
        if (w->found[i].page == page && walk(&vm->memory, cr3, *va, &t) && (t.user || cpl == 0) &&
            t.gpa == gpa)
            return true;
    }
    if (!walk_find(&vm->memory, cr3, cpl, gpa, va))
        return false;
    w->found[w->next_found].page = page;
    w->found[w->next_found].va = *va;
    w->next_found = (w->next_found + 1) % WRITTEN_CHANGED;
    return true;
}

/* A page that has changed since a look, by its number there. */
struct changed_page {
    unsigned words, i;
};

/* Those where the fewest words have. */
static unsigned changed_since(const struct vm *vm, const struct look *look,
                              struct changed_page best[WRITTEN_CHANGED])
{
    struct changed_page candidate;
    unsigned count = 0;

    for (candidate.i = 0; candidate.i < look->pages; candidate.i++) {
        candidate.words = changed_words(vm, look, candidate.i);
        unsigned at = count;
        while (at && best[at - 1].words > candidate.words)
            at--;
        if (!candidate.words || at == WRITTEN_CHANGED)
            continue;
        if (count < WRITTEN_CHANGED)
            count++;
        memmove(&best[at + 1], &best[at], (count - at - 1) * sizeof best[0]);
        best[at] = candidate;
    }
    return count;
}

/* What a word that has changed may be. The return addresses of a loop's calls and the registers
 * that these save are the same in each pass. */
enum changed_kind { CHANGED_ADDRESS, CHANGED_VALUE, CHANGED_COUNT };

struct changed_word {
    enum changed_kind kind;
    unsigned at; /* in its page */
};

static bool is_near(uint32_t a, uint32_t b)
{
    return a - b + COUNT_NEAR <= 2 * COUNT_NEAR;
}

static enum changed_kind kind_of(const struct vm *vm, uint64_t cr3, uint64_t then, uint64_t now)
{
    const uint32_t low = (uint32_t)then, high = (uint32_t)(then >> 32);
    const uint32_t low_now = (uint32_t)now, high_now = (uint32_t)(now >> 32);
    struct translation t;

    if (walk(vm_tables(vm), cr3, then, &t) || walk(vm_tables(vm), cr3, now, &t))
        return CHANGED_ADDRESS;
    return (high == high_now && is_near(low, low_now)) ||
                   (low == low_now && is_near(high, high_now))
               ? CHANGED_COUNT
               : CHANGED_VALUE;
}

/* The words of a page that have changed, the likeliest counts first, and those of outer frames, if
 * it is a stack. */
struct ranked_words {
    unsigned count;
    struct changed_word best[WRITTEN_CHANGED];
    unsigned first; /* the lowest of all */
    uint64_t va;    /* of the page */
};

static void rank_words(const struct vm *vm, uint64_t cr3, const struct look *look, unsigned i,
                       struct ranked_words *out)
{
    const uint8_t *page = page_at(vm, look, i);

    out->count = 0;
    out->first = PAGE_BYTES;
    for (unsigned offset = 0; offset < PAGE_BYTES; offset += 8) {
        uint64_t then, now;
        memcpy(&then, look->copy[i] + offset, sizeof then);
        memcpy(&now, page + offset, sizeof now);
        if (then == now)
            continue;
        if (out->first == PAGE_BYTES)
            out->first = offset;
        const struct changed_word word = {kind_of(vm, cr3, then, now), offset};
        unsigned at = out->count;
        while (at && out->best[at - 1].kind <= word.kind)
            at--;
        if (at == WRITTEN_CHANGED)
            continue;
        if (out->count < WRITTEN_CHANGED)
            out->count++;
        memmove(&out->best[at + 1], &out->best[at], (out->count - at - 1) * sizeof word);
        out->best[at] = word;
    }
}

/* One of each page, then as many counts as there is room for, then the lowest of each page: what is
 * periodic may look like a count, and progress not. A word may be named twice. */
static unsigned take_words(const struct ranked_words *page, unsigned pages,
                           uint64_t va[WRITTEN_CHANGED])
{
    unsigned found = 0;

    for (unsigned n = 0; n < WRITTEN_CHANGED; n++)
        for (unsigned i = 0; i < pages && found < WRITTEN_CHANGED; i++)
            if (n < page[i].count && (!n || page[i].best[n].kind == CHANGED_COUNT))
                va[found++] = page[i].va + page[i].best[n].at;
    for (unsigned i = 0; i < pages && found < WRITTEN_CHANGED; i++)
        va[found++] = page[i].va + page[i].first;
    return found;
}

unsigned written_changed(struct vm *vm, uint64_t cr3, unsigned cpl, uint64_t va[WRITTEN_CHANGED])
{
    struct changed_page changed[WRITTEN_CHANGED];
    struct ranked_words page[WRITTEN_CHANGED];
    struct written *w = vm->written;
    unsigned count, pages = 0;

    if (!w || !w->now->pages)
        return 0;
    const struct look *look = w->now;
    count = changed_since(vm, look, changed);
    if (!count) {
        look = w->before;
        count = changed_since(vm, look, changed);
    }
    for (unsigned i = 0; i < count; i++)
        if (find_page(vm, cr3, cpl, look->page[changed[i].i], &page[pages].va))
            rank_words(vm, cr3, look, changed[i].i, &page[pages++]);
    return take_words(page, pages, va);
}
