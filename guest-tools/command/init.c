/*
 * The init of a machine that runs one command (dittovm run --root): it finds the root disk, makes
 * it the root, runs the command there, and carries its streams and its status to the outside
 * (base/command_protocol.h). The machine ends with the command.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/command_protocol.h"

#define BELL        "/dev/ttyS0"
#define DISK_WAIT_S 10
/* How often input is looked for where the console's line rings no bell. */
#define NO_BELL_MS 100
#define FILE_STEP  65536u
/* What a pipe holds, or a terminal. */
#define DRAIN_MAX ((64 + 12) * 1024)

struct request {
    bool terminal, user_net;
    struct winsize size;
    char *cwd, *term;
    char **argv;
};

/* ---- the device ---- */

/* What the machine reads and writes: a box and its data, in pages that stay where they are. */
static struct pages {
    union {
        struct command_box box;
        uint8_t box_page[COMMAND_PAGE];
    };
    uint8_t data[COMMAND_DATA_MAX];
} * pages;
static uint32_t box_frame;
static volatile uint32_t *registers; /* the device's */

static void call(enum command_call what, uint32_t value)
{
    registers[COMMAND_CALL / 4] = (uint32_t)what << COMMAND_CALL_SHIFT | value;
}

static void end_machine(enum command_call what, uint32_t value)
{
    for (;;) {
        call(what, value);
        reboot(RB_POWER_OFF);
        sleep(1);
    }
}

__attribute__((format(printf, 2, 3))) static void fail(enum command_failure why, const char *format,
                                                       ...)
{
    const int error = errno;
    va_list args;

    fputs("ditto: ", stdout);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf(": %s\n", strerror(error));
    fflush(stdout);
    end_machine(COMMAND_FAILED, why);
}

static bool has_id(int directory, const char *name, unsigned id)
{
    char text[16] = "";
    const int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    return n > 0 && strtoul(text, NULL, 16) == id;
}

