/* What is looked at in a root before anything is made of it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/command_protocol.h"
#include "base/open_beneath.h"
#include "boot/root/root.h"
#include "boot/root/tree.h"

/* ---- the kernel ---- */

/* Whether it is a regular file in this root; and then where that is, by a path without links. */
static bool find_file(int root, const char *path, char *where, size_t size)
{
    const int fd = open_inside(root, path, O_PATH);
    char link[64];
    struct stat st;
    ssize_t len = -1;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        len = readlink(link, where, size);
    if (fd >= 0)
        close(fd);
    if (len <= 0 || (size_t)len >= size)
        return false;
    where[len] = '\0';
    return true;
}

/* The newest of a root's. A root that somebody else has filled has links and FIFOs, too: a kernel
 * is none of them, but a link to a file in that root. False: there is none. */
static bool find_newest(const char *directory, char *kernel, size_t size)
{
    const int root = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int boot = open_inside(root, "boot", O_RDONLY | O_DIRECTORY);
    char newest[NAME_MAX + 1] = "", path[NAME_MAX + 16], where[PATH_MAX];
    DIR *dir = boot < 0 ? NULL : fdopendir(boot);

    for (const struct dirent *d; dir && (d = readdir(dir));) {
        if (strncmp(d->d_name, "vmlinuz-", 8) != 0 ||
            (newest[0] && strverscmp(d->d_name, newest) <= 0))
            continue;
        snprintf(path, sizeof path, "boot/%s", d->d_name);
        if (find_file(root, path, where, sizeof where) &&
            snprintf(kernel, size, "%s", where) < (int)size)
            snprintf(newest, sizeof newest, "%s", d->d_name);
    }
    if (dir)
        closedir(dir);
    else if (boot >= 0)
        close(boot);
    if (root >= 0)
        close(root);
    return newest[0] != '\0';
}

int root_find_kernel(const char *directory, char *kernel, size_t size, struct err *e)
{
    if (find_newest(directory, kernel, size) || find_newest("/", kernel, size))
        return 0;
    return err_set(e, STATUS_ERROR,
                   "there is no /boot/vmlinuz-* in %s or on this machine; give --kernel",
                   directory);
}

/* ---- the command ---- */

/* 0, or the errno by which it cannot be run; directory: where a relative path begins, in the root.
 */
static int look_at(int root, const char *directory, const char *path)
{
    char whole[2 * PATH_MAX];
    struct stat st;

    if (snprintf(whole, sizeof whole, "%s/%s", path[0] == '/' ? "" : directory, path) >=
        (int)sizeof whole)
        return ENAMETOOLONG;
    const int fd = tree_open_inside(root, whole, O_PATH);
    if (fd < 0)
        return errno;
    int error = fstat(fd, &st) < 0 ? errno : 0;
    if (!error && (!S_ISREG(st.st_mode) || !(st.st_mode & 0111)))
        error = EACCES;
    close(fd);
    return error;
}

/* As execvp() does, in the PATH that the init gives. */
static int look_in_path(int root, const char *directory, const char *command)
{
    char path[PATH_MAX];
    int error = ENOENT;

    for (const char *at = COMMAND_PATH; *at;) {
        const int len = (int)strcspn(at, ":");
        if (snprintf(path, sizeof path, "%.*s/%s", len, at, command) < (int)sizeof path) {
            const int found = look_at(root, directory, path);
            if (!found)
                return 0;
            if (found != ENOENT && found != ENOTDIR)
                error = found;
        }
        at += len;
        at += *at == ':';
    }
    return error;
}

int root_check_command(const char *directory, const char *command, struct err *e)
{
    const int root = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (root < 0)
        return err_set(e, STATUS_ERROR, "cannot use %s as a root: %s", directory, strerror(errno));
    char *cwd = getcwd(NULL, 0);
    const int there = cwd ? tree_open_inside(root, cwd, O_PATH | O_DIRECTORY) : -1;
    const char *from = there < 0 ? "/" : cwd;
    const int error =
        strchr(command, '/') ? look_at(root, from, command) : look_in_path(root, from, command);
    if (there >= 0)
        close(there);
    close(root);
    free(cwd);
    if (!error)
        return 0;
    if (error == ENOENT || error == ENOTDIR)
        return err_set(e, (enum exit_status)STATUS_NO_COMMAND, "there is no command %s in %s",
                       command, directory);
    return err_set(e, (enum exit_status)STATUS_CANNOT_RUN, "%s in %s cannot be run: %s", command,
                   directory,
                   error == EACCES  ? "it is no executable file"
                   : error == EXDEV ? "it is on another file system, which is not in the machine"
                                    : strerror(error));
}
