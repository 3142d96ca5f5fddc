#include "host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/deaf_thread.h"
#include "config.h"
#include "host/doctor/doctor.h"
#include "host/emulated.h"
#include "host/emulated_tsc.h"
#include "host/gdb_listen.h"
#include "host/host_control.h"
#include "host/host_net.h"
#include "host/vmx.h"
#include "recording/reader.h"
#include "recording/writer.h"

/* What the emulated host needs besides the guest's memory: its own kernel, the file cache of the
 * shared root, dittovm and the recorder's buffers. */
#define EMULATED_OWN_MIB 1024
/* In steps, so that the same saved host serves guests of many sizes. */
#define EMULATED_STEP_MIB 512

/* "0": the QEMU of `make khost-qemu` does not store what real CPUs store
 * (guest-tools/khost-qemu/stores.patch). */
#define QEMU_STORES_AS_CPUS "QEMU_STORES_AS_CPUS"

static unsigned emulated_memory_mib(uint64_t guest_bytes)
{
    const uint64_t needed = (guest_bytes >> 20) + EMULATED_OWN_MIB;

    return (unsigned)((needed + EMULATED_STEP_MIB - 1) / EMULATED_STEP_MIB * EMULATED_STEP_MIB);
}

static bool cpu_virtualizes(void)
{
    char line[8192];
    FILE *f = fopen("/proc/cpuinfo", "r");
    bool found = false;

    while (f && !found && fgets(line, sizeof line, f)) {
        if (strncmp(line, "flags", 5))
            continue;
        size_t len = strlen(line);
        if (len && line[len - 1] == '\n')
            line[len - 1] = ' ';
        found = strstr(line, " vmx ") || strstr(line, " svm ");
        break;
    }
    if (f)
        fclose(f);
    return found;
}

bool host_has_kvm(void)
{
    return cpu_virtualizes() && access("/dev/kvm", F_OK) == 0;
}

const char *host_data_dir(const struct invocation *inv)
{
    static char beside[PATH_MAX + 16];
    const char *chosen = getenv("DITTO_DATADIR");
    const char *slash = strrchr(inv->self, '/');
    struct stat st;

    if (chosen)
        return chosen;
    if (slash) {
        snprintf(beside, sizeof beside, "%.*s/build/khost", (int)(slash - inv->self), inv->self);
        if (stat(beside, &st) == 0)
            return beside;
    }
    return DITTO_DATADIR;
}

/* The directory that a file is in, or is to be in, without links. False: there is none. */
static bool real_directory_of(const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    char directory[PATH_MAX];

    if (!slash)
        snprintf(directory, sizeof directory, ".");
    else if (slash == path)
        snprintf(directory, sizeof directory, "/");
    else
        snprintf(directory, sizeof directory, "%.*s", (int)(slash - path), path);
    return realpath(directory, out) != NULL;
}

/* The socket is made here, so that a port that is taken, or any free one, is found before QEMU
 * starts; the command inside says its name when it is ready (gdb_open()). */
static int listen_for_gdb(struct gdb_listener *l, const char *where,
                          struct emulated_options *options, struct err *e)
{
    if (gdb_listen(l, where, e) < 0)
        return -1;
    setenv(GDB_NAME_VARIABLE, l->name, 1);
    options->gdb = true;
    options->gdb_fd = l->fd;
    return 0;
}

/* What NICs are connected to is on this host, also for a machine inside: so a forwarded port is the
 * user's own. */
static int open_nets(const struct host_needs *needs, struct emulated_options *options,
                     struct err *e)
{
    for (; options->net_count < needs->net_count; options->net_count++)
        if (host_net_open(&needs->nets[options->net_count], options->net_count,
                          &options->net_fds[options->net_count], e) < 0)
            return -1;
    return 0;
}

static void close_nets(const struct emulated_options *options)
{
    for (unsigned i = 0; i < options->net_count; i++)
        if (options->net_fds[i] >= 0)
            close(options->net_fds[i]);
}

/* The control socket is the user's own, too. */
static void open_control(const struct host_needs *needs, struct emulated_options *options,
                         struct host_control *control)
{
    *control = (struct host_control){.fd = -1};
    unsetenv(HOST_CONTROL_VARIABLE);
    if (needs->recording)
        host_control_open(control, needs->recording);
    options->control = control->fd >= 0;
    options->control_fd = control->fd;
    if (options->control)
        setenv(HOST_CONTROL_VARIABLE, "1", 1);
}

static void close_control(struct host_control *control)
{
    if (control->fd >= 0)
        close(control->fd);
    host_control_close(control);
}

/*
 * Locks do not come out of the emulated host, so the recording's is held here, from when the file
 * is there until this process ends.
 */
#define LOOK_US 50000

