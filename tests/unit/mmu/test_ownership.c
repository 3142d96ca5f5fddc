/* Threads that touch a mapping stand for vCPUs; a jump out of the signal's handler stands for KVM,
 * which leaves KVM_RUN in front of the instruction. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <pthread.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "mmu/ownership.h"

#define PAGE 5u

static struct guest_memory memory;
static struct ownership *o;
static __thread sigjmp_buf out;

static void on_signal(int signal)
{
    (void)signal;
    siglongjmp(out, 1);
}

static int setup(void **state)
{
    const struct sigaction action = {.sa_handler = on_signal};
    struct err e;

    (void)state;
    if (guest_memory_create(&memory, MEMORY_MIN, &e) < 0)
        fail_msg("%s", e.text);
    o = ownership_create(&memory, 3, &e);
    if (!o) {
        print_message("%s\n", e.text);
        skip();
    }
    return sigaction(SIGUSR2, &action, NULL);
}

static int teardown(void **state)
{
    (void)state;
    ownership_destroy(o);
    guest_memory_destroy(&memory);
    return 0;
}

/* One "instruction" of a vCPU: add to a word, or read it. */
static enum ownership_stop run(unsigned vcpu, uint64_t page, int add, uint64_t *value,
                               struct page_fault *fault)
{
    volatile uint64_t *word = (uint64_t *)(ownership_mapping(o, vcpu) + page * PAGE_BYTES);

    ownership_enter(o, vcpu);
    if (sigsetjmp(out, 1) == 0) {
        if (add)
            *word += (uint64_t)add;
        *value = *word;
    }
    return ownership_leave(o, vcpu, fault);
}

/* The same until it has gone through, given what it needs at once. Returns how many faults. */
static unsigned run_through(unsigned vcpu, uint64_t page, int add, uint64_t *value)
{
    struct page_fault fault;
    unsigned faults = 0;

    while (run(vcpu, page, add, value, &fault) == OWNERSHIP_FAULT) {
        assert_int_equal(fault.page, page);
        ownership_transfer(o, vcpu, &fault);
        faults++;
    }
    return faults;
}

static enum page_access access_of(unsigned vcpu, uint64_t page)
{
    return ownership_table(o, vcpu)[page];
}

static void a_page_has_readers_or_one_writer(void **state)
{
    uint64_t value;

    (void)state;
    assert_int_equal(run_through(0, PAGE, 0, &value), 1);
    assert_int_equal(run_through(1, PAGE, 0, &value), 1);
    assert_int_equal(access_of(0, PAGE), ACCESS_READ);
    assert_int_equal(access_of(1, PAGE), ACCESS_READ);
    assert_int_equal(run_through(0, PAGE, 0, &value), 0);
    /* A reader that writes. */
    assert_int_equal(run_through(0, PAGE, 7, &value), 1);
    assert_int_equal(value, 7);
    assert_int_equal(access_of(0, PAGE), ACCESS_WRITE);
    assert_int_equal(access_of(1, PAGE), ACCESS_NONE);
    assert_int_equal(run_through(0, PAGE, 1, &value), 0);
    /* The writer stays a reader when another one reads. */
    assert_int_equal(run_through(2, PAGE, 0, &value), 1);
    assert_int_equal(value, 8);
    assert_int_equal(access_of(0, PAGE), ACCESS_READ);
    assert_int_equal(run_through(0, PAGE, 0, &value), 0);
    /* A write of one that has nothing: as it reads first, two faults. */
    assert_int_equal(run_through(1, PAGE, 2, &value), 2);
    assert_int_equal(value, 10);
    for (unsigned vcpu = 0; vcpu < 3; vcpu++)
        assert_int_equal(access_of(vcpu, PAGE), vcpu == 1 ? ACCESS_WRITE : ACCESS_NONE);
    assert_int_equal(*(uint64_t *)(memory.host + PAGE * PAGE_BYTES), 10);
}

static void what_is_lent_is_called_in(void **state)
{
    struct page_fault fault;
    uint64_t value = 0;

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(run(0, PAGE, 1, &value, &fault), OWNERSHIP_FAULT);
        assert_int_equal(fault.page, PAGE);
        assert_int_equal(fault.access, ACCESS_READ);
    }
    ownership_transfer(o, 0, &fault);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(run(0, PAGE, 1, &value, &fault), OWNERSHIP_FAULT);
        assert_int_equal(fault.access, ACCESS_WRITE);
    }
    assert_int_equal(*(uint64_t *)(memory.host + PAGE * PAGE_BYTES), 0);
    ownership_transfer(o, 0, &fault);
    assert_int_equal(run(0, PAGE, 1, &value, &fault), OWNERSHIP_NOTHING);
    assert_int_equal(value, 1);
}

static void a_page_that_the_host_takes_away_is_no_fault(void **state)
{
    struct page_fault fault;
    uint64_t value;

    (void)state;
    run_through(0, PAGE, 1, &value);
    madvise(ownership_mapping(o, 0) + PAGE * PAGE_BYTES, PAGE_BYTES, MADV_DONTNEED);
    assert_int_equal(run(0, PAGE, 1, &value, &fault), OWNERSHIP_NOTHING);
    assert_int_equal(value, 2);
    run_through(1, PAGE, 0, &value);
    madvise(ownership_mapping(o, 0) + PAGE * PAGE_BYTES, PAGE_BYTES, MADV_DONTNEED);
    assert_int_equal(run(0, PAGE, 0, &value, &fault), OWNERSHIP_NOTHING);
    /* ... and it is still one that must not be written. */
    madvise(ownership_mapping(o, 0) + PAGE * PAGE_BYTES, PAGE_BYTES, MADV_DONTNEED);
    assert_int_equal(run(0, PAGE, 1, &value, &fault), OWNERSHIP_FAULT);
    assert_int_equal(fault.access, ACCESS_WRITE);
}

