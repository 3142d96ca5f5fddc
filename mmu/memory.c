#include "mmu/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

int guest_memory_check(uint64_t size, struct err *e)
{
    if (size >= MEMORY_MIN && size <= MEMORY_MAX && size % MEMORY_STEP == 0)
        return 0;
    return err_set(
        e, STATUS_USAGE,
        "guest memory of %llu bytes is not possible: give a multiple of 2 MiB from 16 MiB "
        "to 256 GiB",
        (unsigned long long)size);
}

int guest_memory_check_host(uint64_t size, struct err *e)
{
    struct sysinfo host;

    if (sysinfo(&host) < 0)
        return 0;
    const uint64_t all = ((uint64_t)host.totalram + host.totalswap) * host.mem_unit;
    if (size <= all)
        return 0;
    return err_set(
        e, STATUS_ERROR,
        "the machine has %llu MiB of memory, and this host, with its swap space, %llu MiB; "
        "a larger host is needed",
        (unsigned long long)(size >> 20), (unsigned long long)(all >> 20));
}

int guest_memory_create(struct guest_memory *m, uint64_t size, struct err *e)
{
    memset(m, 0, sizeof(*m));
    m->fd = -1;
    if (guest_memory_check(size, e) < 0)
        return -1;

    int fd = memfd_create("guest-ram", MFD_CLOEXEC);

    if (fd < 0)
        return err_set(e, STATUS_ERROR, "cannot make guest memory: memfd_create: %s",
                       strerror(errno));
    if (ftruncate(fd, (off_t)size) < 0) {
        int saved = errno;

        close(fd);
        return err_set(e, STATUS_ERROR, "cannot make guest memory of %llu MiB: ftruncate: %s",
                       (unsigned long long)(size >> 20), strerror(saved));
    }

    void *host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

    if (host == MAP_FAILED) {
        int saved = errno;

        close(fd);
        return err_set(e, STATUS_ERROR, "cannot map guest memory of %llu MiB: %s; give less memory",
                       (unsigned long long)(size >> 20), strerror(saved));
    }
    /* Processes of ours that serve a network, or try something, have no business with it. */
    (void)madvise(host, size, MADV_DONTFORK);
    m->fd = fd;
    m->host = host;
    m->size = size;
    m->low_size = size < MEMORY_HOLE_BASE ? size : MEMORY_HOLE_BASE;
    m->high_size = size - m->low_size;
    return 0;
}

void guest_memory_destroy(struct guest_memory *m)
{
    if (m->host)
        munmap(m->host, m->size);
    if (m->fd >= 0)
        close(m->fd);
    memset(m, 0, sizeof(*m));
    m->fd = -1;
}

/* [at, at + len) are bytes of m->host. */
static void *if_readable(const struct guest_memory *m, uint64_t at, uint64_t len)
{
    for (uint64_t page = at / PAGE_BYTES; m->readable && page * PAGE_BYTES < at + len; page++)
        if (!m->readable[page])
            return NULL;
    return m->host + at;
}

void *guest_memory_at(const struct guest_memory *m, uint64_t gpa, uint64_t len)
{
    if (gpa < m->low_size)
        return len <= m->low_size - gpa ? if_readable(m, gpa, len) : NULL;
    if (gpa < MEMORY_HIGH_BASE)
        return NULL;

    uint64_t offset = gpa - MEMORY_HIGH_BASE;

    if (offset >= m->high_size || len > m->high_size - offset)
        return NULL;
    return if_readable(m, m->low_size + offset, len);
}

void *guest_memory_any(const struct guest_memory *m, uint64_t gpa, uint64_t len)
{
    struct guest_memory all = *m;

    all.readable = NULL;
    return guest_memory_at(&all, gpa, len);
}

bool guest_memory_touched(const struct guest_memory *m, uint64_t *start, uint64_t *end)
{
    off_t data = *start < m->size ? lseek(m->fd, (off_t)*start, SEEK_DATA) : -1;

    if (data < 0)
        return false;
    off_t hole = lseek(m->fd, data, SEEK_HOLE);
    *start = (uint64_t)data & ~(uint64_t)(PAGE_BYTES - 1);
    *end = hole < 0 ? m->size : (uint64_t)hole;
    return true;
}
