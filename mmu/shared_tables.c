#include "mmu/shared_tables.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "mmu/walk.h"

#define ENTRIES   (PAGE_BYTES / 8)
#define LEVELS    4u /* of which 4 is the root's */
#define NO_PAGE   UINT64_MAX
#define USER_HALF (ENTRIES / 2)
/* What the CPU writes into entries by itself. */
#define PTE_BY_CPU (PTE_ACCESSED | PTE_DIRTY)

/* A table that leads to others, with its entries as they were when it was last looked at. */
struct table {
    uint64_t page;
    unsigned level; /* 2 to 4 */
    unsigned first; /* entry that counts: the user's half of a root does not as a rule */
    bool root, gone;
    uint64_t entry[ENTRIES];
};

struct shared_tables {
    const struct guest_memory *memory;
    struct ownership *ownership;
    /* How many entries, or roots, make a page a table, for each page and level. */
    uint32_t (*users)[LEVELS];
    /* Of each page and level, by level - 1; those that are gone are not there any more. */
    struct table *(*of)[LEVELS];
    struct table **table;
    unsigned count, room;
};

struct shared_tables *shared_tables_create(const struct guest_memory *memory,
                                           struct ownership *ownership)
{
    struct shared_tables *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->memory = memory;
    t->ownership = ownership;
    t->users = calloc(memory->size / PAGE_BYTES, sizeof *t->users);
    t->of = calloc(memory->size / PAGE_BYTES, sizeof *t->of);
    if (t->users && t->of)
        return t;
    shared_tables_destroy(t);
    return NULL;
}

void shared_tables_destroy(struct shared_tables *t)
{
    if (!t)
        return;
    for (unsigned i = 0; i < t->count; i++)
        free(t->table[i]);
    free(t->table);
    free(t->of);
    free(t->users);
    free(t);
}

static uint64_t page_at(const struct shared_tables *t, uint64_t gpa)
{
    const uint8_t *at = guest_memory_at(t->memory, gpa & PTE_ADDRESS, PAGE_BYTES);

    return at ? (uint64_t)(at - t->memory->host) / PAGE_BYTES : NO_PAGE;
}

/* The table that an entry of one of this level leads to, or NO_PAGE. */
static uint64_t target(const struct shared_tables *t, unsigned level, uint64_t entry)
{
    if (!(entry & PTE_PRESENT) || (level < LEVELS && (entry & PTE_LARGE)))
        return NO_PAGE;
    return page_at(t, entry);
}

static const uint64_t *entries_of(const struct shared_tables *t, uint64_t page)
{
    return (const uint64_t *)(t->memory->host + page * PAGE_BYTES);
}

static bool is_table(const struct shared_tables *t, uint64_t page)
{
    for (unsigned level = 0; level < LEVELS; level++)
        if (t->users[page][level])
            return true;
    return false;
}

static struct table *make(struct shared_tables *t, uint64_t page, unsigned level, unsigned first)
{
    if (t->count == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        t->table = realloc(t->table, t->room * sizeof *t->table);
        assert(t->table);
    }
    struct table *table = malloc(sizeof *table);
    assert(table);
    table->page = page;
    table->level = level;
    table->first = first;
    table->root = table->gone = false;
    memcpy(table->entry, entries_of(t, page), PAGE_BYTES);
    t->of[page][level - 1] = table;
    return t->table[t->count++] = table;
}

/* One more makes this page a table, of which the entries from `first` on count. */
static void use(struct shared_tables *t, uint64_t page, unsigned level, unsigned first)
{
    if (!is_table(t, page))
        ownership_share(t->ownership, page);
    if (t->users[page][level - 1]++ || level == 1)
        return;
    const struct table *table = make(t, page, level, first);
    for (unsigned i = first; i < ENTRIES; i++) {
        const uint64_t to = target(t, level, table->entry[i]);
        if (to != NO_PAGE)
            use(t, to, level - 1, 0);
    }
}

