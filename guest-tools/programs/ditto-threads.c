/*
 * ditto-threads COUNT PASSES: threads on three counters (under a mutex, atomic, and racing with no
 * protection at all), then as many processes in a ring of pipes that pass a number round. Fails
 * when a protected counter or the ring is wrong. Host state it would leak: who runs when, on which
 * CPU; the racing counter shows it.
 */
#include "common.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS_MAX = 16, YIELD_EVERY = 64, RACE_LENGTH = 50 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t start;
static uint64_t locked_count, order;
static atomic_ullong atomic_count;
static volatile uint64_t racing_count;
static unsigned long passes;

static void *count(void *number)
{
    pthread_barrier_wait(&start);
    for (unsigned long i = 0; i < passes; i++) {
        pthread_mutex_lock(&lock);
        locked_count++;
        order = (order ^ (uintptr_t)number) * 0x100000001b3ull;
        pthread_mutex_unlock(&lock);
        atomic_fetch_add(&atomic_count, 1);
        const uint64_t seen = racing_count;
        for (volatile unsigned k = 0; k < RACE_LENGTH; k++)
            continue;
        racing_count = seen + 1;
        if (i % YIELD_EVERY == 0)
            sched_yield();
    }
    return NULL;
}

static int run_threads(unsigned long threads)
{
    pthread_t thread[THREADS_MAX];

    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (uintptr_t i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, count, (void *)i) != 0)
            die("pthread_create");
    for (unsigned long i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    printf("threads: locked %llu, atomic %llu, racing %llu, order %016llx\n",
           (unsigned long long)locked_count, (unsigned long long)atomic_count,
           (unsigned long long)racing_count, (unsigned long long)order);
    return locked_count == threads * passes && atomic_count == threads * passes;
}

/* Everybody passes on what comes, plus 1, so many times. */
static void pass_on(int from, int to, unsigned long times)
{
    uint64_t value;

    for (unsigned long i = 0; i < times; i++) {
        if (read(from, &value, sizeof value) != (ssize_t)sizeof value)
            die("read from the ring");
        value++;
        if (write(to, &value, sizeof value) != (ssize_t)sizeof value)
            die("write to the ring");
    }
}

static int run_ring(unsigned long processes, unsigned long rounds)
{
    int ring[THREADS_MAX][2];
    uint64_t value = 0;
    int status, failed = 0;

    for (unsigned long i = 0; i < processes; i++)
        if (pipe(ring[i]) < 0)
            die("pipe");
    fflush(stdout);
    for (unsigned long i = 1; i < processes; i++) {
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (child == 0) {
            pass_on(ring[i - 1][0], ring[i][1], rounds);
            _exit(0);
        }
    }
    for (unsigned long i = 0; i < rounds; i++) {
        if (write(ring[0][1], &value, sizeof value) != (ssize_t)sizeof value ||
            read(ring[processes - 1][0], &value, sizeof value) != (ssize_t)sizeof value)
            die("the ring");
    }
    for (unsigned long i = 1; i < processes; i++)
        failed |= wait(&status) < 0 || status != 0;
    printf("ring: %llu\n", (unsigned long long)value);
    return !failed && value == rounds * (processes - 1);
}

int main(int argc, char **argv)
{
    static const char usage[] = "ditto-threads COUNT PASSES";
    unsigned long threads = count_argument(argc == 3 ? argv[1] : NULL, THREADS_MAX, usage);

    passes = count_argument(argv[2], 100000000, usage);
    if (threads < 2)
        threads = 2;
    int fine = run_threads(threads);
    fine &= run_ring(threads, passes / 10 + 1);
    puts(fine ? "threads: all fine" : "threads: something was lost");
    return !fine;
}
