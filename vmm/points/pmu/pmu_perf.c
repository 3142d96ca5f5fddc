/*
 * The counter of perf_event_open(2): pinned, so that it counts all the time or fails; exclude_host,
 * so that it counts in guest mode only. An overflow is an NMI, which ends guest mode; the kernel
 * then sends a real-time signal to this thread, whose handler has KVM_RUN return.
 */
#include "vmm/points/pmu/pmu_counter.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A period that does not end: at 2^33 branches a second in 4 years. */
#define NEVER_PERIOD (1ull << 60)

/* For the signal handler: whose counter was armed last. A vCPU and its counter belong to one
 * thread. */
static _Thread_local struct vcpu *kicked;

static void on_overflow(int signal)
{
    (void)signal;
    if (kicked)
        vcpu_kick(kicked);
}

static struct pmu_perf *perf_of(struct pmu_counter *c)
{
    return (struct pmu_perf *)c; /* its first member */
}

static int perf_read(struct pmu_counter *c, uint64_t *count, struct err *e)
{
    struct {
        uint64_t count, enabled_ns, running_ns;
    } now;
    ssize_t n = read(perf_of(c)->fd, &now, sizeof now);

    if (n < 0)
        return err_set(e, STATUS_ERROR, "the branch counter cannot be read: %s", strerror(errno));
    if (n != (ssize_t)sizeof now) /* how a pinned event reports that it lost its counter */
        return err_set(e, STATUS_ERROR,
                       "the branch counter was taken away: something else counts on this CPU (the "
                       "NMI watchdog, or perf)");
    if (now.enabled_ns != now.running_ns)
        return err_set(e, STATUS_ERROR,
                       "the branch counter did not run all the time: something else counts on this "
                       "CPU, or it has cores of another kind (keep off them with taskset)");
    *count = now.count;
    return 0;
}

static int set_period(struct pmu_counter *c, uint64_t period, struct err *e)
{
    if (ioctl(perf_of(c)->fd, PERF_EVENT_IOC_PERIOD, &period) == 0)
        return 0;
    return err_set(e, STATUS_ERROR, "the branch counter takes no period of %llu: %s",
                   (unsigned long long)period, strerror(errno));
}

static int perf_arm(struct pmu_counter *c, uint64_t period, struct err *e)
{
    assert(perf_of(c)->kicks && period >= PMU_LEAST_PERIOD);
    kicked = perf_of(c)->kicks;
    return set_period(c, period < NEVER_PERIOD ? period : NEVER_PERIOD, e);
}

static int perf_disarm(struct pmu_counter *c, struct err *e)
{
    return set_period(c, NEVER_PERIOD, e);
}

static void perf_close(struct pmu_counter *c)
{
    close(perf_of(c)->fd);
    if (kicked == perf_of(c)->kicks)
        kicked = NULL;
}

static const struct pmu_counter_ops perf_ops = {
    .read = perf_read,
    .arm = perf_arm,
    .disarm = perf_disarm,
    .close = perf_close,
};

static int refused(uint64_t raw, struct err *e)
{
    const char *why = strerror(errno);

    if (errno == EACCES || errno == EPERM)
        why = "not permitted: it takes CAP_PERFMON, or kernel.perf_event_paranoid of at most 1";
    else if (errno == ENOENT || errno == ENODEV || errno == EOPNOTSUPP)
        why = "this machine, or the hypervisor it runs under, offers no such counter";
    return err_set(e, STATUS_ERROR, "perf_event_open of raw event %#llx: %s",
                   (unsigned long long)raw, why);
}

/* Overflows signal this very thread. Should the queue of real-time signals be full, the kernel
 * sends SIGIO instead, which would end the process. */
static int route_overflows(int fd, struct err *e)
{
    struct f_owner_ex owner = {.type = F_OWNER_TID, .pid = (pid_t)syscall(SYS_gettid)};
    struct sigaction action = {.sa_handler = on_overflow, .sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    if (sigaction(SIGRTMIN, &action, NULL) == 0 && sigaction(SIGIO, &action, NULL) == 0 &&
        fcntl(fd, F_SETOWN_EX, &owner) == 0 && fcntl(fd, F_SETSIG, SIGRTMIN) == 0 &&
        fcntl(fd, F_SETFL, O_ASYNC) == 0)
        return 0;
    return err_set(e, STATUS_ERROR, "the branch counter's overflows cannot be had as signals: %s",
                   strerror(errno));
}

int pmu_perf_open(struct pmu_perf *p, uint64_t raw, struct vcpu *vcpu, struct err *e)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_RAW,
        .size = sizeof attr,
        .config = raw,
        .sample_period = NEVER_PERIOD,
        .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
        .pinned = 1,
        .exclude_host = 1,
        .exclude_hv = 1,
    };
    uint64_t count;

    *p = (struct pmu_perf){.counter.ops = &perf_ops, .kicks = vcpu};
    p->fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (p->fd < 0)
        return refused(raw, e);
    if ((!vcpu || route_overflows(p->fd, e) == 0) && perf_read(&p->counter, &count, e) == 0)
        return 0;
    perf_close(&p->counter);
    return -1;
}

bool pmu_perf_frozen_on_smi(void)
{
    static const char *const files[] = {"/sys/devices/cpu/freeze_on_smi",
                                        "/sys/devices/cpu_core/freeze_on_smi"};

    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        char value = '1';
        int fd = open(files[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (read(fd, &value, 1) != 1)
            value = '1';
        close(fd);
        if (value == '0')
            return false;
    }
    return true;
}
