#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_all(int fd, uint8_t *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = read(fd, data + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = EIO; /* it shrank while we read it */
            return -1;
        }
        done += (size_t)n;
    }
    return 0;
}

int file_read_open(int fd, const char *path, uint64_t max, uint8_t **data, size_t *len,
                   struct err *e)
{
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        err_set(e, STATUS_ERROR, "cannot open %s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        err_set(e, STATUS_ERROR, "%s is not a regular file", path);
    } else if ((uint64_t)st.st_size > max) {
        err_set(e, STATUS_ERROR, "%s is too large: %lld MiB", path, (long long)st.st_size >> 20);
    } else {
        *len = (size_t)st.st_size;
        *data = malloc(*len + 1);
        if (*data && read_all(fd, *data, *len) == 0) {
            close(fd);
            return 0;
        }
        err_set(e, STATUS_ERROR, "cannot read %s: %s", path, strerror(errno));
        free(*data);
        *data = NULL;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* A FIFO, which is none, does not make us wait for who writes to it. */
int file_read(const char *path, uint64_t max, uint8_t **data, size_t *len, struct err *e)
{
    return file_read_open(open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), path, max, data,
                          len, e);
}

int parse_number(const char *text, uint64_t max, uint64_t *value)
{
    char *end;

    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno || *end || n > max)
        return -1;
    *value = n;
    return 0;
}

int parse_size(const char *text, uint64_t *bytes)
{
    char *end;
    unsigned shift = 0;

    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (*end == 'K' || *end == 'k')
        shift = 10;
    else if (*end == 'M' || *end == 'm')
        shift = 20;
    else if (*end == 'G' || *end == 'g')
        shift = 30;
    if (errno || (shift && end[1]) || (!shift && *end) || n > UINT64_MAX >> shift)
        return -1;
    *bytes = n << shift;
    return 0;
}