/* One less does. */
static void drop(struct shared_tables *t, uint64_t page, unsigned level)
{
    assert(t->users[page][level - 1]);
    if (--t->users[page][level - 1])
        return;
    if (level > 1) {
        struct table *table = t->of[page][level - 1];
        t->of[page][level - 1] = NULL;
        table->gone = true;
        for (unsigned i = table->first; i < ENTRIES; i++) {
            const uint64_t to = target(t, level, table->entry[i]);
            if (to != NO_PAGE)
                drop(t, to, level - 1);
        }
    }
    if (!is_table(t, page))
        ownership_disown(t->ownership, page);
}

bool shared_tables_has(const struct shared_tables *t, uint64_t cr3)
{
    const uint64_t page = page_at(t, cr3);
    const struct table *table = page != NO_PAGE ? t->of[page][LEVELS - 1] : NULL;

    return table && table->root;
}

void shared_tables_add(struct shared_tables *t, uint64_t cr3, bool users_half)
{
    const uint64_t page = page_at(t, cr3);

    if (page == NO_PAGE || shared_tables_has(t, cr3))
        return;
    use(t, page, LEVELS, users_half ? 0 : USER_HALF);
    t->of[page][LEVELS - 1]->root = true;
}

/* Of what it leads to, now. */
static void follow(struct shared_tables *t, struct table *table)
{
    const uint64_t *now = entries_of(t, table->page);

    if (!memcmp(now, table->entry, PAGE_BYTES))
        return;
    for (unsigned i = 0; i < ENTRIES; i++) {
        const uint64_t from = target(t, table->level, table->entry[i]),
                       to = target(t, table->level, now[i]);
        table->entry[i] = now[i];
        if (from == to || i < table->first)
            continue;
        if (to != NO_PAGE)
            use(t, to, table->level - 1, 0);
        if (from != NO_PAGE)
            drop(t, from, table->level - 1);
    }
}

/* A root that no vCPU has loaded may be a sleeping process's, or have become something else, if it
 * has changed. All have the kernel's half in common, and nothing in the user's but tables. */
static bool looks_like_root(const struct shared_tables *t, const uint64_t *root,
                            const uint64_t *other)
{
    const uint64_t table = PTE_PRESENT | PTE_WRITE | PTE_USER;

    for (unsigned i = 0; i < USER_HALF; i++)
        if (root[i] && ((root[i] & table) != table || page_at(t, root[i]) == NO_PAGE))
            return false;
    for (unsigned i = USER_HALF; i < ENTRIES; i++)
        if ((root[i] ^ other[i]) & ~PTE_BY_CPU)
            return false;
    return true;
}

static bool is_in_use(const struct shared_tables *t, uint64_t page, const uint64_t *in_use,
                      unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (page_at(t, in_use[i]) == page)
            return true;
    return false;
}

static void forget_roots(struct shared_tables *t, const uint64_t *in_use, unsigned count)
{
    const uint64_t reference = count ? page_at(t, in_use[0]) : NO_PAGE;

    for (unsigned i = 0; i < t->count && reference != NO_PAGE; i++) {
        struct table *table = t->table[i];
        if (!table->root || table->gone || is_in_use(t, table->page, in_use, count) ||
            looks_like_root(t, entries_of(t, table->page), entries_of(t, reference)) ||
            !memcmp(entries_of(t, table->page), table->entry, PAGE_BYTES))
            continue;
        table->root = false;
        drop(t, table->page, LEVELS);
    }
}

void shared_tables_refresh(struct shared_tables *t, const uint64_t *in_use, unsigned count)
{
    unsigned left = 0;

    forget_roots(t, in_use, count);
    /* Those nearer to the root first: what nothing leads to any more is not looked at. */
    for (unsigned level = LEVELS; level > 1; level--)
        for (unsigned i = 0; i < t->count; i++)
            if (t->table[i]->level == level && !t->table[i]->gone)
                follow(t, t->table[i]);
    for (unsigned i = 0; i < t->count; i++) {
        if (t->table[i]->gone)
            free(t->table[i]);
        else
            t->table[left++] = t->table[i];
    }
    t->count = left;
}
