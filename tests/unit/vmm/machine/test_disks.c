#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/random.h"
#include "vmm/machine/disks.h"

/* Jobs of nobody's: what matters is on which thread they run, and in which order. */
struct test_job {
    struct block_job job;
    unsigned number;
    bool waits; /* the host's storage would have to be waited for */
    pthread_t ran_on;
};

#define JOBS 400u

static struct disk_set set = {.count = 2};
static struct pc pc;
static struct disks disks;
static sem_t told, gate; /* gate: behind which a job that waits goes on */
static struct test_job job[JOBS];
static bool slow;                 /* they take some ms */
static unsigned order[JOBS], ran; /* under no lock: they run one after another */

static bool run(struct block_job *b, bool may_wait)
{
    struct test_job *j = (struct test_job *)b;

    if (j->waits && !may_wait)
        return false;
    if (j->waits)
        sem_wait(&gate);
    if (j->waits && slow)
        usleep(5000);
    j->ran_on = pthread_self();
    order[ran++] = j->number;
    return true;
}

static void tell(void *opaque)
{
    sem_post(opaque);
}

static void wait_until_told(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    assert_int_equal(sem_timedwait(&told, &until), 0);
}

static int setup(void **state)
{
    (void)state;
    sem_init(&told, 0, 0);
    sem_init(&gate, 0, 0);
    ran = 0;
    pc.config.disks = &set;
    disks_open(&disks, &pc);
    disks.took_ns = 1000000000; /* a slow one */
    disks_listen(&disks, tell, &told);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    disks_ignore(&disks);
    disks_close(&disks);
    disks_close(&disks); /* of zeroes */
    return 0;
}

static void submit(unsigned number, unsigned disk, bool waits)
{
    job[number] = (struct test_job){.job.run = run, .number = number, .waits = waits};
    disks_link(&disks, disk)->submit(disks_link(&disks, disk), &job[number].job);
}

static bool is_done(unsigned number)
{
    return atomic_load(&job[number].job.done);
}

static void what_needs_no_waiting_is_done_at_once(void **state)
{
    (void)state;
    submit(0, 0, false);
    assert_true(is_done(0));
    assert_true(pthread_equal(job[0].ran_on, pthread_self()));
}

/* ... unless another one has to be waited for: that would be done behind it. */
static void the_rest_is_done_meanwhile_and_in_order(void **state)
{
    (void)state;
    submit(0, 0, true);
    submit(1, 1, false);
    submit(2, 0, true);
    assert_false(is_done(0) || is_done(1) || is_done(2));
    sem_post(&gate);
    wait_until_told();
    wait_until_told();
    assert_true(is_done(0) && is_done(1) && !is_done(2));
    sem_post(&gate);
    wait_until_told();
    assert_true(is_done(2));
    assert_false(pthread_equal(job[1].ran_on, pthread_self()));
    submit(3, 0, false);
    assert_true(is_done(3) && pthread_equal(job[3].ran_on, pthread_self()));
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(order[i], i);
}

/* Of a quick disk: while it is. */
static void what_does_not_take_long_is_waited_for(void **state)
{
    (void)state;
    disks.took_ns = 0;
    sem_post(&gate);
    submit(0, 0, true);
    assert_true(is_done(0) && pthread_equal(job[0].ran_on, pthread_self()));
    slow = true;
    for (unsigned i = 1; i < 20; i++) {
        sem_post(&gate);
        submit(i, 0, true);
    }
    disks_settle(&disks);
    assert_false(pthread_equal(job[19].ran_on, pthread_self()));
    slow = false;
    for (unsigned i = 20; i < 100; i++) {
        sem_post(&gate);
        submit(i, 0, true);
        disks_settle(&disks);
    }
    assert_true(pthread_equal(job[99].ran_on, pthread_self()));
}

static void settling_waits_for_all(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        submit(i, i % 2, true);
        sem_post(&gate);
    }
    disks_settle(&disks);
    for (unsigned i = 0; i < 20; i++)
        assert_true(is_done(i));
    disks_link(&disks, 0)->settle(disks_link(&disks, 0)); /* nothing waits */
}

static void ignoring_finishes_what_was_begun(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        submit(i, 0, true);
        sem_post(&gate);
    }
    disks_ignore(&disks);
    assert_int_equal(ran, 20);
    /* Without the thread all is done at once. */
    sem_post(&gate);
    submit(20, 0, true);
    assert_true(is_done(20) && pthread_equal(job[20].ran_on, pthread_self()));
    disks_listen(&disks, tell, &told);
}

static void many_at_random(void **state)
{
    uint64_t seed = RANDOM_SEED;

    (void)state;
    for (unsigned i = 0; i < JOBS; i++) {
        const bool waits = random_next(&seed) % 4 == 0;
        if (waits)
            sem_post(&gate);
        submit(i, i % 2, waits);
        if (random_next(&seed) % 8 == 0)
            usleep(random_next(&seed) % 200);
    }
    disks_settle(&disks);
    assert_int_equal(ran, JOBS);
    for (unsigned i = 0; i < JOBS; i++)
        assert_int_equal(order[i], i);
}

static void completions_are_as_many_as_are_done(void **state)
{
    struct block_link *link = disks_link(&disks, 1);

    (void)state;
    assert_int_equal(link->completes(link, 0), 0);
    assert_int_equal(link->completes(link, 7), 7); /* no recorder */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_needs_no_waiting_is_done_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(the_rest_is_done_meanwhile_and_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(what_does_not_take_long_is_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(settling_waits_for_all, setup, teardown),
        cmocka_unit_test_setup_teardown(ignoring_finishes_what_was_begun, setup, teardown),
        cmocka_unit_test_setup_teardown(many_at_random, setup, teardown),
        cmocka_unit_test_setup_teardown(completions_are_as_many_as_are_done, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
