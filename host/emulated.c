#include "host/emulated.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/emulated_args.h"
#include "host/emulated_relay.h"

#define QEMU  "qemu-system-x86_64"
#define PORTS 4
/* And one more descriptor for QEMU, at EMULATED_GDB_FD, if gdb is to be waited for. */
#define PASSED_MAX (PORTS + 1)
/* The host is given 30 s to start, then 60, then so long. */
#define START_SECONDS_LAST 60u

static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    char *dirs = strdup(path ? path : "/usr/bin:/bin"), *rest = dirs, *dir, file[4096];
    bool found = false;
    while (!found && (dir = strsep(&rest, ":"))) {
        snprintf(file, sizeof file, "%s/%s", *dir ? dir : ".", program);
        found = access(file, X_OK) == 0;
    }
    free(dirs);
    return found;
}

const char *emulated_qemu(const char *datadir, char path[EMULATED_PATH_MAX])
{
    const int length = snprintf(path, EMULATED_PATH_MAX, "%s/" QEMU, datadir);

    return length < (int)EMULATED_PATH_MAX && access(path, X_OK) == 0 ? path : QEMU;
}

int emulated_available(const char *datadir, struct err *e)
{
    static const char *const files[] = {"khost-vmlinux", "khost-initrd.cpio"};
    char path[EMULATED_PATH_MAX];
    if (emulated_qemu(datadir, path) != path && !in_path(QEMU))
        return err_set(e, STATUS_ERROR,
                       "the emulated KVM host needs qemu-system-x86_64, which is not in PATH; run "
                       "'apt-get install qemu-system-x86'");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", datadir, files[i]);
        if (access(path, R_OK) != 0)
            return err_set(e, STATUS_ERROR,
                           "the emulated KVM host's file %s cannot be read (%s); run 'make khost'",
                           path, strerror(errno));
    }
    return 0;
}

/* One running QEMU. */
struct host {
    pid_t pid;
    int ports[PORTS]; /* our ends */
    int said;         /* what QEMU wrote to stderr: an unnamed file, nothing to clean up */
};

static void close_ports(const int ports[PORTS])
{
    for (int i = 0; i < PORTS; i++)
        if (ports[i] >= 0)
            close(ports[i]);
}