static void shared_pages_never_fault(void **state)
{
    struct page_fault fault;
    uint64_t value;

    (void)state;
    ownership_share(o, PAGE);
    for (unsigned vcpu = 0; vcpu < 3; vcpu++)
        assert_int_equal(run(vcpu, PAGE, 1, &value, &fault), OWNERSHIP_NOTHING);
    assert_int_equal(value, 3);
}

static void a_table_is_lent_and_shows_nowhere(void **state)
{
    struct page_fault fault;
    uint64_t value;

    (void)state;
    run_through(0, PAGE, 1, &value);
    assert_int_equal(run(1, PAGE, 1, &value, &fault), OWNERSHIP_FAULT);
    ownership_lend_table(o, 1, PAGE);
    assert_int_equal(run(1, PAGE, 1, &value, &fault), OWNERSHIP_NOTHING);
    assert_int_equal(run(0, PAGE, 1, &value, &fault), OWNERSHIP_NOTHING);
    assert_int_equal(value, 3);
    assert_int_equal(access_of(1, PAGE), ACCESS_NONE);
    /* Whoever takes the page from its owner does not take the loan. */
    assert_int_equal(run_through(2, PAGE, 1, &value), 2);
    assert_int_equal(run(1, PAGE, 1, &value, &fault), OWNERSHIP_NOTHING);
    ownership_lend_table(o, 1, PAGE + 1);
    assert_true(ownership_has_tables(o, 1) && !ownership_has_tables(o, 0));
    ownership_return_tables(o, 1, PAGE);
    assert_int_equal(run(1, PAGE, 1, &value, &fault), OWNERSHIP_NOTHING);
    assert_int_equal(run(1, PAGE + 1, 1, &value, &fault), OWNERSHIP_FAULT);
    ownership_return_tables(o, 1, UINT64_MAX);
    assert_false(ownership_has_tables(o, 1));
    assert_int_equal(run(1, PAGE, 1, &value, &fault), OWNERSHIP_FAULT);
    /* When there are too many, the oldest goes back. */
    for (unsigned i = 0; i <= 48; i++)
        ownership_lend_table(o, 1, PAGE + i);
    assert_int_equal(run(1, PAGE + 1, 1, &value, &fault), OWNERSHIP_NOTHING);
    assert_int_equal(run(1, PAGE, 1, &value, &fault), OWNERSHIP_FAULT);
    ownership_return_tables(o, 1, UINT64_MAX);
    /* What nobody has was given back. */
    ownership_disown(o, PAGE);
    assert_int_equal(run(2, PAGE, 1, &value, &fault), OWNERSHIP_FAULT);
}

static void memory_shows_what_may_be_read(void **state)
{
    struct guest_memory view = memory;
    uint64_t value;

    (void)state;
    view.readable = ownership_table(o, 1);
    assert_null(guest_memory_at(&view, PAGE * PAGE_BYTES, 8));
    run_through(1, PAGE, 0, &value);
    assert_non_null(guest_memory_at(&view, PAGE * PAGE_BYTES, PAGE_BYTES));
    assert_null(guest_memory_at(&view, PAGE * PAGE_BYTES, PAGE_BYTES + 1));
    run_through(0, PAGE, 1, &value);
    assert_null(guest_memory_at(&view, PAGE * PAGE_BYTES, 8));
    assert_non_null(guest_memory_at(&memory, PAGE * PAGE_BYTES, 8));
}

/* ---- in parallel ---- */

#define PASSES 400

static pthread_mutex_t machine = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool running[3];

static bool others_stand(unsigned vcpu, const struct page_fault *wanted)
{
    for (unsigned i = 0; i < 3; i++)
        if (i != vcpu && running[i] && ownership_conflict(o, i, wanted))
            return false;
    return true;
}

/* Increments without any lock: they are atomic because a page is, from fault to fault. */
static void *increment(void *arg)
{
    const unsigned vcpu = (unsigned)(uintptr_t)arg;
    struct page_fault fault;
    uint64_t value;

    pthread_mutex_lock(&machine);
    for (unsigned i = 0; i < PASSES;) {
        running[vcpu] = true;
        pthread_mutex_unlock(&machine);
        const enum ownership_stop stop = run(vcpu, PAGE, 1, &value, &fault);
        pthread_mutex_lock(&machine);
        running[vcpu] = false;
        pthread_cond_broadcast(&changed);
        if (stop == OWNERSHIP_NOTHING) {
            i++;
            continue;
        }
        assert_int_equal(stop, OWNERSHIP_FAULT);
        while (!others_stand(vcpu, &fault))
            pthread_cond_wait(&changed, &machine);
        ownership_transfer(o, vcpu, &fault);
    }
    pthread_mutex_unlock(&machine);
    return NULL;
}

static void none_is_lost_in_parallel(void **state)
{
    pthread_t thread[3];

    (void)state;
    for (uintptr_t i = 0; i < 3; i++)
        pthread_create(&thread[i], NULL, increment, (void *)i);
    for (unsigned i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(*(uint64_t *)(memory.host + PAGE * PAGE_BYTES), 3 * PASSES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_page_has_readers_or_one_writer, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_lent_is_called_in, setup, teardown),
        cmocka_unit_test_setup_teardown(a_page_that_the_host_takes_away_is_no_fault, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(shared_pages_never_fault, setup, teardown),
        cmocka_unit_test_setup_teardown(a_table_is_lent_and_shows_nowhere, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_shows_what_may_be_read, setup, teardown),
        cmocka_unit_test_setup_teardown(none_is_lost_in_parallel, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
