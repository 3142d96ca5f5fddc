#include "host/emulated.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/program.h"
#include "host/emulated_args.h"
#include "host/emulated_process.h"
#include "host/emulated_relay.h"
#include "host/emulated_saved.h"

#define QEMU "qemu-system-x86_64"
/* The host is given so long to start, then twice as long, and once more. */
#define START_SECONDS_FIRST 30u
#define START_SECONDS_LAST  (4 * START_SECONDS_FIRST)
/* A host that has started and says nothing for so long hangs. */
#define SILENT_SECONDS 60

const char *emulated_qemu(const char *datadir, char path[EMULATED_PATH_MAX])
{
    const int length = snprintf(path, EMULATED_PATH_MAX, "%s/" QEMU, datadir);

    return length < (int)EMULATED_PATH_MAX && access(path, X_OK) == 0 ? path : QEMU;
}

int emulated_available(const char *datadir, struct err *e)
{
    static const char *const files[] = {"khost-vmlinux", "khost-initrd.cpio"};
    char path[EMULATED_PATH_MAX], file[EMULATED_PATH_MAX];
    if (!program_find(emulated_qemu(datadir, path), file, sizeof file))
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

/*
 * One start of the host, or of the saved one with `from_saved`, with a command in it. A saved one
 * that QEMU cannot use is given up.
 */
static enum relay_end run_once(const struct emulated_options *o, const struct emulated_request *r,
                               const struct string_list *rw_dirs, bool from_saved,
                               unsigned start_seconds, int *status, struct err *e)
{
    const bool debug = getenv(EMULATED_DEBUG_VARIABLE) != NULL;
    const int saved = from_saved ? emulated_saved_open(o, rw_dirs, start_seconds) : -1;
    struct emulated_passed passed = EMULATED_PASSED_NONE;
    struct string_list args = {0};
    struct emulated_process host = EMULATED_NO_PROCESS;
    enum relay_end end = RELAY_FAILED;
    sigset_t old;

    passed.gdb = o->gdb ? o->gdb_fd : -1;
    passed.state = saved;
    for (unsigned i = 0; i < o->net_count; i++)
        passed.nets[i] = o->net_fds[i];
    passed.control = o->control ? o->control_fd : -1;
    emulated_qemu_args(o, rw_dirs, debug, &args);
    if (saved >= 0) {
        string_list_add(&args, "-incoming");
        string_list_add(&args, "exec:cat /proc/$PPID/fd/%d", EMULATED_STATE_FD);
    }
    int signals = take_signals(&old);
    if (signals < 0) {
        err_set(e, STATUS_ERROR, "signalfd: %s", strerror(errno));
    } else if (emulated_process_start(&host, args.items, &passed, debug, e) == 0) {
        end = emulated_relay(host.ports, host.pid, signals, r, saved >= 0, start_seconds,
                             SILENT_SECONDS, status, e);
        if (end == RELAY_SILENCE || end == RELAY_NOT_STARTED || end == RELAY_NOT_SAVED)
            emulated_process_explain(&host, e);
    }
    emulated_process_stop(&host);
    if (signals >= 0)
        close(signals);
    sigprocmask(SIG_SETMASK, &old, NULL);
    string_list_free(&args);
    if (saved >= 0)
        close(saved);
    if (saved >= 0 && (end == RELAY_NOT_SAVED || end == RELAY_NOT_STARTED))
        emulated_saved_give_up(o);
    return end;
}

/* It starts in 3 s; the later tries are for a machine that is busy with something else. */
static int run_with(const struct emulated_options *o, const struct emulated_request *r,
                    const struct string_list *rw_dirs, struct err *e)
{
    int status = -1;
    bool first = true;

    for (unsigned start_seconds = START_SECONDS_FIRST;; start_seconds *= 2, first = false) {
        switch (run_once(o, r, rw_dirs, first, start_seconds, &status, e)) {
        case RELAY_EXITED:
        case RELAY_SIGNAL:
            return status;
        case RELAY_NOT_STARTED:
        case RELAY_NOT_SAVED:
            if (start_seconds >= START_SECONDS_LAST)
                return -1;
            fprintf(stderr, "dittovm: %s; starting it again\n", e->text);
            *e = (struct err){0};
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
        if (o->net_count)
            r.flags |= KHOST_NET;
        if (o->control)
            r.flags |= KHOST_CONTROL;
        status = run_with(o, &r, &rw_dirs, e);
    }
    string_list_free(&rw_dirs);
    free(cwd);
    return status;
}
