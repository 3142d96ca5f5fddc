/* Accesses that a vCPU makes together (recording/order/access_batch.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "recording/order/access_batch.h"
#include "recording/order/order.h"
#include "recording/order/order_check.h"
#include "tests/unit/random.h"

static void add(struct access_list *list, unsigned vcpu, bool store, uint64_t object,
                uint64_t point)
{
    const struct access a = {
        .vcpu = (uint8_t)vcpu, .store = store, .object = object, .point = point};

    assert_int_equal(access_list_add(list, &a), 0);
}

static uint64_t constraints(const struct access_list *list)
{
    struct order_log log;

    order_log_init(&log, list->vcpus);
    order_record(&order_ditto, list, &log);
    const uint64_t count = log.constraints;
    order_log_free(&log);
    return count;
}

/* What another vCPU has got one after another: to wait for the last is to wait for all. */
static void test_newest_first(void **state)
{
    static const uint64_t sorted[] = {1, 2, 3, 4, 4, 3, 2, 1, 9};
    struct access_list list = {.vcpus = 2};

    (void)state;
    for (unsigned object = 1; object <= 4; object++)
        add(&list, 0, true, object, object);
    add(&list, 1, true, 2, 7);
    add(&list, 1, true, 1, 7);
    add(&list, 1, true, 3, 7);
    add(&list, 1, true, 4, 7);
    add(&list, 1, true, 9, 8);
    assert_int_equal(constraints(&list), 3); /* 2 says it of 1 */
    access_list_sort_batches(&list);
    assert_int_equal(list.count, 9);
    for (unsigned i = 0; i < 9; i++)
        assert_int_equal(list.at[i].object, sorted[i]);
    assert_int_equal(constraints(&list), 1);
    access_list_free(&list);
}

/* A page that was to be read, and came back to be written, was got to be written. What is not of
 * one point, or not of one vCPU, stays apart; so do two of an object that are not together. */
static void test_merged(void **state)
{
    struct access_list list = {.vcpus = 3};

    (void)state;
    add(&list, 0, true, 5, 1);
    add(&list, 1, false, 5, 1);
    add(&list, 1, true, 5, 1);
    add(&list, 1, false, 5, 2);
    add(&list, 2, false, 5, 2);
    add(&list, 2, true, 5, 3);
    access_list_sort_batches(&list);
    assert_int_equal(list.count, 5);
    assert_int_equal(list.at[1].vcpu, 1);
    assert_true(list.at[1].store);
    assert_false(list.at[2].store);
    assert_int_equal(list.at[2].point, 2);
    assert_int_equal(list.at[3].vcpu, 2);
    assert_false(list.at[3].store);
    assert_true(list.at[4].store);
    access_list_free(&list);
}

/* However many there are at one point: nothing is lost, and the order of each object is kept. */
static void test_random(void **state)
{
    uint64_t random = RANDOM_SEED;

    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        const unsigned vcpus = 2 + (unsigned)(random_next(&random) % 3);
        const unsigned most = round % 10 ? 12 : 300;
        uint64_t accesses = 0, point[MAX_VCPUS] = {0};
        struct access_list list = {.vcpus = vcpus};
        struct err e = {0};

        for (unsigned batch = 0; batch < 60; batch++) {
            const unsigned vcpu = (unsigned)(random_next(&random) % vcpus);
            const uint64_t first = random_next(&random) % 20,
                           count = 1 + random_next(&random) % most;
            point[vcpu]++;
            for (uint64_t i = 0; i < count; i++)
                add(&list, vcpu, random_next(&random) % 2, first + i, point[vcpu]);
            accesses += count;
        }
        access_list_sort_batches(&list);
        assert_int_equal(list.count, accesses);
        for (unsigned i = 0; i < ORDER_ENCODERS; i++) {
            struct order_log log;
            order_log_init(&log, vcpus);
            order_record(order_encoders[i], &list, &log);
            for (unsigned schedule = 0; schedule < ORDER_SCHEDULES; schedule++)
                assert_int_equal(order_check(order_encoders[i], &log, &list,
                                             (enum order_schedule)schedule, round + 1, &e),
                                 0);
            order_log_free(&log);
        }
        access_list_free(&list);
    }
}

/* Together takes no longer than one of them. */
static void test_time(void **state)
{
    struct access_list list = {.vcpus = 2};
    struct order_log log;
    struct err e = {0};
    double time;

    (void)state;
    for (unsigned point = 10; point < 1000; point += 10)
        for (unsigned i = 0; i < 8; i++)
            add(&list, point / 10 % 2, true, i, point);
    access_list_sort_batches(&list);
    order_log_init(&log, 2);
    order_record(&order_ditto, &list, &log);
    assert_int_equal(order_time(&order_ditto, &log, &list, 0, &time, &e), 0);
    assert_true(time >= 1 && time < 1.1);
    order_log_free(&log);
    access_list_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newest_first),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
