#include "base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int whole_file_check(const char *path, bool overwrite, struct err *e)
{
    struct stat st;

    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(e, STATUS_ERROR, "cannot write to %s: it is no file", path);
    if (!overwrite && access(path, F_OK) == 0)
        return err_set(e, STATUS_ERROR, "%s exists; give --force, or another name with -o", path);
    return 0;
}

int whole_file_begin(struct whole_file *f, const char *path, struct err *e)
{
    f->path = path;
    if (snprintf(f->part, sizeof f->part, "%s.XXXXXX", path) >= (int)sizeof f->part)
        return err_set(e, STATUS_USAGE, "the name of the file to be made is too long");
    f->fd = mkostemp(f->part, O_CLOEXEC);
    return f->fd < 0 ? err_set(e, STATUS_ERROR, "cannot make %s: %s", path, strerror(errno)) : 0;
}

int whole_file_end(struct whole_file *f, bool keep, struct err *e)
{
    const mode_t mask = umask(0);
    int rc = keep ? 0 : -1;

    umask(mask);
    if (keep && (fchmod(f->fd, 0666 & ~mask) < 0 || rename(f->part, f->path) < 0))
        rc = err_set(e, STATUS_ERROR, "cannot make %s: %s", f->path, strerror(errno));
    if (rc < 0)
        unlink(f->part);
    close(f->fd);
    return rc;
}
