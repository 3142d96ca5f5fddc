/* Guest memory at several moments, against whole copies of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "replay/page_history.h"
#include "tests/unit/random.h"

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

/* A page as it is at a time. */
static void page_at(uint64_t time, uint64_t page, uint8_t *out)
{
    memset(out, (int)(page % 7), PAGE_BYTES);
    for (uint64_t now = 0; now < time; now++)
        for (unsigned i = 0; i < 6; i++)
            if (path[now][i] == page)
                ((uint64_t *)out)[now % 512] = now * 1000 + i;
}

/* An image is the time of it. */
static int load(struct page_source *s, const void *image, const uint32_t *pages, size_t count,
                struct err *e)
{
    (void)e;
    for (size_t i = 0; i < count; i++)
        page_at(image ? *(const uint64_t *)image : 0, pages[i],
                s->memory->host + pages[i] * PAGE_BYTES);
    return 0;
}

static void differing(struct page_source *s, const void *a, const void *b, uint64_t *bitmap)
{
    const uint64_t x = a ? *(const uint64_t *)a : 0, y = b ? *(const uint64_t *)b : 0;

    (void)s;
    assert_true(x != y);
    for (uint64_t now = x < y ? x : y; now < (x < y ? y : x); now++)
        for (unsigned i = 0; i < 6; i++)
            bitmap[path[now][i] / 64] |= 1ull << path[now][i] % 64;
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

static struct page_source source = {
    .memory = &memory, .load = load, .differing = differing, .collect = collect};

/* Memory at a time, made anew. */
static void expect_time(uint64_t time)
{
    static uint8_t whole[PAGES * PAGE_BYTES];

    for (uint64_t page = 0; page < PAGES; page++)
        memset(whole + page * PAGE_BYTES, (int)(page % 7), PAGE_BYTES);
    for (uint64_t now = 0; now < time; now++) /* as page_at() has it, once for all */
        for (unsigned i = 0; i < 6; i++)
            ((uint64_t *)(whole + path[now][i] * PAGE_BYTES))[now % 512] = now * 1000 + i;
    assert_memory_equal(memory.host, whole, sizeof whole);
}

struct point {
    struct moment moment;
    uint64_t time;
    bool used;
};

/* The last of them before a time. */
static struct point *last_before(struct point *points, uint64_t time)
{
    struct point *last = points;

    for (unsigned i = 0; i < MOMENTS; i++)
        if (points[i].used && points[i].time < time && points[i].time >= last->time)
            last = &points[i];
    return last;
}

static bool is_taken(const struct point *points, uint64_t time)
{
    for (unsigned i = 0; i < MOMENTS; i++)
        if (points[i].used && points[i].time == time)
            return true;
    return false;
}

static bool is_as(void *opaque, uint64_t page, const uint8_t *bytes)
{
    (void)opaque;
    return memcmp(memory.host + page * PAGE_BYTES, bytes, PAGE_BYTES) == 0;
}

/* On the way to the next moment, it is there when its time has come, and not before. */
static void expect_moment(struct point *points, uint64_t now)
{
    for (unsigned i = 1; i < MOMENTS; i++) {
        const struct page_version *differed = NULL;
        struct point *p = &points[i];
        if (!p->used || p->moment.image || p->time < now ||
            last_before(points, p->time)->time > now)
            continue;
        for (unsigned times = 0; times < 2; times++) /* with what differed, too */
            assert_int_equal(page_history_is_at(&p->moment, is_as, NULL, &differed),
                             p->time == now);
    }
}

/* Runs forwards, goes back and forth, takes and drops moments as it likes; so many of them are
 * images of times that nobody need have been at. */
static void run_random(unsigned images)
{
    struct point points[MOMENTS] = {0};
    struct err e = {0};
    uint64_t now = 0;

    srand(5);
    for (unsigned t = 0; t < 4 * MOMENTS; t++)
        for (unsigned i = 0; i < 6; i++)
            path[t][i] = (uint64_t)rand() % (rand() % 2 ? PAGES : 9);
    assert_int_equal(guest_memory_create(&memory, (uint64_t)PAGES * PAGE_BYTES * 8, &e), 0);
    memory.size = (uint64_t)PAGES * PAGE_BYTES; /* less than a VM may have */
    for (uint64_t page = 0; page < PAGES; page++)
        page_at(0, page, memory.host + page * PAGE_BYTES);
    assert_int_equal(page_history_open(&history, &source, &points[0].moment, &e), 0);
    points[0].used = true;
    for (unsigned round = 0; round < rounds(3000); round++) {
        struct point *p = &points[(unsigned)rand() % MOMENTS];
        if (p->used && rand() % 3) {
            assert_int_equal(page_history_restore(&history, &p->moment, &e), 0);
            now = p->time;
            expect_time(now);
        } else if (p->used && p != points && !p->moment.image) {
            page_history_drop(&history, &p->moment);
            p->used = false;
        } else if (!p->used && images && rand() % 20 == 0) {
            p->time = 1 + (uint64_t)rand() % (4 * MOMENTS - 1);
            if (is_taken(points, p->time))
                continue;
            p->moment = (struct moment){.image = &p->time};
            page_history_enter(&history, &p->moment, &last_before(points, p->time)->moment);
            p->used = true;
            images--;
        } else if (!p->used && !is_taken(points, now)) {
            struct point *last = last_before(points, now);
            assert_int_equal(page_history_take(&history, &p->moment, &last->moment, &e), 0);
            p->time = now;
            p->used = true;
        }
        for (unsigned ticks = (unsigned)rand() % 4; ticks && now < 4 * MOMENTS; ticks--)
            tick(now++);
        expect_moment(points, now);
    }
    assert_int_equal(images, 0);
    assert_true(history.changed > 0 && page_history_extra(&history) < history.bytes);
    for (unsigned i = 1; i < MOMENTS; i++)
        if (points[i].used && !points[i].moment.image)
            page_history_drop(&history, &points[i].moment);
    assert_int_equal(history.bytes, 0);
    assert_int_equal(history.changed, 0);
    assert_int_equal(page_history_restore(&history, &points[0].moment, &e), 0);
    expect_time(0);
    page_history_close(&history);
    memory.size = (uint64_t)PAGES * PAGE_BYTES * 8;
    guest_memory_destroy(&memory);
}

static void test_random(void **state)
{
    (void)state;
    run_random(0);
}

static void test_random_with_images(void **state)
{
    (void)state;
    run_random(MOMENTS / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_random_with_images),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