/* In the child, only async-signal-safe calls. */
static _Noreturn void become_qemu(char **args, const int *passed, int count, int out, int said,
                                  pid_t parent)
{
    int high[PASSED_MAX + 2];
    sigset_t none;
    sigemptyset(&none);
    /* First out of the way of the numbers they get, then to them. */
    for (int i = 0; i < count; i++)
        high[i] = fcntl(passed[i], F_DUPFD, 64);
    high[count] = fcntl(out, F_DUPFD, 64);
    high[count + 1] = fcntl(said, F_DUPFD, 64);
    int null = open("/dev/null", O_RDONLY);
    bool ok = null >= 0 && dup2(null, 0) >= 0 && dup2(high[count], 1) >= 0 &&
              dup2(high[count + 1], 2) >= 0;
    for (int i = 0; i < count; i++)
        ok = ok && dup2(high[i], EMULATED_FIRST_PORT_FD + i) >= 0;
    close_range((unsigned)(EMULATED_FIRST_PORT_FD + count), ~0u, 0);

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

static int start_host(char **args, const struct emulated_options *o, bool show_console,
                      struct host *h, struct err *e)
{
    int theirs[PASSED_MAX] = {-1, -1, -1, -1, o->gdb ? o->gdb_fd : -1};
    pid_t parent = getpid();
    h->pid = -1;
    h->said = memfd_create("qemu-stderr", MFD_CLOEXEC);
    bool ok = h->said >= 0;
    for (int i = 0; i < PORTS; i++) {
        int pair[2];
        h->ports[i] = -1;
        ok = ok && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0;
        if (ok) {
            h->ports[i] = pair[0];
            theirs[i] = pair[1];
        }
    }
    if (ok)
        h->pid = fork();
    if (h->pid == 0)
        become_qemu(args, theirs, o->gdb ? PASSED_MAX : PORTS,
                    show_console ? STDERR_FILENO : h->said, h->said, parent);
    if (h->pid < 0)
        err_set(e, STATUS_ERROR, "cannot start the emulated KVM host: %s", strerror(errno));
    close_ports(theirs);
    return h->pid < 0 ? -1 : 0;
}

/* Everything the command wrote is in the outer kernel's hands already: no need to be polite. */
static void stop_host(struct host *h)
{
    if (h->pid > 0) {
        kill(h->pid, SIGKILL);
        while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    close_ports(h->ports);
    if (h->said >= 0)
        close(h->said);
}

/* Complete "the emulated host ended ..." by what QEMU said, or by how to see more. */
static void explain(const struct host *h, struct err *e)
{
    char said[1024], quoted[512];
    struct err clause = *e;
    struct stat st;
    ssize_t n = 0;
    if (fstat(h->said, &st) == 0) {
        off_t from = st.st_size > (off_t)sizeof said ? st.st_size - (off_t)sizeof said : 0;
        n = pread(h->said, said, sizeof said, from);
    }
    emulated_quote(said, n > 0 ? (size_t)n : 0, quoted, sizeof quoted);
    if (quoted[0])
        err_set(e, STATUS_ERROR, "%s: %s", clause.text, quoted);
    else
        err_set(e, STATUS_ERROR, "%s; set " EMULATED_DEBUG_VARIABLE "=1 to see its console",
                clause.text);
}

static int collect_rw_dirs(const struct emulated_options *o, const char *cwd,
                           struct string_list *dirs, struct err *e)
{
    if (emulated_add_rw_dir(dirs, cwd, e) != 0)
        return -1;
    for (size_t i = 0; i < o->rw_dir_count; i++) {
        char *real = realpath(o->rw_dirs[i], NULL);
        if (!real)
            return err_set(e, STATUS_ERROR, "directory %s: %s", o->rw_dirs[i], strerror(errno));
        int rc = emulated_add_rw_dir(dirs, real, e);
        free(real);
        if (rc != 0)
            return -1;
    }
    return 0;
}

static void describe_caller(struct emulated_request *r)
{
    static gid_t groups[1024];
    int count = getgroups(sizeof groups / sizeof groups[0], groups);
    bool tty = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    r->flags = tty ? KHOST_TTY_STDIO : 0;
    if (tty && isatty(STDERR_FILENO))
        r->flags |= KHOST_TTY_STDERR;
    r->uid = geteuid();
    r->gid = getegid();
    r->umask = umask(0);
    umask(r->umask);
    r->groups = groups;
    r->group_count = count > 0 ? (size_t)count : 0;
    if (getrandom(r->seed, sizeof r->seed, 0) != sizeof r->seed)
        memset(r->seed, 0, sizeof r->seed);
}

/* Blocks the signals to pass on and returns a descriptor to read them from. */
static int take_signals(sigset_t *old)
{
    static const int passed_on[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof passed_on / sizeof passed_on[0]; i++)
        sigaddset(&set, passed_on[i]);
    sigprocmask(SIG_BLOCK, &set, old);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* One start of the host, with a command in it. */
static enum relay_end run_once(const struct emulated_options *o, const struct emulated_request *r,
                               const struct string_list *rw_dirs, unsigned start_seconds,
                               int *status, struct err *e)
{
    bool debug = getenv(EMULATED_DEBUG_VARIABLE) != NULL;
    struct string_list args = {0};
    struct host host = {.pid = -1, .ports = {-1, -1, -1, -1}, .said = -1};
    enum relay_end end = RELAY_FAILED;
    sigset_t old;

    emulated_qemu_args(o, rw_dirs, debug, &args);
    int signals = take_signals(&old);
    if (signals < 0) {
        err_set(e, STATUS_ERROR, "signalfd: %s", strerror(errno));
    } else if (start_host(args.items, o, debug, &host, e) == 0) {
        end = emulated_relay(host.ports, signals, r, start_seconds, status, e);
        if (end == RELAY_SILENCE || end == RELAY_NOT_STARTED)
            explain(&host, e);
    }
    stop_host(&host);
    if (signals >= 0)
        close(signals);
    sigprocmask(SIG_SETMASK, &old, NULL);
    string_list_free(&args);
    return end;
}

/* It starts in 3 s; the later tries are for a machine that is busy with something else. */
static int run_with(const struct emulated_options *o, const struct emulated_request *r,
                    const struct string_list *rw_dirs, struct err *e)
{
    int status = -1;

    for (unsigned start_seconds = 30;; start_seconds *= 2) {
        switch (run_once(o, r, rw_dirs, start_seconds, &status, e)) {
        case RELAY_EXITED:
        case RELAY_SIGNAL:
            return status;
        case RELAY_NOT_STARTED:
            if (start_seconds > START_SECONDS_LAST)
                return -1;
            fprintf(stderr, "dittovm: %s; starting it again\n", e->text);
            break;
        case RELAY_FAILED:
        case RELAY_SILENCE:
            return -1;
        }
    }
}

/* A closed standard stream must not come back as one of our own descriptors. */
static void open_missing_stdio(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
        continue;
    if (fd >= 0)
        close(fd);
}

int emulated_run(const struct emulated_options *o, char **argv, struct err *e)
{
    struct string_list rw_dirs = {0};
    struct emulated_request r = {.env = environ, .argv = argv};
    int status = -1;
    open_missing_stdio();
    char *cwd = getcwd(NULL, 0);
    if (!cwd || cwd[0] != '/')
        err_set(e, STATUS_ERROR, "the working directory cannot be found: %s; change to another",
                strerror(errno));
    else if (collect_rw_dirs(o, cwd, &rw_dirs, e) == 0) {
        r.cwd = cwd;
        r.rw_dirs = rw_dirs.items;
        describe_caller(&r);
        if (o->gdb)
            r.flags |= KHOST_GDB;
        status = run_with(o, &r, &rw_dirs, e);
    }
    string_list_free(&rw_dirs);
    free(cwd);
    return status;
}