static void *lock_when_there(void *path)
{
    int fd;

    while ((fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0)
        usleep(LOOK_US);
    flock(fd, LOCK_EX); /* somebody may be looking at it just now */
    return NULL;
}

/* 1: the lock is ours until this process ends; 0: another dittovm has it; -1: there is no file. */
static int take_lock(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return 1;
    close(fd);
    return 0;
}

static int hold_lock(const char *path, struct err *e)
{
    const int taken = take_lock(path);
    pthread_t thread;
    if (taken > 0)
        return 0;
    if (taken == 0)
        return err_set(e, STATUS_ERROR, "%s is being written by another recorder; give another -o",
                       path);
    int error = deaf_thread_create(&thread, lock_when_there, (void *)(uintptr_t)path);
    if (error)
        return err_set(e, STATUS_ERROR, "cannot start a thread: %s", strerror(error));
    pthread_detach(thread);
    return 0;
}

static int run_emulated(const struct invocation *inv, const struct host_needs *needs, struct err *e)
{
    const char *const datadir = host_data_dir(inv);
    char dirs[2 + MAX_DISKS][PATH_MAX], qemu[EMULATED_PATH_MAX];
    const char *rw[2 + MAX_DISKS];
    struct gdb_listener listener = {.fd = -1};
    struct host_control control;
    unsigned count = 0;

    for (unsigned i = 0; i < needs->write_path_count; i++) {
        if (real_directory_of(needs->write_paths[i], dirs[count])) {
            rw[count] = dirs[count];
            count++;
        }
    }
    struct emulated_options options = {
        .datadir = datadir,
        .qemu = emulated_qemu(datadir, qemu),
        .memory_mib = emulated_memory_mib(needs->guest_memory),
        .tsc_khz = emulated_tsc_khz(),
        .rw_dirs = rw,
        .rw_dir_count = count,
    };
    if (emulated_available(datadir, e) < 0 ||
        (needs->gdb && listen_for_gdb(&listener, needs->gdb, &options, e) < 0))
        return -1;
    if (needs->frame_rf != FRAME_RF_UNKNOWN)
        setenv(QEMU_STORES_AS_CPUS, needs->frame_rf == FRAME_RF_NONE ? "0" : "1", 1);
    if (needs->in_progress) { /* also while the command runs, as far as it can know */
        setenv(RECORDING_IN_PROGRESS_VARIABLE, "1", 1);
        setenv(RECORDING_TAKEN_VARIABLE, "1", 1);
    }
    if (needs->added_to && take_lock(needs->added_to) == 0)
        setenv(RECORDING_TAKEN_VARIABLE, "1", 1);
    if ((needs->hand_in && needs->hand_in(needs->handed, e) < 0) ||
        (needs->recording && hold_lock(needs->recording, e) < 0) ||
        open_nets(needs, &options, e) < 0) {
        close_nets(&options);
        gdb_listener_close(&listener);
        return -1;
    }
    fprintf(stderr, "dittovm: running in the emulated KVM host (%s)\n",
            inv->host == HOST_EMULATED ? "as asked for" : "this CPU offers no VMX or SVM");
    inv->argv[0] = (char *)inv->self;
    open_control(needs, &options, &control);
    int rc = emulated_run(&options, inv->argv, e);
    close_control(&control);
    close_nets(&options);
    gdb_listener_close(&listener);
    return rc;
}

static int run_vmx(const struct invocation *inv, const struct host_needs *needs, struct err *e)
{
    const char *const datadir = host_data_dir(inv);

    if (needs->gdb || needs->net_count)
        return err_set(e, STATUS_ERROR,
                       "nothing reaches into the emulated Intel host: no --gdb and no --net there");
    for (unsigned i = 0; i < needs->write_path_count; i++) {
        char directory[PATH_MAX], here[PATH_MAX];
        if (!real_directory_of(needs->write_paths[i], directory) || !getcwd(here, sizeof here) ||
            strcmp(directory, here) != 0)
            return err_set(e, STATUS_ERROR,
                           "nothing but the current directory comes back from the emulated Intel "
                           "host: go to the one of %s first",
                           needs->write_paths[i]);
    }
    if (vmx_available(datadir, e) < 0)
        return -1;
    fputs("dittovm: running in the emulated Intel host (as asked for)\n", stderr);
    inv->argv[0] = (char *)inv->self;
    return vmx_run(datadir, emulated_memory_mib(needs->guest_memory), inv->argv, e);
}

bool host_redirect(const struct invocation *inv, const struct host_needs *needs, int *status,
                   struct err *e)
{
    if (getenv(EMULATED_INSIDE_VARIABLE))
        return false;
    if (inv->host == HOST_NATIVE || (inv->host == HOST_AUTO && host_has_kvm())) {
        if (doctor_quick_check(e) == 0)
            return false;
        *status = (int)e->status;
        return true;
    }
    const int rc = inv->host == HOST_VMX ? run_vmx(inv, needs, e) : run_emulated(inv, needs, e);
    *status = rc < 0 ? (int)e->status : rc;
    return true;
}
