/* The way to the root: modules, its disk, what is mounted. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest-tools/command/init.h"

#define DISK_WAIT_S 10
#define FILE_STEP   65536u

char *read_file(const char *path, size_t *len)
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

void load_modules(void)
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

void mount_root(void)
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

void mount_first(void)
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
void enter_root(void)
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
