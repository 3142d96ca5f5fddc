/* recording/page_copies.h: pages that are copied now and stored later. */
#include "tests/unit/recording/recording_content.h"

#include "recording/chunks.h"
#include "recording/page_copies.h"
#include "tests/unit/random.h"

#define PAGES 9000u /* more than are kept */

static uint32_t to[PAGES], wanted[PAGES];

static void fill(uint8_t *page, unsigned value)
{
    memset(page, 0, CHUNK_MAX_BYTES);
    memcpy(page, &value, sizeof value);
}

/* The same chunks as if they had been stored at once, in steps of any size, while others come. */
static void they_are_stored_as_they_were(void **state)
{
    uint64_t seed = RANDOM_SEED;
    struct page_copies copies = {0};
    struct err e = {0};
    uint8_t page[CHUNK_MAX_BYTES];

    (void)state;
    struct recording_writer *w = begin();
    struct chunk_store *chunks = chunks_create(w, &e);
    for (unsigned round = 0; round < 3; round++) {
        const unsigned count = round == 1 ? 300 : PAGES;
        for (unsigned i = 0; i < count; i++)
            fill(page_copies_add(&copies, &to[i]), (i * 7 + round) % 5000);
        unsigned left = count;
        while (left) {
            const unsigned step = 1 + random_next(&seed) % 700;
            assert_int_equal(page_copies_store(&copies, chunks, step),
                             left < step ? 0 : left - step);
            left -= left < step ? left : step;
            fill(page, 100000 + left); /* the guest's devices go on meanwhile */
            chunks_add(chunks, page);
        }
        for (unsigned i = 0; i < count; i++) {
            fill(page, (i * 7 + round) % 5000);
            wanted[i] = (uint32_t)chunks_add(chunks, page);
        }
        assert_memory_equal(to, wanted, count * sizeof *to);
        assert_int_equal(page_copies_store(&copies, chunks, 1), 0);
    }
    page_copies_free(&copies);
    assert_int_equal(writer_finish(w, 1, "done", &e), 0);
    chunks_destroy(chunks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(they_are_stored_as_they_were)};

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