/* Without it nobody can be told that it is not there, but on the console. */
static void open_device(void)
{
    DIR *dir = opendir("/sys/bus/pci/devices");

    for (const struct dirent *d; dir && !registers && (d = readdir(dir));) {
        const int at = openat(dirfd(dir), d->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (at >= 0 && has_id(at, "vendor", COMMAND_VENDOR) &&
            has_id(at, "device", COMMAND_DEVICE)) {
            const int fd = openat(at, "resource0", O_RDWR | O_CLOEXEC);
            void *map = mmap(NULL, COMMAND_BAR_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            registers = map == MAP_FAILED ? NULL : map;
            close(fd);
        }
        if (at >= 0)
            close(at);
    }
    if (dir)
        closedir(dir);
    if (registers)
        return;
    printf("ditto: cannot use its PCI device: %s\n", strerror(errno));
    fflush(stdout);
    exit(1);
}

/* A pipe that is never read holds references to them, so that the kernel does not move them.
 * Children do not share them, or a write would get another page. */
static void pin_pages(void)
{
    const struct iovec parts[] = {{pages->box_page, COMMAND_PAGE}, {pages->data, COMMAND_DATA_MAX}};
    int ends[2];

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (pipe2(ends, O_CLOEXEC) < 0 ||
            vmsplice(ends[1], &parts[i], 1, 0) != (ssize_t)parts[i].iov_len)
            fail(COMMAND_NO_START, "cannot hold pages");
}

/* Bits 0 to 54 of a page's word in /proc/self/pagemap are its frame, bit 63 says that it is in
 * memory (Documentation/admin-guide/mm/pagemap.rst). */
static uint32_t frame_of(int pagemap, const void *page)
{
    uint64_t word = 0;

    if (pread(pagemap, &word, sizeof word, (off_t)((uintptr_t)page / COMMAND_PAGE * sizeof word)) !=
        sizeof word)
        fail(COMMAND_NO_PAGES, "/proc/self/pagemap");
    const uint64_t frame = word & ((1ull << 55) - 1);
    if (!(word >> 63) || !frame || frame > UINT32_MAX)
        fail(COMMAND_NO_PAGES, "/proc/self/pagemap does not say");
    return (uint32_t)frame;
}

static void open_box(void)
{
    const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

    pages = mmap(NULL, sizeof *pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        fail(COMMAND_NO_START, "no memory for the streams");
    madvise(pages, sizeof *pages, MADV_DONTFORK);
    madvise(pages, sizeof *pages, MADV_NOHUGEPAGE);
    memset(pages, 1, sizeof *pages);
    pin_pages();
    box_frame = frame_of(pagemap, pages);
    for (unsigned i = 0; i < COMMAND_PAGES; i++)
        pages->box.frame[i] = frame_of(pagemap, pages->data + i * COMMAND_PAGE);
    close(pagemap);
}

/* Returns the len that it has afterwards. */
static uint32_t send_box(enum command_call what, uint32_t len)
{
    volatile struct command_box *box = &pages->box;

    box->call = what;
    box->len = len;
    registers[COMMAND_BOX / 4] = box_frame;
    return box->len;
}

/* ---- the root ---- */

/* A text file's whole contents, with a NUL behind them, or NULL. The kernel's own have no size, and
 * come in pieces. */
static char *read_file(const char *path, size_t *len)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = NULL;
    ssize_t n = fd < 0 ? 0 : 1;

    for (*len = 0; n > 0; *len += (size_t)n) {
        char *more = realloc(text, *len + FILE_STEP + 1);
        if (!more)
            fail(COMMAND_NO_START, "no memory for %s", path);
        text = more;
        n = read(fd, text + *len, FILE_STEP);
        if (n <= 0)
            break;
    }
    if (text)
        text[*len] = '\0';
    if (fd >= 0)
        close(fd);
    return text;
}

static void load_modules(void)
{
    size_t len = 0;
    char *names = read_file(COMMAND_MODULES_FILE, &len);

    for (size_t at = 0; names && at < len; at += strlen(names + at) + 1) {
        const int fd = open(names + at, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
            printf("ditto: %s: %s\n", names + at, strerror(errno));
        if (fd >= 0)
            close(fd);
        unlink(names + at);
    }
    fflush(stdout);
    free(names);
}

/* The disk with our serial: its name, in `name`. */
static bool find_disk(char *name, size_t size, bool *any)
{
    DIR *dir = opendir("/sys/block");
    bool found = false;

    for (const struct dirent *d; dir && !found && (d = readdir(dir));) {
        char path[300], *serial;
        size_t len = 0;
        *any |= strncmp(d->d_name, "vd", 2) == 0;
        snprintf(path, sizeof path, "/sys/block/%s/serial", d->d_name);
        serial = read_file(path, &len);
        found = serial && !strncmp(serial, COMMAND_DISK_SERIAL, sizeof COMMAND_DISK_SERIAL - 1);
        free(serial);
        if (found)
            snprintf(name, size, "%s", d->d_name);
    }
    if (dir)
        closedir(dir);
    return found;
}

/* Its node, made where there is no devtmpfs. */
static void make_node(const char *name, const char *node)
{
    char path[300];
    unsigned major, minor;
    size_t len = 0;

    if (access(node, F_OK) == 0)
        return;
    snprintf(path, sizeof path, "/sys/block/%s/dev", name);
    char *text = read_file(path, &len);
    if (text && sscanf(text, "%u:%u", &major, &minor) == 2)
        mknod(node, S_IFBLK | 0600, (dev_t)major << 8 | minor);
    free(text);
}

static void mount_root(void)
{
    char name[256] = "", node[300];
    bool any = false;

    for (unsigned i = 0; !find_disk(name, sizeof name, &any); i++) {
        if (i == DISK_WAIT_S * 50) {
            errno = ENODEV;
            fail(COMMAND_NO_DISK, "there is no root disk");
        }
        usleep(20000);
    }
    snprintf(node, sizeof node, "/dev/%s", name);
    make_node(name, node);
    if (mount(node, "/root", "ext4", MS_NOATIME, NULL) < 0)
        fail(COMMAND_NO_MOUNT, "cannot mount %s as ext4", node);
}

/* A directory to mount on, which the root may lack. */
static void mount_on(const char *what, const char *where, const char *type, unsigned long flags,
                     const char *options)
{
    mkdir(where, 0755);
    if (mount(what, where, type, flags, options) < 0)
        printf("ditto: cannot mount %s on %s: %s\n", type, where, strerror(errno));
}

static void make_devices(void)
{
    static const struct {
        const char *name;
        unsigned major, minor;
    } nodes[] = {{"null", 1, 3},    {"zero", 1, 5},    {"full", 1, 7},
                 {"random", 1, 8},  {"urandom", 1, 9}, {"tty", 5, 0},
                 {"console", 5, 1}, {"ptmx", 5, 2},    {"ttyS0", 4, 64}};
    char path[32];

    umask(0);
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        snprintf(path, sizeof path, "/dev/%s", nodes[i].name);
        mknod(path, S_IFCHR | 0666, (dev_t)nodes[i].major << 8 | nodes[i].minor);
    }
    umask(022);
}

static void mount_first(void)
{
    mount_on("proc", "/proc", "proc", 0, NULL);
    mount_on("sys", "/sys", "sysfs", 0, NULL);
    mkdir("/dev", 0755);
    if (mount("dev", "/dev", "devtmpfs", 0, NULL) < 0) {
        mount_on("dev", "/dev", "tmpfs", 0, "mode=755");
        make_devices();
    }
}

static void move(const char *from, const char *to)
{
    mkdir(to, 0755);
    if (mount(from, to, NULL, MS_MOVE, NULL) < 0)
        fail(COMMAND_NO_START, "cannot move %s", from);
}

/* What was mounted goes along; the initial ram disk's own root is left behind. */
static void enter_root(void)
{
    move("/dev", "/root/dev");
    move("/proc", "/root/proc");
    move("/sys", "/root/sys");
    unlink("/init");
    if (chdir("/root") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
        chdir("/") < 0)
        fail(COMMAND_NO_START, "cannot enter the root");
    mount_on("devpts", "/dev/pts", "devpts", 0, "mode=620,ptmxmode=666,gid=5");
    mount_on("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
    mount_on("run", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755");
    symlink("/proc/self/fd", "/dev/fd");
    symlink("fd/0", "/dev/stdin");
    symlink("fd/1", "/dev/stdout");
    symlink("fd/2", "/dev/stderr");
    mkdir("/tmp", 01777); /* it is written like the rest, and gone afterwards like it */
}

static struct sockaddr address(const char *text)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr out;

    inet_pton(AF_INET, text, &in.sin_addr);
    memcpy(&out, &in, sizeof out);
    return out;
}

/* own: its address, or NULL: it keeps what the kernel gives it. */
static void bring_up(int fd, const char *name, const char *own)
{
    struct ifreq r = {0};

    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", name);
    if (own) {
        r.ifr_addr = address(own);
        ioctl(fd, SIOCSIFADDR, &r);
        r.ifr_addr = address("255.255.255.0");
        ioctl(fd, SIOCSIFNETMASK, &r);
    }
    if (ioctl(fd, SIOCGIFFLAGS, &r) == 0) {
        r.ifr_flags |= IFF_UP;
        ioctl(fd, SIOCSIFFLAGS, &r);
    }
}

/* Where the first NIC is one of --net user, what DHCP would say there. */
static void set_up_network(bool is_user)
{
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return;
    bring_up(fd, "lo", NULL);
    if (is_user) {
        bring_up(fd, "eth0", "10.0.2.15");
        route.rt_dst = route.rt_genmask = address("0.0.0.0");
        route.rt_gateway = address("10.0.2.2");
        ioctl(fd, SIOCADDRT, &route);
        unlink("/etc/resolv.conf");
        const int names = open("/etc/resolv.conf", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (names >= 0 && write(names, "nameserver 10.0.2.3\n", 20) == 20)
            close(names);
    }
    close(fd);
}

/* ---- the command ---- */

static void read_request(struct request *r)
{
    size_t len = 0, count = 0;
    char *text = read_file(COMMAND_FILE, &len), *word[6];

    if (!text)
        fail(COMMAND_NO_START, "no " COMMAND_FILE);
    char *at = text, *const end = text + len;
    for (size_t i = 0; i < sizeof word / sizeof *word && at < end; i++, at += strlen(at) + 1)
        word[i] = at;
    r->terminal = atoi(word[0]);
    r->size = (struct winsize){.ws_row = (unsigned short)atoi(word[1]),
                               .ws_col = (unsigned short)atoi(word[2])};
    r->user_net = atoi(word[3]);
    r->cwd = word[4];
    r->term = word[5];
    r->argv = calloc(len + 1, sizeof *r->argv);
    for (; at < end; at += strlen(at) + 1)
        r->argv[count++] = at;
}

/* The command's streams, our ends: -1 where there is none (any more). */
struct streams {
    int in, out, err;
    int child[3];
};

static void make_streams(const struct request *r, struct streams *s)
{
    int in[2], out[2], err[2];

    if (r->terminal) {
        const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
            fail(COMMAND_NO_START, "no terminal");
        const int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (slave < 0)
            fail(COMMAND_NO_START, "no terminal");
        if (r->size.ws_row)
            ioctl(slave, TIOCSWINSZ, &r->size);
        *s = (struct streams){master, master, -1, {slave, slave, slave}};
    } else {
        if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
            fail(COMMAND_NO_START, "no pipes");
        *s = (struct streams){in[1], out[0], err[0], {in[0], out[1], err[1]}};
        fcntl(s->err, F_SETFL, O_NONBLOCK);
    }
    fcntl(s->in, F_SETFL, O_NONBLOCK);
    fcntl(s->out, F_SETFL, O_NONBLOCK);
}

static void run_command(const struct request *r, const struct streams *s, const sigset_t *mask)
{
    setsid();
    for (int i = 0; i < 3; i++)
        dup2(s->child[i], i);
    if (r->terminal)
        ioctl(0, TIOCSCTTY, 0);
    sigprocmask(SIG_SETMASK, mask, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (chdir(r->cwd) < 0 && chdir("/") < 0)
        _exit(126);
    clearenv();
    setenv("PATH", COMMAND_PATH, 1);
    setenv("HOME", "/root", 1);
    setenv("USER", "root", 1);
    setenv("LOGNAME", "root", 1);
    setenv("SHELL", "/bin/sh", 1);
    setenv("TERM", r->term, 1);
    execvp(r->argv[0], r->argv);
    fprintf(stderr, "ditto: cannot run %s: %s\n", r->argv[0], strerror(errno));
    _exit(errno == ENOENT || errno == ENOTDIR ? 127 : 126);
}

/* ---- its streams ---- */

struct relay {
    struct streams s;
    int bell;         /* -1: there is none */
    bool asks, ended; /* for input; there is no more of it */
    uint8_t input[COMMAND_DATA_MAX];
    size_t input_at, input_len;
    pid_t pid;
    int status; /* of wait(); -1: it runs */
};

/* Raw, so that what rings is a byte, and nothing is sent back. */
static int open_bell(void)
{
    struct termios t;
    const int fd = open(BELL, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0 || tcgetattr(fd, &t) < 0)
        return -1;
    cfmakeraw(&t);
    t.c_cflag |= CLOCAL | CREAD;
    tcsetattr(fd, TCSANOW, &t);
    return fd;
}

/* Move output to the outside. Returns how many bytes; 0: there are none now, or, *fd -1, any more.
 * Where nobody takes them the command gets SIGPIPE, or of a terminal SIGHUP, as our end is closed.
 */
static size_t take_output(struct relay *r, int *fd, enum command_call stream)
{
    const ssize_t n = read(*fd, pages->data, COMMAND_DATA_MAX);

    if (n > 0 && send_box(stream, (uint32_t)n) != COMMAND_OUTPUT_END)
        return (size_t)n;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n > 0 || *fd != r->s.in) { /* a terminal may be opened again, if it is still read */
        close(*fd);
        r->s.in = *fd == r->s.in ? -1 : r->s.in;
    }
    *fd = -1;
    return 0;
}

static void close_input(struct relay *r)
{
    if (r->s.in >= 0 && r->s.in != r->s.out)
        close(r->s.in);
    else if (r->s.in >= 0 && write(r->s.in, "\4", 1) < 0) /* a terminal's end of input */
        r->ended = true;
    r->s.in = -1;
}

static void pass_input(struct relay *r)
{
    if (r->input_at == r->input_len && r->asks) {
        const uint32_t count = send_box(COMMAND_STDIN, COMMAND_DATA_MAX);
        r->asks = count > 0;
        if (count > COMMAND_DATA_MAX) { /* COMMAND_INPUT_END */
            close_input(r);
            return;
        }
        memcpy(r->input, pages->data, count);
        r->input_at = 0;
        r->input_len = count;
    }
    if (r->input_at == r->input_len)
        return;
    const ssize_t n = write(r->s.in, r->input + r->input_at, r->input_len - r->input_at);
    if (n > 0)
        r->input_at += (size_t)n;
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        close_input(r); /* nobody reads it */
}

static void reap(struct relay *r, int signals)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;

    while (read(signals, &info, sizeof info) > 0)
        continue;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == r->pid)
            r->status = status;
}

static void hear_bell(struct relay *r)
{
    uint8_t bytes[64];

    while (read(r->bell, bytes, sizeof bytes) > 0)
        continue;
    r->asks = true;
}

static void relay_once(struct relay *r, int signals)
{
    const bool wants = r->s.in >= 0 && (r->asks || r->input_at < r->input_len);
    const bool waits = r->s.in >= 0 && !wants;
    struct pollfd fds[] = {
        {.fd = signals, .events = POLLIN},
        {.fd = r->s.out, .events = POLLIN},
        {.fd = r->s.err, .events = POLLIN},
        {.fd = wants ? r->s.in : -1, .events = POLLOUT},
        {.fd = waits ? r->bell : -1, .events = POLLIN},
    };

    if (poll(fds, 5, waits && r->bell < 0 ? NO_BELL_MS : -1) == 0)
        r->asks = true;
    if (fds[1].revents)
        take_output(r, &r->s.out, COMMAND_STDOUT);
    if (fds[2].revents)
        take_output(r, &r->s.err, COMMAND_STDERR);
    if (fds[4].revents)
        hear_bell(r);
    if (fds[3].revents && r->s.in >= 0)
        pass_input(r);
    if (fds[0].revents)
        reap(r, signals);
}

/* What the command has left in a pipe or terminal when it ended. Others that have it are not waited
 * for: they may write for ever, and so no more is read than it holds. */
static void drain(struct relay *r, int *fd, enum command_call stream)
{
    const int holds = fcntl(*fd, F_GETPIPE_SZ);
    size_t left = holds > DRAIN_MAX ? (size_t)holds : DRAIN_MAX, n = 1;

    while (*fd >= 0 && n && left) {
        n = take_output(r, fd, stream);
        left -= n < left ? n : left;
    }
}

static int relay(struct relay *r, int signals)
{
    while (r->status < 0)
        relay_once(r, signals);
    drain(r, &r->s.out, COMMAND_STDOUT);
    drain(r, &r->s.err, COMMAND_STDERR);
    return WIFSIGNALED(r->status) ? 128 + WTERMSIG(r->status) : WEXITSTATUS(r->status);
}

/* Other disks may be the user's own, and what was written to them is to be on them. */
static void sync_disks(void)
{
    size_t len = 0;
    char *mounts = read_file("/proc/mounts", &len);

    for (char *line = mounts; line && *line; line += strcspn(line, "\n"), line += *line == '\n') {
        char *where = strchr(line, ' ');
        if (!strncmp(line, "/dev/", 5) && where && strncmp(where, " / ", 3) != 0) {
            sync();
            break;
        }
    }
    free(mounts);
}

int main(void)
{
    static struct relay r = {.asks = true, .status = -1};
    struct request request = {0};
    sigset_t child, old;

    mount_first();
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_device();
    call(COMMAND_BEGINS, 0);
    read_request(&request);
    load_modules();
    mount_root();
    enter_root();
    open_box();
    sethostname("ditto", 5);
    set_up_network(request.user_net);

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &old);
    const int signals = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
    make_streams(&request, &r.s);
    r.bell = open_bell();
    r.pid = fork();
    if (r.pid == 0)
        run_command(&request, &r.s, &old);
    if (r.pid < 0 || signals < 0)
        fail(COMMAND_NO_START, "cannot start a process");
    for (int i = 0; i < 3; i++)
        if (i == 0 || r.s.child[i] != r.s.child[0])
            close(r.s.child[i]);
    const int status = relay(&r, signals);
    sync_disks();
    end_machine(COMMAND_EXITED, (uint32_t)status);
}
