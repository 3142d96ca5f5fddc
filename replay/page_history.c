#include "replay/page_history.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Distance of ranks when all are given anew. */
#define RANK_STEP (1ull << 32)

struct page_version {
    struct page_version *older; /* of the same page */
    struct page_version *next;  /* of the same moment */
    struct moment *moment;
    uint64_t page;
    uint8_t bytes[PAGE_BYTES];
};

static uint64_t pages_of(const struct page_source *source)
{
    return source->memory->size / PAGE_BYTES;
}

static size_t words_of(const struct page_source *source)
{
    return bitmap_words(pages_of(source));
}

static uint8_t *page_at(const struct page_history *h, uint64_t page)
{
    return h->source->memory->host + page * PAGE_BYTES;
}

static int no_memory(struct err *e)
{
    return err_set(e, STATUS_ERROR, "out of memory; give a smaller --checkpoint-memory");
}

/* ---- order ---- */

static void rank_all(struct page_history *h)
{
    uint64_t rank = 0;

    for (struct moment *m = h->first; m; m = m->later)
        m->rank = rank += RANK_STEP;
}

static void link_behind(struct page_history *h, struct moment *before, struct moment *m)
{
    m->earlier = before;
    m->later = before->later;
    before->later = m;
    if (m->later)
        m->later->earlier = m;
    else
        h->last = m;
    m->rank =
        m->later ? before->rank + (m->later->rank - before->rank) / 2 : before->rank + RANK_STEP;
    if (m->rank == before->rank)
        rank_all(h);
}

static void unlink_moment(struct page_history *h, struct moment *m)
{
    m->earlier->later = m->later;
    if (m->later)
        m->later->earlier = m->earlier;
    else
        h->last = m->earlier;
    m->earlier = m->later = NULL;
}

/* ---- versions ---- */

/* Where in the page's chain, the newest first, a version of this moment belongs. */
static struct page_version **place_of(struct page_history *h, uint64_t page, const struct moment *m)
{
    struct page_version **at = &h->newest[page];

    while (*at && (*at)->moment->rank > m->rank)
        at = &(*at)->older;
    return at;
}

static int add_version(struct page_history *h, uint64_t page, struct moment *m, struct err *e)
{
    struct page_version *v = malloc(sizeof *v);

    if (!v)
        return no_memory(e);
    memcpy(v->bytes, page_at(h, page), PAGE_BYTES);
    v->page = page;
    v->moment = m;
    struct page_version **at = place_of(h, page, m);
    assert(!*at || (*at)->moment != m);
    h->changed += !h->newest[page];
    v->older = *at;
    *at = v;
    v->next = m->pages;
    m->pages = v;
    m->count++;
    h->bytes += sizeof *v;
    return 0;
}

static void remove_version(struct page_history *h, struct page_version *v)
{
    struct page_version **at = &h->newest[v->page];

    while (*at != v)
        at = &(*at)->older;
    *at = v->older;
    h->changed -= !h->newest[v->page];
    h->bytes -= sizeof *v;
    free(v);
}

/* ---- bitmaps of pages ---- */

static int collect(struct page_history *h, struct err *e)
{
    return h->source->collect(h->source, h->written, e);
}

static void forget_written(struct page_history *h)
{
    memset(h->written, 0, words_of(h->source) * sizeof *h->written);
}

/* ---- the calls ---- */

int page_history_open(struct page_history *h, struct page_source *source, struct moment *first,
                      struct err *e)
{
    *h = (struct page_history){.source = source, .first = first, .last = first, .base = first};
    *first = (struct moment){0};
    h->written = calloc(words_of(source), sizeof *h->written);
    h->newest = calloc(pages_of(source), sizeof(struct page_version *));
    if (!h->written || !h->newest) {
        free(h->written);
        free(h->newest);
        *h = (struct page_history){0};
        return no_memory(e);
    }
    rank_all(h);
    source->memory->marked = h->written;
    return 0;
}

void page_history_close(struct page_history *h)
{
    if (!h->source)
        return;
    h->source->memory->marked = NULL;
    for (uint64_t page = 0; page < pages_of(h->source); page++)
        while (h->newest[page])
            remove_version(h, h->newest[page]);
    free(h->newest);
    free(h->written);
    *h = (struct page_history){0};
}

int page_history_take(struct page_history *h, struct moment *now, struct moment *before,
                      struct err *e)
{
    assert(before->rank >= h->base->rank);
    if (collect(h, e) < 0)
        return -1;
    *now = (struct moment){0};
    link_behind(h, before, now);
    for (uint64_t page = 0; bitmap_next(h->written, words_of(h->source), &page); page++)
        if (add_version(h, page, now, e) < 0) {
            /* What was copied stays, as that of the next moment would. */
            page_history_drop(h, now);
            return -1;
        }
    forget_written(h);
    h->base = now;
    return 0;
}

