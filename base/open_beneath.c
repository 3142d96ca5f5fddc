#include "base/open_beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_how(int directory, const char *path, int flags, uint64_t resolve)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .resolve = resolve | RESOLVE_NO_MAGICLINKS,
    };

    return (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
}

int open_beneath(int directory, const char *path, int flags)
{
    return open_how(directory, path, flags, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
}

int open_inside(int directory, const char *path, int flags)
{
    return open_how(directory, path, flags, RESOLVE_IN_ROOT);
}
