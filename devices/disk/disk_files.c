#include "devices/disk/disk_files.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/disk/disk_format.h"

/* A longer chain is one that leads into itself. */
#define CHAIN_MAX 64u

/* QEMU's docs/interop/qcow2: all numbers are big-endian. */
#define QCOW2_NAME_MAX      1023u
#define QCOW2_HEADER_BYTES  4096u /* more than its extensions take */
#define QCOW2_V2_LENGTH     72u
#define QCOW2_EXTENSION_END 0u
#define QCOW2_DATA_FILE     0x44415441u

static uint64_t get_be(const uint8_t *bytes, unsigned len)
{
    uint64_t value = 0;

    while (len--)
        value = value << 8 | *bytes++;
    return value;
}

struct qcow2_names {
    char backing[QCOW2_NAME_MAX + 1], data[QCOW2_NAME_MAX + 1]; /* "": none */
};

static void find_data_file(const uint8_t *header, size_t len, struct qcow2_names *names)
{
    const uint64_t version = get_be(header + 4, 4);
    uint64_t at = version >= 3 && len >= 104 ? get_be(header + 100, 4) : QCOW2_V2_LENGTH;

    while (at + 8 <= len) {
        const uint64_t type = get_be(header + at, 4), size = get_be(header + at + 4, 4);
        at += 8;
        if (type == QCOW2_EXTENSION_END || size > len - at)
            return;
        if (type == QCOW2_DATA_FILE && size <= QCOW2_NAME_MAX) {
            memcpy(names->data, header + at, size);
            return;
        }
        at += (size + 7) / 8 * 8;
    }
}

/* What a qcow2 image says; nothing where it makes no sense, which is for qemu-nbd to tell. */
static void read_names(const char *path, struct qcow2_names *names)
{
    uint8_t header[QCOW2_HEADER_BYTES];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t len = fd < 0 ? -1 : pread(fd, header, sizeof header, 0);

    *names = (struct qcow2_names){0};
    if (len >= (ssize_t)QCOW2_V2_LENGTH && !memcmp(header, "QFI\xfb", 4)) {
        const uint64_t at = get_be(header + 8, 8), size = get_be(header + 16, 4);
        if (at && at <= INT64_MAX && size <= QCOW2_NAME_MAX &&
            pread(fd, names->backing, size, (off_t)at) != (ssize_t)size)
            names->backing[0] = '\0';
        find_data_file(header, (size_t)len, names);
    }
    if (fd >= 0)
        close(fd);
}

/* The file that an image calls so, as QEMU finds it: from the image's own directory. False: it is
 * no file's name, but a protocol's. */
static bool resolve(const char *image, const char *name, char path[PATH_MAX])
{
    const char *slash = strrchr(image, '/');

    if (!strncmp(name, "file:", 5))
        name += 5;
    const size_t word = strcspn(name, ":/");
    if (!name[0] || name[word] == ':')
        return false;
    const int directory = name[0] == '/' || !slash ? 0 : (int)(slash - image) + 1;
    return snprintf(path, PATH_MAX, "%.*s%s", directory, image, name) < PATH_MAX;
}

/* False: it is no regular file. */
static bool add(struct disk_files *files, const char *path, int overlay)
{
    struct stat st;

    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    struct disk_file *at = realloc(files->at, (files->count + 1) * sizeof *at);
    char *absolute = realpath(path, NULL);
    if (!at) {
        fprintf(stderr, "dittovm: out of memory\n");
        abort();
    }
    files->at = at;
    if (!absolute)
        return false;
    files->at[files->count++] = (struct disk_file){
        .path = absolute,
        .size = (uint64_t)st.st_size,
        .mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
        .overlay = overlay,
    };
    return true;
}

void disk_files_list(struct disk_files *files, const char *path, const char *format)
{
    char image[PATH_MAX], other[PATH_MAX];
    struct qcow2_names names;
    bool is_qcow2 = !format[0] || !strcmp(format, "qcow2");

    *files = (struct disk_files){0};
    if (snprintf(image, sizeof image, "%s", path) >= (int)sizeof image || !add(files, image, -1))
        return;
    for (unsigned i = 0; is_qcow2 && i < CHAIN_MAX; i++) {
        const int self = (int)files->count - 1;
        read_names(image, &names);
        if (names.data[0] && resolve(image, names.data, other))
            add(files, other, -1);
        if (!names.backing[0] || !resolve(image, names.backing, other) || !add(files, other, self))
            return;
        memcpy(image, other, sizeof image);
        is_qcow2 = !strcmp(disk_image_format(image), "qcow2");
    }
}

void disk_files_free(struct disk_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->at[i].path);
    free(files->at);
    *files = (struct disk_files){0};
}

const struct disk_file *disk_files_find_newer(const struct disk_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        const struct disk_file *file = &files->at[i];
        if (file->overlay >= 0 && file->mtime_ns > files->at[file->overlay].mtime_ns)
            return file;
    }
    return NULL;
}
