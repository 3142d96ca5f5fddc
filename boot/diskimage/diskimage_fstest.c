#include "boot/diskimage/diskimage_fstest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/now.h"
#include "base/program.h"
#include "boot/diskimage/cage.h"
#include "boot/diskimage/diskimage_loader.h"

#define PROGRAM "grub-fstest"
/* For all that is asked about a disk: a kernel and its initrd take a second at most. */
#define ALL_SECONDS     60u
#define QUESTIONS_MAX   2000u
#define LISTING_MAX     ((size_t)1 << 20)
#define DIRECTORIES_MAX 256u /* that are remembered */

struct fstest {
    struct disk *disk;
    char program[4096];
    uint64_t deadline;
    unsigned questions;
};

/* Names of a directory, as the tool has them: each with a space behind it, directories with a
 * slash, too. */
struct directory {
    char *path;
    struct bytes names;
};

struct fstest_fs {
    struct fstest *tool;
    char device[VOLUME_DEVICE_MAX];
    struct directory directories[DIRECTORIES_MAX];
    size_t count;
};

struct fstest *fstest_new(struct disk *disk, struct err *e)
{
    struct fstest *const t = calloc(1, sizeof *t);

    if (!t) {
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    t->disk = disk;
    t->deadline = host_now_ns() + ALL_SECONDS * 1000000000ull;
    if (!program_find(PROGRAM, t->program, sizeof t->program)) {
        err_set(e, STATUS_ERROR, PROGRAM " is not installed; run 'apt-get install grub-common'");
        free(t);
        return NULL;
    }
    return t;
}

void fstest_free(struct fstest *t)
{
    free(t);
}

/* Run `grub-fstest DISK -- COMMAND ARGUMENT`. 0 when it did that, -1 with *e when it cannot be run
 * here. */
static int ask(struct fstest *t, const char *command, const char *argument, size_t limit,
               struct bytes *out, struct err *e)
{
    char *argv[] = {t->program,
                    (char *)(uintptr_t)CAGE_DISK_NAME,
                    (char *)(uintptr_t) "--",
                    (char *)(uintptr_t)command,
                    (char *)(uintptr_t)argument,
                    NULL};

    if (t->questions++ >= QUESTIONS_MAX)
        return CAGE_STOPPED;
    return cage_run(t->disk, argv, t->deadline, limit, out, e);
}

/* A file or directory of the file system, and no other device: GRUB takes what is in the first
 * parentheses for it, whatever the path holds. */
static int ask_path(struct fstest_fs *fs, const char *command, const char *path, size_t limit,
                    struct bytes *out)
{
    char whole[VOLUME_DEVICE_MAX + VOLUME_PATH_MAX + 8];
    struct err unused = {0};

    snprintf(whole, sizeof whole, "(%s)%s", fs->device, path);
    return ask(fs->tool, command, whole, limit, out, &unused);
}

static bool may_exist(struct fstest_fs *fs, const char *path);

/* The names of a directory; NULL when there is no such one. Each is asked for once. */
static const struct bytes *names_of(struct fstest_fs *fs, const char *path)
{
    char inside[VOLUME_PATH_MAX + 1];

    for (size_t i = 0; i < fs->count; i++)
        if (!strcmp(fs->directories[i].path, path))
            return &fs->directories[i].names;
    if ((strcmp(path, "/") != 0 && !may_exist(fs, path)) || fs->count == DIRECTORIES_MAX)
        return NULL;
    struct directory *const d = &fs->directories[fs->count];
    if (!(d->path = strdup(path)))
        return NULL;
    fs->count++;
    /* It lists what is in a directory when there is a slash behind its name. */
    snprintf(inside, sizeof inside, "%s%s", path, strcmp(path, "/") != 0 ? "/" : "");
    if (ask_path(fs, "ls", inside, LISTING_MAX, &d->names) != 0)
        bytes_clear(&d->names);
    return &d->names;
}

/* Names may hold spaces. FAT does not tell capitals from others, so nobody does here: it is for
 * not asking in vain. */
static bool has_name(const struct bytes *names, const char *name)
{
    const char *const text = (const char *)names->data;
    const size_t len = strlen(name);

    for (size_t at = 0; len && at + len < names->len; at++)
        if ((at == 0 || text[at - 1] == ' ') && (text[at + len] == ' ' || text[at + len] == '/') &&
            !strncasecmp(text + at, name, len))
            return true;
    return false;
}

/* Whether its directory has such a name. */
static bool may_exist(struct fstest_fs *fs, const char *path)
{
    const char *const slash = strrchr(path, '/');
    char parent[VOLUME_PATH_MAX];

    if (!slash || strlen(path) >= sizeof parent)
        return false;
    if (slash == path)
        snprintf(parent, sizeof parent, "/");
    else
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
    const struct bytes *const names = names_of(fs, parent);
    return names && has_name(names, slash + 1);
}

static bool fstest_exists(void *fs, const char *path)
{
    return may_exist(fs, path);
}

static int fstest_read(void *fs, const char *path, size_t limit, struct bytes *out)
{
    return may_exist(fs, path) && ask_path(fs, "cat", path, limit, out) == 0 ? 0 : -1;
}

static void fstest_list(void *fs, const char *path, void (*fn)(void *context, const char *name),
                        void *context)
{
    const struct bytes *const names = names_of(fs, path);
    char *const copy = names ? strndup((const char *)names->data, names->len) : NULL;

    for (char *rest = copy, *name; rest && (name = strsep(&rest, " \n"));) {
        const size_t len = strlen(name);
        if (len && name[len - 1] == '/')
            name[len - 1] = '\0';
        if (*name && !strchr(name, '/'))
            fn(context, name);
    }
    free(copy);
}

static void fstest_close(void *opaque)
{
    struct fstest_fs *const fs = opaque;

    for (size_t i = 0; i < fs->count; i++) {
        free(fs->directories[i].path);
        bytes_free(&fs->directories[i].names);
    }
    free(fs);
}

static const struct volume_ops fstest_ops = {
    .exists = fstest_exists,
    .read = fstest_read,
    .list = fstest_list,
    .close = fstest_close,
};

static int by_name(const void *a, const void *b)
{
    return version_compare(((const struct volume *)a)->device, ((const struct volume *)b)->device);
}

size_t fstest_volumes(struct fstest *t, struct volume *out, size_t max, struct err *e)
{
    struct bytes said = {0};
    const int rc = ask(t, "ls", "-l", LISTING_MAX, &said, e);
    struct text_span rest = {(const char *)said.data, said.len}, line;
    size_t count = 0;

    if (rc > 0)
        err_set(e, STATUS_ERROR, PROGRAM " cannot read it");
    while (rc == 0 && count < max && loader_next_line(&rest, &line)) {
        struct fstest_device found;
        struct fstest_fs *const fs =
            fstest_parse_device(line.at, line.len, &found) ? calloc(1, sizeof *fs) : NULL;
        if (!fs)
            continue;
        fs->tool = t;
        memcpy(fs->device, found.grub, sizeof fs->device);
        out[count] = (struct volume){.ops = &fstest_ops, .fs = fs};
        memcpy(out[count].device, found.device, sizeof found.device);
        memcpy(out[count].uuid, found.uuid, sizeof found.uuid);
        count++;
    }
    bytes_free(&said);
    qsort(out, count, sizeof *out, by_name);
    return count;
}
