#include "vmm/kvm/isolated.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

/* How long a child may take to die of its watchdog, or to go away after SIGKILL or its result. */
#define GRACE_MS 1000

void probe_says(struct probe_outcome *o, enum probe_result result, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(o->detail, sizeof o->detail, format, args);
    va_end(args);
    o->result = result;
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* SIGALRM with its default action ends KVM_RUN and this process, at whatever it hangs. */
static void start_watchdog(unsigned limit_ms)
{
    struct itimerval limit = {
        .it_value = {.tv_sec = limit_ms / 1000, .tv_usec = limit_ms % 1000 * 1000}};
    sigset_t none;

    signal(SIGALRM, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setitimer(ITIMER_REAL, &limit, NULL);
}

static _Noreturn void be_the_probe(void (*run)(struct probe_outcome *), unsigned limit_ms, int out,
                                   pid_t parent)
{
    struct probe_outcome o = {.result = PROBE_BROKEN, .detail = "the probe says nothing"};
    const struct rlimit no_core = {0, 0};
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    setrlimit(RLIMIT_CORE, &no_core);
    if (null >= 0) { /* a failed assert() is told by its signal */
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    start_watchdog(limit_ms);
    run(&o);
    _exit(write(out, &o, sizeof o) == (ssize_t)sizeof o ? 0 : 1);
}

/* Read the outcome, which is smaller than a pipe's atomic write. False: there is none. */
static bool receive(int in, uint64_t until, struct probe_outcome *o)
{
    struct pollfd p = {.fd = in, .events = POLLIN};
    int ready;

    do {
        uint64_t now = now_ms();
        ready = poll(&p, 1, now < until ? (int)(until - now) : 0);
    } while (ready < 0 && errno == EINTR);
    return ready > 0 && read(in, o, sizeof *o) == (ssize_t)sizeof *o;
}

/* Collect the child. False when it cannot be had. */
static bool collect(pid_t child, int *status)
{
    const struct timespec pause = {.tv_nsec = 500000};

    for (uint64_t until = now_ms() + GRACE_MS; now_ms() < until; nanosleep(&pause, NULL)) {
        pid_t got = waitpid(child, status, WNOHANG);
        if (got == child)
            return true;
        if (got < 0 && errno != EINTR)
            return false;
    }
    return false;
}

void isolated_run(void (*run)(struct probe_outcome *), unsigned limit_ms, struct probe_outcome *o)
{
    int ends[2], status = 0;
    pid_t parent = getpid();

    if (pipe2(ends, O_CLOEXEC) < 0) {
        probe_says(o, PROBE_BROKEN, "cannot make a pipe: %s", strerror(errno));
        return;
    }
    pid_t child = fork();
    if (child == 0)
        be_the_probe(run, limit_ms, ends[1], parent);
    close(ends[1]);
    if (child < 0) {
        probe_says(o, PROBE_BROKEN, "cannot fork: %s", strerror(errno));
        close(ends[0]);
        return;
    }
    bool told = receive(ends[0], now_ms() + limit_ms + GRACE_MS, o);
    close(ends[0]);
    if (!told) /* its own end, if it came to that, is still what waitpid() reports */
        kill(child, SIGKILL);
    bool ended = collect(child, &status);
    if (told) {
        o->detail[sizeof o->detail - 1] = 0;
        return;
    }
    if (!ended ||
        (WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGKILL)))
        probe_says(o, PROBE_BROKEN, "it hung and was stopped after %u ms", limit_ms);
    else if (WIFSIGNALED(status))
        probe_says(o, PROBE_BROKEN, "the probe died of signal %d (%s)", WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
    else
        probe_says(o, PROBE_BROKEN, "the probe ended without a result");
}
