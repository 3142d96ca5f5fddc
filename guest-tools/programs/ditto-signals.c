/*
 * ditto-signals: timer signals into a computing process, nanosleep, signals between processes.
 * Host state it would leak: the moment of every timer interrupt. The number of loop passes between
 * two signals is printed, so a replay that delivers one interrupt one instruction late shows it.
 */
#include "common.h"

#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALARMS = 50, PINGS = 50 };

static volatile uint64_t passes;
static volatile sig_atomic_t alarms, pings;
static uint64_t passes_at_alarm[ALARMS];

static void on_alarm(int signal_number)
{
    (void)signal_number;
    if (alarms < ALARMS)
        passes_at_alarm[alarms++] = passes;
}

static void on_ping(int signal_number)
{
    (void)signal_number;
    pings++;
}

static void catch_signal(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};

    if (sigaction(number, &action, NULL) != 0)
        die("sigaction");
}

static void timer_signals(void)
{
    struct itimerval every = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
    uint64_t sum;

    catch_signal(SIGALRM, on_alarm);
    if (setitimer(ITIMER_REAL, &every, NULL) != 0)
        die("setitimer");
    while (alarms < ALARMS)
        passes++;
    if (setitimer(ITIMER_REAL, &never, NULL) != 0)
        die("setitimer");
    sum = checksum(CHECKSUM_START, passes_at_alarm, sizeof(passes_at_alarm));
    printf("signals: %d timer signals, first after %llu passes, last after %llu, sum %016llx\n",
           ALARMS, (unsigned long long)passes_at_alarm[0],
           (unsigned long long)passes_at_alarm[ALARMS - 1], (unsigned long long)sum);
}

static void sleeps(void)
{
    for (long ms = 1; ms <= 64; ms *= 4) {
        struct timespec pause = {0, ms * 1000000}, before, after;

        clock_gettime(CLOCK_MONOTONIC, &before);
        while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
            ;
        clock_gettime(CLOCK_MONOTONIC, &after);
        printf("signals: slept %ld ms, took %lld us\n", ms,
               (after.tv_sec - before.tv_sec) * 1000000LL +
                   (after.tv_nsec - before.tv_nsec) / 1000);
    }
}

/* Parent and child take turns with SIGUSR1; then a child that only computes is killed. */
static void child_signals(void)
{
    sigset_t usr1, old;
    pid_t child;
    int status;

    catch_signal(SIGUSR1, on_ping);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, &old);
    fflush(stdout);
    child = fork();
    if (child < 0)
        die("fork");
    for (int turn = 0; turn < PINGS; turn++) {
        if (child != 0 && kill(child, SIGUSR1) != 0)
            die("kill");
        while (pings <= turn)
            sigsuspend(&old);
        if (child == 0 && kill(getppid(), SIGUSR1) != 0)
            die("kill");
    }
    if (child == 0)
        _exit(42);
    if (waitpid(child, &status, 0) != child || status != 42 << 8)
        die("the signalled child");
    printf("signals: %d signals to and from a child\n", (int)pings);

    child = fork();
    if (child < 0)
        die("fork");
    while (child == 0)
        passes++;
    usleep(20000);
    kill(child, SIGKILL);
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        die("the killed child");
    printf("signals: a computing child was killed\n");
}

int main(void)
{
    timer_signals();
    sleeps();
    child_signals();
    return 0;
}
