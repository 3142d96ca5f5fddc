#include "replay/live/recorded_machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/text.h"
#include "devices/disk/disk_files.h"
#include "devices/disk/disk_format.h"

#define SAMPLES    256u
#define HEAD_BYTES 65536u

/* ---- disks ---- */

void recorded_disk_digest(struct disk *disk, char text[RECORDED_DISK_DIGEST])
{
    uint8_t sample[HEAD_BYTES];
    uint64_t digest = disk->size;

    text[0] = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        const uint64_t at = disk->size / SAMPLES * i / DISK_SECTOR * DISK_SECTOR;
        const uint64_t left = disk->size - at, wanted = i ? 4096 : sizeof sample;
        const size_t len = left < wanted ? (size_t)left : (size_t)wanted;
        if (disk_read(disk, at, sample, len) < 0)
            return;
        digest = XXH3_64bits_withSeed(sample, len, digest);
    }
    snprintf(text, RECORDED_DISK_DIGEST, "%016llx", (unsigned long long)digest);
}

static int check_disk(const json_t *recorded, struct disk *disk, const char *path, struct err *e)
{
    const char *expected = json_string_value(json_object_get(recorded, "digest"));
    char digest[RECORDED_DISK_DIGEST];

    recorded_disk_digest(disk, digest);
    if (expected &&
        json_integer_value(json_object_get(recorded, "size")) == (json_int_t)disk->size &&
        !strcmp(digest, expected))
        return 0;
    return err_set(e, STATUS_ERROR,
                   "%s is not the disk image that was recorded with, or has changed since; give "
                   "the right one with --disk",
                   path);
}

json_t *recorded_disk_files(const char *path, const char *format)
{
    json_t *list = json_array();
    struct disk_files files;
    bool ok = true;

    disk_files_list(&files, path, format);
    for (size_t i = 0; i < files.count; i++)
        ok &=
            json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "path", files.at[i].path,
                                                  "size", (json_int_t)files.at[i].size, "mtime_ns",
                                                  (json_int_t)files.at[i].mtime_ns)) == 0;
    disk_files_free(&files);
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

static bool is_as_it_was(const json_t *before, const struct disk_file *file)
{
    return (uint64_t)json_integer_value(json_object_get(before, "size")) == file->size &&
           json_integer_value(json_object_get(before, "mtime_ns")) == file->mtime_ns;
}

/* What is said of the file that was at this path, or NULL. */
static const json_t *find_file(const json_t *files, const char *path)
{
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *file = json_array_get(files, i);
        const char *there = json_string_value(json_object_get(file, "path"));
        if (there && !strcmp(there, path))
            return file;
    }
    return NULL;
}

/*
 * The files of one image, number `i` of which is compared. Where it lies where it lay, it is the
 * same one or has changed, unless it is what --disk names. A backing file somewhere else may be a
 * copy.
 */
static int check_file(const json_t *before, const struct disk_files *now, size_t i, bool named,
                      struct disk_doubt *doubt, struct err *e)
{
    const struct disk_file *file = &now->at[i];
    const json_t *same = find_file(before, file->path);
    const json_t *other = i ? json_array_get(before, i) : NULL;

    if (!same && !other)
        return 0; /* --disk names a copy, or one that has no more such files */
    if (is_as_it_was(same ? same : other, file))
        return 0;
    if (same && i)
        return err_set(e, STATUS_ERROR,
                       "%s, of which %s is made, has changed since it was recorded with; give "
                       "unchanged copies of both with --disk",
                       file->path, now->at[0].path);
    if (same && !named)
        return err_set(e, STATUS_ERROR,
                       "%s has changed since it was recorded with; give an unchanged copy with "
                       "--disk",
                       file->path);
    if (!doubt->text[0])
        snprintf(doubt->text, sizeof doubt->text,
                 "%.*s has another size or time than what was recorded with: what the guest has "
                 "not read is compared in samples only",
                 text_fitting(file->path, 800), file->path);
    return 0;
}

/* Recordings of before have no list of files, nor have block devices. */
static int check_files(const json_t *recorded, const struct disk_wish *wish, bool named,
                       struct disk_doubt *doubt, struct err *e)
{
    const json_t *before = json_object_get(recorded, "files");
    struct disk_files now;
    int rc = 0;

    if (!before)
        return 0;
    disk_files_list(&now, wish->path, wish->format);
    for (size_t i = 0; rc == 0 && i < now.count; i++)
        rc = check_file(before, &now, i, named, doubt, e);
    disk_files_free(&now);
    return rc;
}

