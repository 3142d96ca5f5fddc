#include "host/emulated_saved.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/program.h"
#include "host/emulated_process.h"
#include "host/emulated_tsc.h"

#define UNUSED_SECONDS ((time_t)7 * 24 * 60 * 60)
/* So long it is not tried again, once it was in vain. */
#define VAIN_SECONDS ((time_t)60 * 60)
#define SAVE_SECONDS 60u

/* Where saved hosts are. */
static bool cache_directory(char *out, size_t size)
{
    const char *const cache = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
    int n = -1;

    if (cache && cache[0] == '/')
        n = snprintf(out, size, "%s", cache);
    else if (home && home[0] == '/')
        n = snprintf(out, size, "%s/.cache", home);
    if (n < 0 || (size_t)n + sizeof "/dittovm" > size)
        return false;
    mkdir(out, 0700);
    memcpy(out + n, "/dittovm", sizeof "/dittovm");
    mkdir(out, 0700);
    return true;
}

/* What QEMU loads runs with our rights: nobody else may have put it there. */
static bool is_ours(int fd, mode_t type)
{
    struct stat st;

    return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == type && st.st_uid == geteuid() &&
           !(st.st_mode & 022);
}

static int open_cache(void)
{
    char path[EMULATED_PATH_MAX];

    if (!cache_directory(path, sizeof path))
        return -1;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && !is_ours(fd, S_IFDIR)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void hash_file(XXH64_state_t *h, const char *path)
{
    struct stat st = {0};
    uint64_t what[4] = {0};

    if (stat(path, &st) == 0) {
        what[0] = (uint64_t)st.st_ino;
        what[1] = (uint64_t)st.st_size;
        what[2] = (uint64_t)st.st_mtim.tv_sec;
        what[3] = (uint64_t)st.st_mtim.tv_nsec;
    }
    XXH64_update(h, what, sizeof what);
}

/* Of what must be the same: the files, and QEMU's arguments but for what is behind its devices. */
static uint64_t identity(const struct emulated_options *o, const char *qemu, unsigned tsc_step)
{
    const struct emulated_options plain = {.datadir = o->datadir,
                                           .qemu = o->qemu,
                                           .memory_mib = o->memory_mib,
                                           .tsc_khz = tsc_step * EMULATED_TSC_STEP_KHZ};
    const struct string_list none = {0};
    struct string_list args = {0};
    XXH64_state_t *const h = XXH64_createState();
    char path[EMULATED_PATH_MAX + 32];

    if (!h)
        abort();
    XXH64_reset(h, KHOST_PROTOCOL_VERSION);
    emulated_qemu_args(&plain, &none, false, &args);
    for (size_t i = 0; i < args.count; i++)
        XXH64_update(h, args.items[i], strlen(args.items[i]) + 1);
    string_list_free(&args);
    hash_file(h, qemu);
    snprintf(path, sizeof path, "%s/khost-vmlinux", o->datadir);
    hash_file(h, path);
    snprintf(path, sizeof path, "%s/khost-initrd.cpio", o->datadir);
    hash_file(h, path);
    const uint64_t hash = XXH64_digest(h);
    XXH64_freeState(h);
    return hash;
}

#define NAME_BYTES 64
#define MORE_BYTES (NAME_BYTES + 8) /* with what is added */

/*
 * The names of a host that fits: of the two steps that the frequency may be in. False: none can
 * fit.
 */
static bool saved_names(const struct emulated_options *o, char names[2][NAME_BYTES])
{
    unsigned steps[2];
    char qemu[EMULATED_PATH_MAX];

    if (!emulated_tsc_steps(o->tsc_khz, steps) || getenv(EMULATED_DEBUG_VARIABLE) ||
        !program_find(o->qemu, qemu, sizeof qemu))
        return false;
    for (int i = 0; i < 2; i++)
        snprintf(names[i], NAME_BYTES, "host-%uM-%016llx", o->memory_mib,
                 (unsigned long long)identity(o, qemu, steps[i]));
    return true;
}

/* That it was tried in vain is an empty file beside it. */
static void vain_name(char out[MORE_BYTES], const char *name)
{
    snprintf(out, MORE_BYTES, "%s.vain", name);
}

static void note_vain(int cache, const char *name)
{
    char vain[MORE_BYTES];

    vain_name(vain, name);
    const int fd = openat(cache, vain, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        futimens(fd, NULL);
        close(fd);
    }
}

static bool was_in_vain(int cache, const char *name)
{
    char vain[MORE_BYTES];
    struct stat st;

    vain_name(vain, name);
    return fstatat(cache, vain, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           time(NULL) - st.st_mtim.tv_sec < VAIN_SECONDS;
}

static void remove_unused(int cache)
{
    DIR *const d = fdopendir(dup(cache));
    const struct dirent *entry;
    struct stat st;

    while (d && (entry = readdir(d)))
        if (strncmp(entry->d_name, "host-", 5) == 0 &&
            fstatat(cache, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            time(NULL) - st.st_mtim.tv_sec > UNUSED_SECONDS)
            unlinkat(cache, entry->d_name, 0);
    if (d)
        closedir(d);
}

/* Reads what comes: until `until` is among it, or, where that is NULL, up to its end. False: it
 * ended before, or took longer. */
static bool wait_for(int fd, const char *until, char *text, size_t size, unsigned seconds)
{
    size_t length = 0;

    for (unsigned waited = 0; length + 1 < size && waited < seconds;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        const int ready = poll(&p, 1, 1000);
        waited += ready == 0;
        if (ready <= 0)
            continue;
        const ssize_t n = read(fd, text + length, size - 1 - length);
        if (n <= 0)
            return !until;
        length += (size_t)n;
        text[length] = '\0';
        if (until && strstr(text, until))
            return true;
    }
    return false;
}

#define TEXT(x)    #x
#define AS_TEXT(x) TEXT(x)

/* QEMU's monitor is behind this socket: has the machine written to EMULATED_STATE_FD of QEMU's. */
static bool save_by_monitor(int monitor)
{
    static const char commands[] =
        "migrate_set_parameter max-bandwidth 64G\n"
        "migrate \"exec:cat >/proc/$PPID/fd/" AS_TEXT(EMULATED_STATE_FD) "\"\n"
                                                                         "info migrate\nquit\n";
    char text[16384];

    return send(monitor, commands, sizeof commands - 1, MSG_NOSIGNAL) ==
               (ssize_t)sizeof commands - 1 &&
           wait_for(monitor, NULL, text, sizeof text, SAVE_SECONDS) && strstr(text, "completed");
}

/* Starts a host and has it saved once its agent waits for the request. */
static bool save(const struct emulated_options *o, int state, unsigned start_seconds)
{
    struct emulated_options plain = *o;
    const struct string_list none = {0};
    struct string_list args = {0};
    struct emulated_process host = EMULATED_NO_PROCESS;
    char up[32], text[512];
    int monitor[2];
    struct err e = {0};

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, monitor) != 0)
        return false;
    plain.forward_count = 0;
    plain.gdb = plain.control = false;
    emulated_qemu_args(&plain, &none, false, &args);
    string_list_add(&args, "-chardev");
    string_list_add(&args, "socket,id=monitor,fd=%d", EMULATED_MONITOR_FD);
    string_list_add(&args, "-mon");
    string_list_add(&args, "chardev=monitor,mode=readline");
    snprintf(up, sizeof up, "R %u\n", KHOST_PROTOCOL_VERSION);
    struct emulated_passed passed = EMULATED_PASSED_NONE;
    passed.state = state;
    passed.monitor = monitor[1];
    const bool started = emulated_process_start(&host, args.items, &passed, false, &e) == 0;
    close(monitor[1]);
    const bool saved = started && wait_for(host.ports[0], "\n", text, sizeof text, start_seconds) &&
                       strcmp(text, up) == 0 && save_by_monitor(monitor[0]) &&
                       fdatasync(state) == 0;
    emulated_process_stop(&host);
    close(monitor[0]);
    string_list_free(&args);
    return saved;
}

/* Whether the file still has this name: another maker may have finished it since it was opened. */
static bool is_at(int cache, const char *name, int fd)
{
    struct stat here, there;

    return fstat(fd, &here) == 0 && fstatat(cache, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/* One maker at a time: whoever comes meanwhile starts a host as if there were none to be saved. */
static void make(int cache, const char *name, const struct emulated_options *o,
                 unsigned start_seconds)
{
    char unfinished[MORE_BYTES];

    snprintf(unfinished, sizeof unfinished, "%s.new", name);
    const int fd =
        openat(cache, unfinished, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (is_ours(fd, S_IFREG) && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_at(cache, unfinished, fd)) {
        if (isatty(STDERR_FILENO))
            fprintf(stderr, "dittovm: preparing the emulated KVM host, once\n");
        if (ftruncate(fd, 0) == 0 && save(o, fd, start_seconds)) {
            renameat(cache, unfinished, cache, name);
        } else {
            unlinkat(cache, unfinished, 0);
            note_vain(cache, name);
        }
    }
    close(fd);
}

static int open_saved(int cache, const char *name)
{
    const int fd = openat(cache, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0 && !is_ours(fd, S_IFREG)) {
        close(fd);
        return -1;
    }
    if (fd >= 0)
        futimens(fd, NULL); /* when it was used last */
    return fd;
}

int emulated_saved_open(const struct emulated_options *o, const struct string_list *rw_dirs,
                        unsigned start_seconds)
{
    char names[2][NAME_BYTES];

    if (rw_dirs->count > EMULATED_RW_DIRS_LEAST || !saved_names(o, names))
        return -1;
    const int cache = open_cache();
    if (cache < 0)
        return -1;
    remove_unused(cache);
    int fd = open_saved(cache, names[0]);
    if (fd < 0)
        fd = open_saved(cache, names[1]);
    if (fd < 0 && !was_in_vain(cache, names[0])) {
        make(cache, names[0], o, start_seconds);
        fd = open_saved(cache, names[0]);
    }
    close(cache);
    return fd;
}

void emulated_saved_give_up(const struct emulated_options *o)
{
    char names[2][NAME_BYTES];
    const int cache = open_cache();

    for (int i = 0; cache >= 0 && saved_names(o, names) && i < 2; i++) {
        unlinkat(cache, names[i], 0);
        note_vain(cache, names[i]);
    }
    if (cache >= 0)
        close(cache);
}
