#include "boot/root/module_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/open_beneath.h"
#include "boot/root/tree.h"

static int open_in(const struct module_directory *d, const char *path, int flags)
{
    char whole[2 * PATH_MAX];

    if (snprintf(whole, sizeof whole, "%s/%s", d->path, path) >= (int)sizeof whole) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return d->one_fs ? tree_open_inside(d->base, whole, flags) : open_inside(d->base, whole, flags);
}

bool module_directory_has(const struct module_directory *d, const char *path)
{
    const int fd = open_in(d, path, O_PATH);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int module_directory_read(const struct module_directory *d, const char *path, uint64_t max,
                          uint8_t **data, size_t *len, struct err *e)
{
    return file_read_open(open_in(d, path, O_RDONLY | O_NONBLOCK | O_NOCTTY), path, max, data, len,
                          e);
}

/* Whether it is one of a kernel's; then it is filled in, and `base` is its. */
static bool take(struct module_directory *d, int base, bool one_fs, const char *path)
{
    *d = (struct module_directory){base, one_fs, strdup(path)};
    if (base >= 0 && d->path &&
        (module_directory_has(d, "modules.dep") || module_directory_has(d, "modules.order")))
        return true;
    module_directory_close(d);
    return false;
}

static int open_base(const char *path)
{
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The user's own choice, and so of this machine's tree. */
static bool find_named(struct module_directory *d, const struct kernel_modules_place *p)
{
    static const char *const between[] = {"/", "/lib/modules/"};
    char named[PATH_MAX], path[PATH_MAX + KERNEL_RELEASE_MAX + 16];

    if (!realpath(p->named, named))
        return false;
    if (take(d, open_base("/"), false, named))
        return true;
    for (size_t i = 0; i < sizeof between / sizeof *between; i++) {
        snprintf(path, sizeof path, "%s%s%s", named, between[i], p->release);
        if (take(d, open_base("/"), false, path))
            return true;
    }
    return false;
}

bool module_directory_find(struct module_directory *d, const struct kernel_modules_place *p)
{
    const char *slash = strrchr(p->kernel, '/');
    char path[KERNEL_RELEASE_MAX + 16], beside[PATH_MAX], above[PATH_MAX + 4];

    if (p->named)
        return find_named(d, p);
    if (!p->release[0])
        return false;
    snprintf(path, sizeof path, "lib/modules/%s", p->release);
    snprintf(beside, sizeof beside, "%.*s", slash ? (int)(slash + 1 - p->kernel) : 1,
             slash ? p->kernel : ".");
    snprintf(above, sizeof above, "%s/..", beside); /* a package that is unpacked somewhere */
    return take(d, openat(p->root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC), true, path) ||
           take(d, open_base(beside), false, path) || take(d, open_base(above), false, path) ||
           take(d, open_base("/"), false, path);
}

void module_directory_close(struct module_directory *d)
{
    if (d->base >= 0)
        close(d->base);
    free(d->path);
    *d = (struct module_directory){.base = -1};
}