/* What is said of one of them, as a wish. */
static void recall_disk(const json_t *recorded, struct disk_wish *wish)
{
    const char *path = json_string_value(json_object_get(recorded, "path"));
    const char *serial = json_string_value(json_object_get(recorded, "serial"));

    const char *format = json_string_value(json_object_get(recorded, "format"));
    const json_int_t size = json_integer_value(json_object_get(recorded, "size"));

    *wish = (struct disk_wish){
        .read_only = json_is_true(json_object_get(recorded, "read_only")),
        .size = size > 0 && (uint64_t)size <= DISK_SIZE_MAX ? (uint64_t)size : 0,
    };
    snprintf(wish->path, sizeof wish->path, "%s", path ? path : "");
    snprintf(wish->serial, sizeof wish->serial, "%s", serial ? serial : "");
    snprintf(wish->format, sizeof wish->format, "%s",
             format && disk_format_known(format) ? format : "");
}

static int find_disks(const json_t *meta, const struct disk_wish *now, unsigned count,
                      struct disk_wish wishes[MAX_DISKS], struct err *e)
{
    for (unsigned i = 0; i < meta_disks(meta); i++) {
        recall_disk(meta_disk(meta, i), &wishes[i]);
        if (count)
            memcpy(wishes[i].path, now[i].path, sizeof wishes[i].path);
        if (access(wishes[i].path, R_OK) < 0)
            return err_set(e, STATUS_ERROR,
                           "cannot open %s, the disk image that was recorded with; say where it is "
                           "with --disk",
                           wishes[i].path);
    }
    return 0;
}

int recorded_disks_open(const json_t *meta, const struct disk_wish *now, unsigned count,
                        const char *recording, struct disk_set *set, struct disk_doubt *doubt,
                        struct err *e)
{
    const unsigned disks = meta_disks(meta);
    struct disk_wish wishes[MAX_DISKS];

    *set = (struct disk_set){0};
    doubt->text[0] = '\0';
    if (meta_command(meta))
        return err_set(e, STATUS_ERROR,
                       "the machine in %s ran a command (--root), and its root was a directory, of "
                       "which the recording has only what was read: its disk cannot be had again",
                       recording);
    if (!disks && count)
        return err_set(e, STATUS_ERROR, "the machine in %s has no disk: give no disk image",
                       recording);
    if (count && count != disks)
        return err_set(e, STATUS_ERROR, "the machine in %s has %u disk%s: say where all are",
                       recording, disks, disks == 1 ? "" : "s");
    if (find_disks(meta, now, count, wishes, e) < 0)
        return -1;
    for (unsigned i = 0; i < disks; i++)
        if (check_files(meta_disk(meta, i), &wishes[i], count > 0, doubt, e) < 0)
            return -1;
    if (disk_set_open(set, wishes, disks, false, e) < 0)
        return -1;
    for (unsigned i = 0; i < disks; i++) {
        if (check_disk(meta_disk(meta, i), set->disk[i], wishes[i].path, e) < 0) {
            disk_set_close(set);
            return -1;
        }
    }
    return 0;
}

/* ---- the kernel's code ---- */

void recorded_trust_code(const json_t *meta, struct machine *m)
{
    const json_t *ranges = json_object_get(json_object_get(meta, "boot"), "code");

    for (size_t i = 0; i < json_array_size(ranges); i++) {
        const json_t *range = json_array_get(ranges, i);
        machine_trust_code(m, (uint64_t)json_integer_value(json_array_get(range, 0)),
                           (uint64_t)json_integer_value(json_array_get(range, 1)),
                           (uint64_t)json_integer_value(json_array_get(range, 2)));
    }
}

void recorded_kernel_code(const json_t *meta, struct kernel_code *code)
{
    const json_t *j = json_object_get(json_object_get(meta, "boot"), "kernel_code");
    const json_t *entries = json_object_get(j, "entries");

    *code = (struct kernel_code){
        .patched = (unsigned)json_integer_value(json_object_get(j, "patched")),
        .module_hook = (uint64_t)json_integer_value(json_object_get(j, "module_hook")),
        .kexec_hook = (uint64_t)json_integer_value(json_object_get(j, "kexec_hook")),
        .start = (uint64_t)json_integer_value(json_object_get(j, "start")),
        .end = (uint64_t)json_integer_value(json_object_get(j, "end")),
        .entries =
            {
                .gs_offset = (uint64_t)json_integer_value(json_object_get(entries, "gs_offset")),
                .start = (uint64_t)json_integer_value(json_object_get(entries, "start")),
                .end = (uint64_t)json_integer_value(json_object_get(entries, "end")),
                .sites = (unsigned)json_integer_value(json_object_get(entries, "sites")),
            },
    };
}
