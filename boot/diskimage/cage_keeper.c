#include "boot/diskimage/cage_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "boot/diskimage/cage_filter.h"

#define PIECE (256u << 10) /* of the disk, at a time */

struct keeper {
    struct disk *disk;
    pid_t program;
    int listener;
    /* What the program has for the disk: an empty file of the disk's size, whose position is the
     * program's. It is never written, so it takes no memory. */
    int file;
    /* The program has read of the disk: what it does may be the image's doing from here on. */
    bool hostile;
    uint8_t piece[PIECE];
};

/* Requests and answers of a newer kernel may be longer. */
union request {
    struct seccomp_notif notif;
    uint8_t space[512];
};
union answer {
    struct seccomp_notif_resp resp;
    uint8_t space[512];
};

static int make_file(uint64_t size)
{
    const int fd = memfd_create("disk", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 && (ftruncate(fd, (off_t)size) < 0 ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) < 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Whether the program names the disk. It has one thread, so the name stays what it is. */
static bool names_disk(const struct keeper *k, uint64_t address)
{
    char name[sizeof CAGE_DISK_NAME];
    struct iovec to = {name, sizeof name}, from = {(void *)(uintptr_t)address, sizeof name};

    return process_vm_readv(k->program, &to, 1, &from, 1, 0) == (ssize_t)sizeof name &&
           !memcmp(name, CAGE_DISK_NAME, sizeof name);
}

static int give_disk(const struct keeper *k, uint64_t id)
{
    struct seccomp_notif_addfd add = {
        .id = id,
        .flags = SECCOMP_ADDFD_FLAG_SETFD,
        .srcfd = (uint32_t)k->file,
        .newfd = CAGE_DISK_FD,
    };

    return ioctl(k->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
}

/* What the program's read() returns, or -errno. */
static int64_t read_disk(struct keeper *k, uint64_t address, uint64_t wanted)
{
    const off_t at = lseek(k->file, 0, SEEK_CUR);
    uint64_t done = 0;

    if (at < 0)
        return -EIO;
    if ((uint64_t)at >= k->disk->size)
        return 0;
    if (wanted > k->disk->size - (uint64_t)at)
        wanted = k->disk->size - (uint64_t)at;
    while (done < wanted) {
        const size_t n = wanted - done < PIECE ? (size_t)(wanted - done) : PIECE;
        struct iovec from = {k->piece, n}, to = {(void *)(uintptr_t)(address + done), n};

        if (disk_read(k->disk, (uint64_t)at + done, k->piece, n) < 0)
            return -EIO;
        if (process_vm_writev(k->program, &from, 1, &to, 1, 0) != (ssize_t)n)
            return -EFAULT;
        done += n;
    }
    return lseek(k->file, at + (off_t)done, SEEK_SET) < 0 ? -EIO : (int64_t)done;
}

/* What a program opens while it is started, of its own accord: libraries, and the disk. */
static bool opens_for_reading(const struct seccomp_notif *n)
{
    const uint64_t flags = n->data.args[n->data.nr == SYS_openat ? 2 : 1];

    return (flags & (O_ACCMODE | O_CREAT | O_TRUNC)) == O_RDONLY;
}

static void answer_request(struct keeper *k, const struct seccomp_notif *n,
                           struct seccomp_notif_resp *resp)
{
    const __u64 *const args = n->data.args;

    if (n->data.nr == SYS_read) {
        k->hostile = true;
        resp->val = read_disk(k, args[1], args[2]);
        if (resp->val < 0) {
            resp->error = (int32_t)resp->val;
            resp->val = 0;
        }
    } else if (k->hostile || (n->data.nr != SYS_execve && !opens_for_reading(n))) {
        resp->error = -EACCES;
    } else if (n->data.nr == SYS_openat && names_disk(k, args[1])) {
        resp->val = give_disk(k, n->id);
        if (resp->val < 0) {
            resp->error = -EIO;
            resp->val = 0;
        }
    } else {
        resp->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    }
}

/* Until the program has ended, which the listener says from Linux 6.11 on only. */
static void keep(struct keeper *k, int end)
{
    struct pollfd wanted[2] = {{k->listener, POLLIN, 0}, {end, POLLIN, 0}};

    for (;;) {
        union request request;
        union answer answer;

        if (poll(wanted, 2, -1) < 0) {
            if (errno != EINTR)
                return;
            continue;
        }
        if (wanted[1].revents)
            return;
        memset(&request, 0, sizeof request);
        if (ioctl(k->listener, SECCOMP_IOCTL_NOTIF_RECV, &request) < 0)
            continue; /* it was killed meanwhile */
        memset(&answer, 0, sizeof answer);
        answer.resp.id = request.notif.id;
        answer_request(k, &request.notif, &answer.resp);
        ioctl(k->listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

bool cage_keep(struct disk *disk, pid_t program, int listener)
{
    struct keeper *const k = calloc(1, sizeof *k);

    if (!k)
        return false;
    k->disk = disk;
    k->program = program;
    k->listener = listener;
    k->file = make_file(disk->size);
    const int end = (int)syscall(SYS_pidfd_open, program, 0);
    const bool ok = k->file >= 0 && end >= 0;
    if (ok)
        keep(k, end);
    free(k);
    return ok;
}
