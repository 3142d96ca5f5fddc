/*
 * Images that are not raw (qcow2 with its backing files, vmdk, vdi, vhdx, vhd): qemu-nbd knows
 * them, a process of ours that ends with us, and libnbd talks to it.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libnbd.h>

#include "base/program.h"
#include "devices/disk/disk_format.h"
#include "devices/disk/qemu_img.h"

/* The library is loaded by who needs it: with its own (GnuTLS, libxml2) it is larger than we are.
 */
#define LIBRARY "libnbd.so.0"
#define FUNCTIONS(X)                                                                               \
    X(nbd_create)                                                                                  \
    X(nbd_close)                                                                                   \
    X(nbd_connect_systemd_socket_activation)                                                       \
    X(nbd_get_size)                                                                                \
    X(nbd_is_read_only)                                                                            \
    X(nbd_pread)                                                                                   \
    X(nbd_pwrite)                                                                                  \
    X(nbd_flush)                                                                                   \
    X(nbd_zero)                                                                                    \
    X(nbd_trim)
/* Of what is zeroed or discarded, at a time. */
#define PIECE (64ull << 20)

static struct {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} lib;

struct nbd {
    struct disk disk;
    struct nbd_handle *handle;
};

static struct nbd_handle *handle_of(struct disk *disk)
{
    return ((struct nbd *)disk)->handle;
}

static int nbd_disk_read(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    return lib.nbd_pread(handle_of(disk), data, len, offset, 0);
}

static int nbd_disk_write(struct disk *disk, uint64_t offset, const void *data, size_t len)
{
    return lib.nbd_pwrite(handle_of(disk), data, len, offset, 0);
}

static int nbd_disk_flush(struct disk *disk)
{
    return lib.nbd_flush(handle_of(disk), 0);
}

static int nbd_disk_zero(struct disk *disk, uint64_t offset, uint64_t len)
{
    for (uint64_t at = 0; at < len; at += PIECE)
        if (lib.nbd_zero(handle_of(disk), len - at < PIECE ? len - at : PIECE, offset + at, 0) < 0)
            return -1;
    return 0;
}

static int nbd_disk_discard(struct disk *disk, uint64_t offset, uint64_t len)
{
    for (uint64_t at = 0; at < len; at += PIECE)
        if (lib.nbd_trim(handle_of(disk), len - at < PIECE ? len - at : PIECE, offset + at, 0) < 0)
            return -1;
    return 0;
}

static void nbd_disk_close(struct disk *disk)
{
    lib.nbd_close(handle_of(disk));
    free(disk);
}

static const struct disk_ops nbd_ops = {
    .read = nbd_disk_read,
    .write = nbd_disk_write,
    .flush = nbd_disk_flush,
    .zero = nbd_disk_zero,
    .discard = nbd_disk_discard,
    .close = nbd_disk_close,
};

static int load_library(const char *format, struct err *e)
{
    static void *library;

    if (library)
        return 0;
    library = dlopen(LIBRARY, RTLD_NOW);
    if (!library)
        return err_set(e, STATUS_ERROR,
                       LIBRARY ", which %s images need, cannot be loaded; run 'apt-get install "
                               "libnbd0'",
                       format);
#define LOAD(name)                                                                                 \
    if (!(lib.name = (__typeof__(lib.name))dlsym(library, #name)))                                 \
        return err_set(e, STATUS_ERROR, LIBRARY " has no " #name);
    FUNCTIONS(LOAD)
#undef LOAD
    return 0;
}

/* Start qemu-nbd on the image and connect to it. Its messages go to where they can be told from. */
static int connect_to(struct nbd_handle *handle, const char *path, const char *format,
                      bool writable, struct err *e)
{
    static const int signals[] = {SIGINT, SIGQUIT, SIGHUP, SIGTERM};
    char format_option[32], said_text[512];
    char file[QEMU_FILE_BYTES];
    char *args[] = {"qemu-nbd", format_option, writable ? "--discard=unmap" : "--read-only",
                    "--",       file,          NULL};
    sigset_t terminal, old;
    const int said = memfd_create("qemu-nbd", MFD_CLOEXEC);
    const int own = said < 0 ? -1 : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);

    qemu_file_name(path, file);
    snprintf(format_option, sizeof format_option, "--format=%s", format);
    if (own < 0 || dup2(said, STDERR_FILENO) < 0) {
        close(said);
        return err_set(e, STATUS_ERROR, "cannot start qemu-nbd for %s", path);
    }
    /* It ends with us: the terminal's signals are for the machine, which may have to write on. */
    sigemptyset(&terminal);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&terminal, signals[i]);
    pthread_sigmask(SIG_BLOCK, &terminal, &old);
    const int rc = lib.nbd_connect_systemd_socket_activation(handle, args);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    dup2(own, STDERR_FILENO);
    close(own);
    if (rc < 0)
        qemu_tool_said(said, "qemu-nbd", said_text, sizeof said_text);
    close(said);
    return rc < 0 ? err_set(e, STATUS_ERROR, "cannot use disk image %s (%s): %s", path, format,
                            said_text[0] ? said_text : "qemu-nbd ended")
                  : 0;
}

struct disk *disk_nbd_open(const char *path, const char *format, bool writable, struct err *e)
{
    char program[4096];

    if (!program_find("qemu-nbd", program, sizeof program)) {
        err_set(e, STATUS_ERROR,
                "%s is a %s image, which needs qemu-nbd; run 'apt-get install qemu-utils'", path,
                format);
        return NULL;
    }
    if (load_library(format, e) < 0)
        return NULL;
    struct nbd *nbd = calloc(1, sizeof *nbd);
    struct nbd_handle *handle = nbd ? lib.nbd_create() : NULL;
    if (!handle) {
        free(nbd);
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    nbd->handle = handle;
    int64_t size = -1;
    if (connect_to(handle, path, format, writable, e) == 0) {
        size = lib.nbd_get_size(handle);
        if (size < (int64_t)DISK_SECTOR)
            err_set(e, STATUS_ERROR, "cannot use disk image %s: it is empty", path);
    }
    if (size < (int64_t)DISK_SECTOR) {
        lib.nbd_close(handle);
        free(nbd);
        return NULL;
    }
    nbd->disk = (struct disk){
        .ops = &nbd_ops,
        .size = (uint64_t)size / DISK_SECTOR * DISK_SECTOR,
        .read_only = !writable || lib.nbd_is_read_only(handle) == 1,
        .hidden = (unsigned)((uint64_t)size % DISK_SECTOR),
    };
    return &nbd->disk;
}
