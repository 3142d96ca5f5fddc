#include "replay/core_output.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int core_output_write(const struct core_output *out, const void *data, uint64_t len,
                      uint64_t offset, struct err *e)
{
    const uint8_t *from = data;

    while (len) {
        const ssize_t n = pwrite(out->fd, from, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(e, STATUS_ERROR, "cannot write to %s: %s", out->path,
                           strerror(n < 0 ? errno : ENOSPC));
        from += n;
        offset += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return 0;
}

int core_output_done(const struct core_output *out, uint64_t done, struct err *e)
{
    if (out->stop && *out->stop)
        return err_set(e, STATUS_ERROR, "interrupted before %s was written", out->path);
    if (out->progress)
        out->progress(out->opaque, done);
    return 0;
}
