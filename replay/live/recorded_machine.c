#include "replay/live/recorded_machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

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
                        const char *recording, struct disk_set *set, struct err *e)
{
    const unsigned disks = meta_disks(meta);
    struct disk_wish wishes[MAX_DISKS];

    *set = (struct disk_set){0};
    if (!disks && count)
        return err_set(e, STATUS_ERROR, "the machine in %s has no disk: give no disk image",
                       recording);
    if (count && count != disks)
        return err_set(e, STATUS_ERROR, "the machine in %s has %u disk%s: say where all are",
                       recording, disks, disks == 1 ? "" : "s");
    if (find_disks(meta, now, count, wishes, e) < 0 ||
        disk_set_open(set, wishes, disks, false, e) < 0)
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
