/*
 * To be preloaded into dittovm, which its QEMU inherits and is not to notice: the file SLOW_DISK is
 * on a disk that takes SLOW_DISK_MS for each read, and nothing of it is in memory.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_slow(int fd)
{
    static struct stat slow;
    const char *path = getenv("SLOW_DISK");
    struct stat st;

    if (!path || strncmp(program_invocation_short_name, "qemu", 4) == 0 ||
        (!slow.st_ino && stat(path, &slow) < 0))
        return 0;
    return fstat(fd, &st) == 0 && st.st_dev == slow.st_dev && st.st_ino == slow.st_ino;
}

ssize_t pread64(int fd, void *data, size_t len, off64_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off64_t);
    const char *ms = getenv("SLOW_DISK_MS");

    if (!real)
        real = (ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    if (is_slow(fd))
        usleep((useconds_t)(ms ? atoi(ms) : 20) * 1000);
    return real(fd, data, len, offset);
}

ssize_t pread(int fd, void *data, size_t len, off_t offset)
{
    return pread64(fd, data, len, offset);
}

ssize_t preadv2(int fd, const struct iovec *into, int count, off_t offset, int flags)
{
    static ssize_t (*real)(int, const struct iovec *, int, off_t, int);

    if (!real)
        real = (ssize_t(*)(int, const struct iovec *, int, off_t, int))dlsym(RTLD_NEXT, "preadv2");
    if (is_slow(fd)) {
        errno = EAGAIN;
        return -1;
    }
    return real(fd, into, count, offset, flags);
}