void page_history_enter(struct page_history *h, struct moment *moment, struct moment *before)
{
    const void *image = moment->image;

    assert(image);
    *moment = (struct moment){.image = image};
    link_behind(h, before, moment);
}

/* The moment whose image this one builds on. */
static const struct moment *image_of(const struct moment *m)
{
    while (m->earlier && !m->image)
        m = m->earlier;
    return m;
}

/* A page as it was at a moment, if it was written since that of its image, `base`. */
static const struct page_version *version_at(const struct page_history *h, uint64_t page,
                                             const struct moment *at, const struct moment *base)
{
    const struct page_version *v = h->newest[page];

    while (v && v->moment->rank > at->rank)
        v = v->older;
    return v && v->moment->rank > base->rank ? v : NULL;
}

/* Bring the pages in h->written to a moment. */
static int load_written(struct page_history *h, const struct moment *to, struct err *e)
{
    const struct moment *base = image_of(to);
    uint32_t *pages = NULL; /* that are the image's */
    size_t count = 0, capacity = 0;

    for (uint64_t page = 0; bitmap_next(h->written, words_of(h->source), &page); page++) {
        const struct page_version *v = version_at(h, page, to, base);
        if (v) {
            memcpy(page_at(h, page), v->bytes, PAGE_BYTES);
            continue;
        }
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 1024;
            uint32_t *more = realloc(pages, capacity * sizeof *pages);
            if (!more) {
                free(pages);
                return no_memory(e);
            }
            pages = more;
        }
        pages[count++] = (uint32_t)page;
    }
    int rc = count ? h->source->load(h->source, base->image, pages, count, e) : 0;
    free(pages);
    return rc;
}

/* Pages that were written after `since`, up to a moment. */
static void set_written(struct page_history *h, const struct moment *m, const struct moment *since)
{
    for (; m != since; m = m->earlier)
        for (const struct page_version *v = m->pages; v; v = v->next)
            bitmap_set(h->written, v->page);
}

/* Pages that may differ between two moments. */
static void set_differing(struct page_history *h, const struct moment *low,
                          const struct moment *high)
{
    const struct moment *low_base = image_of(low), *high_base = image_of(high);

    if (low_base == high_base) {
        set_written(h, high, low);
        return;
    }
    set_written(h, low, low_base);
    set_written(h, high, high_base);
    h->source->differing(h->source, low_base->image, high_base->image, h->written);
}

int page_history_restore(struct page_history *h, struct moment *to, struct err *e)
{
    const struct moment *low = to->rank < h->base->rank ? to : h->base;
    const struct moment *high = low == to ? h->base : to;

    if (collect(h, e) < 0)
        return -1;
    set_differing(h, low, high);
    if (load_written(h, to, e) < 0)
        return -1;
    forget_written(h);
    h->base = to;
    return 0;
}

bool page_history_is_at(const struct moment *moment,
                        bool (*is)(void *opaque, uint64_t page, const uint8_t *bytes), void *opaque,
                        const struct page_version **differed)
{
    if (*differed && !is(opaque, (*differed)->page, (*differed)->bytes))
        return false;
    for (const struct page_version *v = moment->pages; v; v = v->next) {
        if (is(opaque, v->page, v->bytes))
            continue;
        *differed = v;
        return false;
    }
    return true;
}

uint64_t page_history_extra(const struct page_history *h)
{
    return h->bytes - h->changed * sizeof(struct page_version);
}

void page_history_pass(struct page_history *h, struct moment *moment)
{
    assert(moment->rank >= h->base->rank);
    h->base = moment; /* what was written since the old base includes what was since this one */
}

void page_history_drop(struct page_history *h, struct moment *moment)
{
    struct moment *const later = moment->later;

    assert(moment != h->first && moment->earlier && !moment->image);
    if (h->base == moment) {
        /* Memory is then that of the moment before, but for these pages too. */
        for (const struct page_version *v = moment->pages; v; v = v->next)
            bitmap_set(h->written, v->page);
        h->base = moment->earlier;
    }
    for (struct page_version *v = moment->pages, *next; v; v = next) {
        next = v->next;
        /* The newer one of the page, if it is the next moment's, hides it, as an image does;
         * otherwise it is what the next moment has. */
        struct page_version *newer = NULL;
        for (struct page_version *n = h->newest[v->page]; n != v; n = n->older)
            newer = n;
        if (!later || later->image || (newer && newer->moment == later)) {
            remove_version(h, v);
            continue;
        }
        v->moment = later;
        v->next = later->pages;
        later->pages = v;
        later->count++;
    }
    moment->pages = NULL;
    moment->count = 0;
    unlink_moment(h, moment);
}
