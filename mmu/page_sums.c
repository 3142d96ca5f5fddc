#include "mmu/page_sums.h"

#include <stdlib.h>
#include <string.h>

#include "mmu/digest.h"

#define WORDS (PAGE_BYTES / 8)

/* The cell of each row that a page is added to. */
static void cells_of(uint64_t gfn, unsigned cell[PAGE_SUM_ROWS])
{
    uint64_t mixed = gfn;

    mixed = (mixed ^ mixed >> 33) * 0xff51afd7ed558ccdull;
    mixed = (mixed ^ mixed >> 33) * 0xc4ceb9fe1a85ec53ull;
    for (unsigned row = 0; row < PAGE_SUM_ROWS; row++)
        cell[row] = (unsigned)(mixed >> 16 * row & 0xffff) % PAGE_SUM_CELLS;
}

static void add(struct page_sum *to, const struct page_sum *page)
{
    to->digest += page->digest;
    to->digest_by_gfn += page->digest_by_gfn;
    to->words += page->words;
}

static void subtract(struct page_sum *from, const struct page_sum *page)
{
    from->digest -= page->digest;
    from->digest_by_gfn -= page->digest_by_gfn;
    from->words -= page->words;
}

void page_sums_add(struct page_sums *s, uint64_t gfn, uint64_t digest, uint64_t words)
{
    const struct page_sum page = {digest, digest * gfn, words};
    unsigned cell[PAGE_SUM_ROWS];

    cells_of(gfn, cell);
    for (unsigned row = 0; row < PAGE_SUM_ROWS; row++)
        add(&s->cell[row][cell[row]], &page);
}

/* ---- what differs ---- */

/* x with x * b == a (mod 2^64), the smallest; false when there is none. */
static bool divide(uint64_t a, uint64_t b, uint64_t *x)
{
    if (!b)
        return false;
    const int zeroes = __builtin_ctzll(b);
    if (a & ((1ull << zeroes) - 1))
        return false;
    const uint64_t odd = b >> zeroes;
    uint64_t inverse = odd; /* right in 3 bits, and in twice as many after each pass */
    for (unsigned i = 0; i < 5; i++)
        inverse *= 2 - odd * inverse;
    *x = (a >> zeroes) * inverse & UINT64_MAX >> zeroes;
    return true;
}

/* Whether there is only one page in that cell, and which. */
static bool is_one_page(const struct page_sums *s, unsigned row, unsigned at,
                        const struct guest_memory *m, uint64_t *gfn)
{
    const struct page_sum *sum = &s->cell[row][at];
    unsigned cell[PAGE_SUM_ROWS];

    if (!divide(sum->digest_by_gfn, sum->digest, gfn) || *gfn > UINT64_MAX / PAGE_BYTES ||
        !guest_memory_any(m, *gfn * PAGE_BYTES, PAGE_BYTES))
        return false;
    cells_of(*gfn, cell);
    return cell[row] == at;
}

/* The word that differs, if it is only one: the sums tell by how much, and the page's digest with
 * which it was what it was. */
static void find_word(const struct page_sum *by, const struct guest_memory *m,
                      struct page_difference *d)
{
    const uint64_t gfn = d->gpa / PAGE_BYTES;
    uint64_t words[WORDS];

    page_as_it_counts(guest_memory_any(m, d->gpa, PAGE_BYTES), words);
    const uint64_t expected = page_digest(m, words, gfn) + by->digest;
    for (unsigned i = 0; i < WORDS && !d->one_word; i++) {
        d->got = words[i];
        d->offset = i * 8;
        d->expected = words[i] += by->words;
        d->one_word = page_digest(m, words, gfn) == expected;
        words[i] = d->got;
    }
}

static int by_gpa(const void *a, const void *b)
{
    const struct page_difference *x = a, *y = b;

    return (x->gpa > y->gpa) - (x->gpa < y->gpa);
}

/* Take a page out that is alone in some cell; false when there is none. */
static bool take_out(struct page_sums *left, const struct guest_memory *m,
                     struct page_difference *d)
{
    for (unsigned i = 0; i < PAGE_SUM_ROWS * PAGE_SUM_CELLS; i++) {
        const unsigned row = i / PAGE_SUM_CELLS, at = i % PAGE_SUM_CELLS;
        const struct page_sum page = left->cell[row][at];
        unsigned cell[PAGE_SUM_ROWS];
        uint64_t gfn;
        if (!is_one_page(left, row, at, m, &gfn))
            continue;
        *d = (struct page_difference){.gpa = gfn * PAGE_BYTES};
        find_word(&page, m, d);
        cells_of(gfn, cell);
        for (unsigned r = 0; r < PAGE_SUM_ROWS; r++)
            subtract(&left->cell[r][cell[r]], &page);
        return true;
    }
    return false;
}

unsigned page_sums_compare(const struct page_sums *expected, const struct page_sums *got,
                           const struct guest_memory *m, struct page_difference *out, unsigned most,
                           bool *all)
{
    static const struct page_sums nothing;
    struct page_sums left = *expected;
    unsigned count = 0;

    for (unsigned row = 0; row < PAGE_SUM_ROWS; row++)
        for (unsigned at = 0; at < PAGE_SUM_CELLS; at++)
            subtract(&left.cell[row][at], &got->cell[row][at]);
    while (count < most && take_out(&left, m, &out[count]))
        count++;
    *all = !memcmp(&left, &nothing, sizeof left);
    qsort(out, count, sizeof *out, by_gpa);
    return count;
}

/* ---- in a recording ---- */

void page_sums_encode(struct bytes *out, const struct page_sums *s)
{
    for (unsigned i = 0; i < PAGE_SUM_ROWS * PAGE_SUM_CELLS; i++) {
        const struct page_sum *sum = &s->cell[0][0] + i;
        bytes_put_u64(out, sum->digest);
        bytes_put_u64(out, sum->digest_by_gfn);
        bytes_put_u64(out, sum->words);
    }
}

void page_sums_decode(struct cursor *in, struct page_sums *s)
{
    for (unsigned i = 0; i < PAGE_SUM_ROWS * PAGE_SUM_CELLS; i++) {
        struct page_sum *sum = &s->cell[0][0] + i;
        sum->digest = cursor_u64(in);
        sum->digest_by_gfn = cursor_u64(in);
        sum->words = cursor_u64(in);
    }
}
