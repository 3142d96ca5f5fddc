/*
 * ditto-pair SECONDS: two processes side by side in pure compute loops, which only the timer
 * interrupt takes the CPU from; prints their counters four times a second and fails if one of them
 * ever stands still for a whole second. Host state it would leak: where each time slice ends.
 */
#include "common.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLE_MS = 250, STALL_SAMPLES = 4 };

static pid_t start_counter(volatile uint64_t *counter)
{
    pid_t child = fork();

    if (child < 0)
        die("fork");
    while (child == 0)
        ++*counter;
    return child;
}

int main(int argc, char **argv)
{
    unsigned long seconds = count_argument(argc == 2 ? argv[1] : NULL, 86400, "ditto-pair SECONDS");
    uint64_t last[2] = {0, 0};
    unsigned stalled[2] = {0, 0};
    int stuck = 0;
    pid_t children[2];
    /* One page each: the two never write the same one. */
    unsigned char *pages =
        mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (pages == MAP_FAILED)
        die("mmap");
    for (int i = 0; i < 2; i++)
        children[i] = start_counter((volatile uint64_t *)(pages + 4096 * i));
    for (unsigned long sample = 0; sample < seconds * 1000 / SAMPLE_MS; sample++) {
        usleep(SAMPLE_MS * 1000);
        for (int i = 0; i < 2; i++) {
            uint64_t count = *(volatile uint64_t *)(pages + 4096 * i);

            stalled[i] = count == last[i] ? stalled[i] + 1 : 0;
            stuck |= stalled[i] >= STALL_SAMPLES;
            last[i] = count;
        }
        printf("pair: %llu %llu\n", (unsigned long long)last[0], (unsigned long long)last[1]);
        fflush(stdout);
    }
    for (int i = 0; i < 2; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    puts(stuck ? "pair: one process stood still" : "pair: both processes progressed");
    return stuck;
}
