#include "host/emulated_saved.h"

#include <dirent.h>
#include <errno.h>
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

#include "host/emulated_process.h"

#define UNUSED_SECONDS ((time_t)7 * 24 * 60 * 60)
#define SAVE_SECONDS   60u

/* Where it is, with room for what is added to the name. */
struct saved_path {
    char directory[EMULATED_PATH_MAX], file[EMULATED_PATH_MAX + 64], more[EMULATED_PATH_MAX + 80];
};

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
    return access(out, W_OK) == 0;
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

/*
 * Of what must be the same: the files, QEMU's arguments but for what is behind its devices, and the
 * frequency of the TSC, which measures a little differently each time (to the MHz).
 */
static uint64_t identity(const struct emulated_options *o, const char *qemu)
{
    const struct emulated_options plain = {.datadir = o->datadir,
                                           .qemu = o->qemu,
                                           .memory_mib = o->memory_mib,
                                           .tsc_khz = (o->tsc_khz + 500) / 1000 * 1000};
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

static bool find_path(const struct emulated_options *o, struct saved_path *p)
{
    char qemu[EMULATED_PATH_MAX];

    if (!o->tsc_khz || getenv(EMULATED_DEBUG_VARIABLE) ||
        !emulated_find_program(o->qemu, qemu, sizeof qemu) ||
        !cache_directory(p->directory, sizeof p->directory))
        return false;
    snprintf(p->file, sizeof p->file, "%s/host-%uM-%016llx", p->directory, o->memory_mib,
             (unsigned long long)identity(o, qemu));
    return true;
}

static void remove_unused(const char *directory)
{
    DIR *const d = opendir(directory);
    const struct dirent *entry;
    struct stat st;

    while (d && (entry = readdir(d)))
        if (strncmp(entry->d_name, "host-", 5) == 0 &&
            fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && time(NULL) - st.st_mtim.tv_sec > UNUSED_SECONDS)
            unlinkat(dirfd(d), entry->d_name, 0);
    if (d)
        closedir(d);
}

enum waiting { WAITING_SEEN, WAITING_ENDED, WAITING_TOO_LONG };

/* Reads what comes, until `until` is among it; where that is NULL, all of it. */
static enum waiting wait_for(int fd, const char *until, char *text, size_t size, unsigned seconds)
{
    const time_t began = time(NULL);
    size_t length = 0;

    while (length + 1 < size && time(NULL) - began < (time_t)seconds) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 1000) <= 0)
            continue;
        const ssize_t n = read(fd, text + length, size - 1 - length);
        if (n <= 0)
            return until ? WAITING_ENDED : WAITING_SEEN;
        length += (size_t)n;
        text[length] = '\0';
        if (until && strstr(text, until))
            return WAITING_SEEN;
    }
    return WAITING_TOO_LONG;
}

/* Gives QEMU's monitor the descriptor to write to, and the commands that do it. */
static bool send_commands(int monitor, int state)
{
    static const char commands[] = "getfd state\nmigrate_set_parameter max-bandwidth 64G\n"
                                   "migrate fd:state\ninfo migrate\nquit\n";
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof state)];
    } control = {.header = {.cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS,
                            .cmsg_len = CMSG_LEN(sizeof state)}};
    struct iovec data = {.iov_base = (char *)commands, .iov_len = sizeof commands - 1};
    const struct msghdr message = {.msg_iov = &data,
                                   .msg_iovlen = 1,
                                   .msg_control = &control,
                                   .msg_controllen = sizeof control.space};

    memcpy(CMSG_DATA(&control.header), &state, sizeof state);
    return sendmsg(monitor, &message, MSG_NOSIGNAL) == (ssize_t)data.iov_len;
}

enum saving {
    SAVING_DONE,
    SAVING_LATER, /* the machine is too busy now */
    SAVING_NEVER  /* this QEMU cannot */
};

/* Starts a host and has it saved once its agent waits for the request. */
static enum saving save(const struct emulated_options *o, int state, unsigned start_seconds)
{
    struct emulated_options plain = *o;
    const struct string_list none = {0};
    struct string_list args = {0};
    struct emulated_process host = EMULATED_NO_PROCESS;
    enum waiting up = WAITING_ENDED, all = WAITING_ENDED;
    char text[16384];
    int monitor[2];
    struct err e = {0};

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, monitor) != 0)
        return SAVING_LATER;
    plain.forward_count = 0;
    plain.gdb = false;
    emulated_qemu_args(&plain, &none, false, &args);
    string_list_add(&args, "-chardev");
    string_list_add(&args, "socket,id=monitor,fd=%d", EMULATED_STATE_FD);
    string_list_add(&args, "-mon");
    string_list_add(&args, "chardev=monitor,mode=readline");
    const bool started = emulated_process_start(&host, args.items, -1, monitor[1], false, &e) == 0;
    close(monitor[1]);
    if (started)
        up = wait_for(host.ports[0], "\n", text, sizeof text, start_seconds);
    if (up == WAITING_SEEN && send_commands(monitor[0], state))
        all = wait_for(monitor[0], NULL, text, sizeof text, SAVE_SECONDS);
    emulated_process_stop(&host);
    close(monitor[0]);
    string_list_free(&args);
    if (up == WAITING_TOO_LONG || all == WAITING_TOO_LONG)
        return SAVING_LATER;
    return all == WAITING_SEEN && strstr(text, "Migration status: completed") ? SAVING_DONE
                                                                              : SAVING_NEVER;
}

/* An empty file says that this QEMU cannot. Under the lock of the directory. */
static void make(const struct emulated_options *o, struct saved_path *p, unsigned start_seconds)
{
    snprintf(p->more, sizeof p->more, "%s.new", p->file);
    const int fd = open(p->more, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    remove_unused(p->directory);
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "dittovm: preparing the emulated KVM host, once\n");
    const enum saving end = save(o, fd, start_seconds);
    if (end == SAVING_LATER || (end == SAVING_NEVER && ftruncate(fd, 0) != 0))
        unlink(p->more);
    else
        rename(p->more, p->file);
    close(fd);
}

/* A saved host's file; -1 where there is none. Its time is when it was used last. */
static int open_used(const char *file)
{
    const int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd >= 0)
        futimens(fd, NULL);
    return fd;
}

int emulated_saved_open(const struct emulated_options *o, const struct string_list *rw_dirs,
                        unsigned start_seconds)
{
    struct saved_path p;
    struct stat st;

    if (rw_dirs->count > EMULATED_RW_DIRS_LEAST || !find_path(o, &p))
        return -1;
    int fd = open_used(p.file);
    if (fd < 0) {
        const int lock = open(p.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (lock < 0 || flock(lock, LOCK_EX) != 0)
            return -1;
        /* Whoever held the lock may have made it. */
        if (access(p.file, F_OK) != 0)
            make(o, &p, start_seconds);
        close(lock);
        fd = open_used(p.file);
    }
    if (fd >= 0 && (fstat(fd, &st) != 0 || st.st_size == 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

void emulated_saved_give_up(const struct emulated_options *o)
{
    struct saved_path p;

    if (find_path(o, &p) && truncate(p.file, 0) != 0)
        unlink(p.file);
}
