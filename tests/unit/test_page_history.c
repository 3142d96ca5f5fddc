/* Guest memory at several moments, against whole copies of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "replay/page_history.h"

#define PAGES   512u
#define MOMENTS 40u

static struct guest_memory memory;
static struct page_history history;
static uint64_t guest_wrote[PAGES / 64];
static uint64_t path[4 * MOMENTS][6]; /* the pages that each tick of time writes */

/* One tick of a deterministic machine. */
static void tick(uint64_t now)
{
    for (unsigned i = 0; i < 6; i++) {
        const uint64_t page = path[now][i];
        uint64_t *word = (uint64_t *)(memory.host + page * PAGE_BYTES) + now % 512;
        *word = now * 1000 + i;
        if (i % 2)
            guest_memory_mark(&memory, word, sizeof *word);
        else
            guest_wrote[page / 64] |= 1ull << page % 64;
    }
}

static int initial(struct page_source *s, uint64_t page, uint8_t *out, struct err *e)
{
    (void)s;
    (void)e;
    memset(out, (int)(page % 7), PAGE_BYTES);
    return 0;
}

static int collect(struct page_source *s, uint64_t *bitmap, struct err *e)
{
    (void)s;
    (void)e;
    for (unsigned i = 0; i < PAGES / 64; i++)
        bitmap[i] |= guest_wrote[i];
    memset(guest_wrote, 0, sizeof guest_wrote);
    return 0;
}

static struct page_source source = {.memory = &memory, .initial = initial, .collect = collect};

/* Memory at a time, made anew. */
static void expect_time(uint64_t time)
{
    static uint8_t whole[PAGES * PAGE_BYTES];

    for (uint64_t page = 0; page < PAGES; page++)
        memset(whole + page * PAGE_BYTES, (int)(page % 7), PAGE_BYTES);
    for (uint64_t now = 0; now < time; now++)
        for (unsigned i = 0; i < 6; i++)
            ((uint64_t *)(whole + path[now][i] * PAGE_BYTES))[now % 512] = now * 1000 + i;
    assert_memory_equal(memory.host, whole, sizeof whole);
}

/* Runs forwards, goes back and forth, takes and drops moments as it likes. */
static void test_random(void **state)
{
    struct point {
        struct moment moment;
        uint64_t time;
        bool used;
    } points[MOMENTS] = {0};
    struct err e = {0};
    uint64_t now = 0;

    (void)state;
    srand(5);
    for (unsigned t = 0; t < 4 * MOMENTS; t++)
        for (unsigned i = 0; i < 6; i++)
            path[t][i] = (uint64_t)rand() % (rand() % 2 ? PAGES : 9);
    assert_int_equal(guest_memory_create(&memory, (uint64_t)PAGES * PAGE_BYTES * 8, &e), 0);
    memory.size = (uint64_t)PAGES * PAGE_BYTES; /* less than a VM may have */
    for (uint64_t page = 0; page < PAGES; page++)
        initial(&source, page, memory.host + page * PAGE_BYTES, &e);
    assert_int_equal(page_history_open(&history, &source, &points[0].moment, &e), 0);
    points[0].used = true;
    for (unsigned round = 0; round < 3000; round++) {
        struct point *p = &points[(unsigned)rand() % MOMENTS];
        bool taken = false;
        for (unsigned i = 0; i < MOMENTS; i++)
            taken |= points[i].used && points[i].time == now;
        if (p->used && rand() % 3) {
            assert_int_equal(page_history_restore(&history, &p->moment, &e), 0);
            now = p->time;
            expect_time(now);
        } else if (p->used && p != points) {
            page_history_drop(&history, &p->moment);
            p->used = false;
        } else if (!p->used && !taken) {
            struct point *last = points;
            for (unsigned i = 0; i < MOMENTS; i++)
                if (points[i].used && points[i].time < now && points[i].time >= last->time)
                    last = &points[i];
            assert_int_equal(page_history_take(&history, &p->moment, &last->moment, &e), 0);
            p->time = now;
            p->used = true;
        }
        for (unsigned ticks = (unsigned)rand() % 4; ticks && now < 4 * MOMENTS; ticks--)
            tick(now++);
    }
    assert_true(history.changed > 0 && page_history_extra(&history) < history.bytes);
    for (unsigned i = 1; i < MOMENTS; i++)
        if (points[i].used)
            page_history_drop(&history, &points[i].moment);
    assert_int_equal(history.bytes, 0);
    assert_int_equal(history.changed, 0);
    assert_int_equal(page_history_restore(&history, &points[0].moment, &e), 0);
    expect_time(0);
    page_history_close(&history);
    memory.size = (uint64_t)PAGES * PAGE_BYTES * 8;
    guest_memory_destroy(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
