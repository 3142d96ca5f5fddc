#include "host/emulated_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/emulated_args.h"
#include "host/emulated_options.h"

/* Numbers behind EMULATED_FIRST_PORT_FD, with gaps. */
#define PASSED_MAX (EMULATED_CONTROL_FD + 1 - EMULATED_FIRST_PORT_FD)

static void close_ports(const int ports[EMULATED_PORTS])
{
    for (int i = 0; i < EMULATED_PORTS; i++)
        if (ports[i] >= 0)
            close(ports[i]);
}

/* In the child, only async-signal-safe calls. */
static _Noreturn void become_qemu(char **args, const int passed[PASSED_MAX], int out, int said,
                                  pid_t parent)
{
    int high[PASSED_MAX];
    sigset_t none;
    sigemptyset(&none);
    /* First out of the way of the numbers they get, then to them. */
    for (int i = 0; i < PASSED_MAX; i++)
        high[i] = passed[i] < 0 ? -1 : fcntl(passed[i], F_DUPFD, 64);
    out = fcntl(out, F_DUPFD, 64);
    said = fcntl(said, F_DUPFD, 64);
    int null = open("/dev/null", O_RDONLY);
    bool ok = null >= 0 && dup2(null, 0) >= 0 && dup2(out, 1) >= 0 && dup2(said, 2) >= 0;
    for (int i = 0; i < PASSED_MAX; i++) {
        if (passed[i] < 0)
            close(EMULATED_FIRST_PORT_FD + i);
        else
            ok = ok && dup2(high[i], EMULATED_FIRST_PORT_FD + i) >= 0;
    }
    close_range(EMULATED_FIRST_PORT_FD + PASSED_MAX, ~0u, 0);

    /* Its own session: the terminal's signals are ours to pass on, not QEMU's to die of. */
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!ok || getppid() != parent)
        _exit(127);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(args[0], args);
    static const char message[] = "cannot execute it\n";
    _exit(write(2, message, sizeof message - 1) > 0 ? 127 : 126);
}

int emulated_process_start(struct emulated_process *p, char **args,
                           const struct emulated_passed *passed, bool show_console, struct err *e)
{
    int theirs[PASSED_MAX] = {-1, -1, -1, -1, passed->gdb, passed->state, passed->monitor};
    const pid_t parent = getpid();
    for (unsigned i = 0; i < MAX_NICS; i++)
        theirs[EMULATED_NET_FD - EMULATED_FIRST_PORT_FD + i] = passed->nets[i];
    theirs[EMULATED_CONTROL_FD - EMULATED_FIRST_PORT_FD] = passed->control;
    *p = EMULATED_NO_PROCESS;
    p->said = memfd_create("qemu-stderr", MFD_CLOEXEC);
    bool ok = p->said >= 0;
    for (int i = 0; i < EMULATED_PORTS; i++) {
        int pair[2];
        ok = ok && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0;
        if (ok) {
            p->ports[i] = pair[0];
            theirs[i] = pair[1];
        }
    }
    if (ok)
        p->pid = fork();
    if (p->pid == 0)
        become_qemu(args, theirs, show_console ? STDERR_FILENO : p->said, p->said, parent);
    if (p->pid < 0)
        err_set(e, STATUS_ERROR, "cannot start the emulated KVM host: %s", strerror(errno));
    close_ports(theirs);
    return p->pid < 0 ? -1 : 0;
}

void emulated_process_stop(struct emulated_process *p)
{
    if (p->pid > 0) {
        kill(p->pid, SIGKILL);
        while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    close_ports(p->ports);
    if (p->said >= 0)
        close(p->said);
    *p = EMULATED_NO_PROCESS;
}

static uint64_t thread_starved_ns(int tasks, const char *thread)
{
    char path[300], text[100];
    uint64_t ran, starved = 0;

    snprintf(path, sizeof path, "%s/schedstat", thread);
    const int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    return sscanf(text, "%" SCNu64 " %" SCNu64, &ran, &starved) == 2 ? starved : 0;
}

uint64_t emulated_process_starved_ms(pid_t pid)
{
    char path[40];
    uint64_t ns = 0;

    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *const tasks = pid < 0 ? NULL : opendir(path);
    for (const struct dirent *entry; tasks && (entry = readdir(tasks));)
        if (entry->d_name[0] != '.')
            ns += thread_starved_ns(dirfd(tasks), entry->d_name);
    if (tasks)
        closedir(tasks);
    return ns / 1000000;
}

void emulated_process_explain(const struct emulated_process *p, struct err *e)
{
    char said[1024], quoted[512];
    struct err clause = *e;
    struct stat st;
    ssize_t n = 0;
    if (fstat(p->said, &st) == 0) {
        off_t from = st.st_size > (off_t)sizeof said ? st.st_size - (off_t)sizeof said : 0;
        n = pread(p->said, said, sizeof said, from);
    }
    emulated_quote(said, n > 0 ? (size_t)n : 0, quoted, sizeof quoted);
    if (quoted[0])
        err_set(e, STATUS_ERROR, "%s: %s", clause.text, quoted);
    else
        err_set(e, STATUS_ERROR, "%s; set " EMULATED_DEBUG_VARIABLE "=1 to see its console",
                clause.text);
}
