#include "devices/disk/disk.h"

#include <errno.h>
#include <unistd.h>

static bool in_range(const struct disk *disk, uint64_t offset, uint64_t len)
{
    return offset <= disk->size && len <= disk->size - offset;
}

int disk_read(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    return in_range(disk, offset, len) ? disk->ops->read(disk, offset, data, len) : -1;
}

int disk_write(struct disk *disk, uint64_t offset, const void *data, size_t len)
{
    if (disk->read_only || !in_range(disk, offset, len))
        return -1;
    return disk->ops->write(disk, offset, data, len);
}

int disk_flush(struct disk *disk)
{
    return disk->read_only ? 0 : disk->ops->flush(disk);
}

int disk_zero(struct disk *disk, uint64_t offset, uint64_t len)
{
    if (disk->read_only || !in_range(disk, offset, len))
        return -1;
    return len ? disk->ops->zero(disk, offset, len) : 0;
}

int disk_discard(struct disk *disk, uint64_t offset, uint64_t len)
{
    if (disk->read_only || !in_range(disk, offset, len))
        return -1;
    return len ? disk->ops->discard(disk, offset, len) : 0;
}

bool disk_read_now(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    return in_range(disk, offset, len) && disk->ops->read_now &&
           disk->ops->read_now(disk, offset, data, len);
}

bool disk_writes_now(struct disk *disk, uint64_t offset, uint64_t len)
{
    if (disk->read_only) /* a flush is nothing then, and a write fails */
        return true;
    return in_range(disk, offset, len) && disk->ops->writes_now &&
           disk->ops->writes_now(disk, offset, len);
}

void disk_close(struct disk *disk)
{
    if (disk)
        disk->ops->close(disk);
}

int disk_file_read(int fd, uint64_t offset, void *data, size_t len)
{
    uint8_t *at = data;

    while (len) {
        ssize_t n = pread(fd, at, len, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) /* 0: somebody made the file shorter */
            return -1;
        at += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

int disk_file_write(int fd, uint64_t offset, const void *data, size_t len)
{
    const uint8_t *at = data;

    while (len) {
        ssize_t n = pwrite(fd, at, len, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}
