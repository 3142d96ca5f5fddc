#include "mmu/lost_pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct lost_list {
    unsigned count;
    uint64_t page[LOST_PAGES_MAX]; /* in the order in which they were lost */
};

struct lost_pages {
    uint64_t pages;
    struct lost_list list[MAX_VCPUS][MAX_VCPUS]; /* [loser][winner] */
    uint8_t *guesses[MAX_VCPUS]; /* by page: how often it came back since it was asked for */
};

struct lost_pages *lost_pages_create(uint64_t pages)
{
    struct lost_pages *l = calloc(1, sizeof *l);

    if (!l)
        return NULL;
    l->pages = pages;
    for (unsigned i = 0; i < MAX_VCPUS; i++) {
        l->guesses[i] = calloc(pages, 1);
        if (!l->guesses[i]) {
            lost_pages_destroy(l);
            return NULL;
        }
    }
    return l;
}

void lost_pages_destroy(struct lost_pages *l)
{
    if (!l)
        return;
    for (unsigned i = 0; i < MAX_VCPUS; i++)
        free(l->guesses[i]);
    free(l);
}

/* How often it came back to this vCPU. */
static uint8_t *guesses(struct lost_pages *l, unsigned vcpu, uint64_t page)
{
    assert(vcpu < MAX_VCPUS && page < l->pages);
    return &l->guesses[vcpu][page];
}

void lost_pages_asked(struct lost_pages *l, unsigned vcpu, uint64_t page)
{
    *guesses(l, vcpu, page) = 0;
}

void lost_pages_guessed(struct lost_pages *l, unsigned vcpu, uint64_t page)
{
    uint8_t *count = guesses(l, vcpu, page);

    if (*count < GUESSES_MAX) /* it may have been lost to several, and noted for each */
        ++*count;
}

bool lost_pages_has(const struct lost_pages *l, unsigned loser, unsigned winner, uint64_t page)
{
    const struct lost_list *list = &l->list[loser][winner];

    for (unsigned i = 0; i < list->count; i++)
        if (list->page[i] == page)
            return true;
    return false;
}

void lost_pages_note(struct lost_pages *l, unsigned loser, unsigned winner, uint64_t page)
{
    struct lost_list *list = &l->list[loser][winner];

    assert(winner < MAX_VCPUS && loser != winner);
    if (*guesses(l, loser, page) == GUESSES_MAX)
        return;
    if (lost_pages_has(l, loser, winner, page))
        return;
    if (list->count == LOST_PAGES_MAX)
        memmove(list->page, list->page + 1, --list->count * sizeof page);
    list->page[list->count++] = page;
}

bool lost_pages_any(const struct lost_pages *l, unsigned loser, unsigned winner)
{
    return l->list[loser][winner].count > 0;
}

unsigned lost_pages_take(struct lost_pages *l, unsigned loser, unsigned winner,
                         uint64_t page[LOST_PAGES_MAX])
{
    struct lost_list *list = &l->list[loser][winner];
    const unsigned count = list->count;

    memcpy(page, list->page, count * sizeof *page);
    list->count = 0;
    return count;
}
