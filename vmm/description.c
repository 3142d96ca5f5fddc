#include "vmm/description.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "vmm/version.h"

#define SAMPLES    256u
#define HEAD_BYTES 65536u
#define RECORDER   "dittovm " DITTO_VERSION

/* ---- the disk ---- */

/* Of sizes and samples (see the header), in hexadecimal; "" when the disk cannot be read. */
static void disk_digest(struct disk *disk, char text[17])
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
    snprintf(text, 17, "%016llx", (unsigned long long)digest);
}

static json_t *describe_disk(const char *path, struct disk *disk)
{
    char *absolute = realpath(path, NULL), digest[17];

    disk_digest(disk, digest);
    json_t *j = json_pack("{s:s, s:I, s:s}", "path", absolute ? absolute : path, "size",
                          (json_int_t)disk->size, "digest", digest);
    free(absolute);
    return j;
}

const char *description_disk(const json_t *description)
{
    return json_string_value(json_object_get(json_object_get(description, "disk"), "path"));
}

int description_check_disk(const json_t *description, struct disk *disk, const char *path,
                           struct err *e)
{
    const json_t *recorded = json_object_get(description, "disk");
    const char *expected = json_string_value(json_object_get(recorded, "digest"));
    char digest[17];

    disk_digest(disk, digest);
    if (expected &&
        json_integer_value(json_object_get(recorded, "size")) == (json_int_t)disk->size &&
        !strcmp(digest, expected))
        return 0;
    return err_set(e, STATUS_ERROR,
                   "%s is not the disk image that was recorded with, or has changed since; give "
                   "the right one with --disk",
                   path);
}

int description_open_disk(const json_t *description, const char *path, const char *recording,
                          struct disk **disk, struct err *e)
{
    const char *recorded = description_disk(description);

    *disk = NULL;
    if (!recorded && path)
        return err_set(e, STATUS_ERROR, "the machine in %s has no disk: give no disk image",
                       recording);
    if (!recorded)
        return 0;
    path = path ? path : recorded;
    if (access(path, R_OK) < 0)
        return err_set(e, STATUS_ERROR,
                       "cannot open %s, the disk image that was recorded with; say where it is "
                       "with --disk",
                       path);
    struct disk *image = disk_raw_open(path, false, e);
    if (!image)
        return -1;
    if (description_check_disk(description, image, path, e) < 0) {
        disk_close(image);
        return -1;
    }
    *disk = disk_overlay_new(image, e);
    return *disk ? 0 : -1;
}

/* ---- the kernel's code ---- */

static json_t *describe_code(const struct machine *m)
{
    const struct stable_code *stable = &m->clock_host.stable;
    json_t *ranges = json_array();

    for (unsigned i = 0; i < stable->count; i++)
        json_array_append_new(ranges, json_pack("[I, I, I]", (json_int_t)stable->range[i].va,
                                                (json_int_t)stable->range[i].gpa,
                                                (json_int_t)stable->range[i].len));
    return ranges;
}

void description_trust_code(const json_t *description, struct machine *m)
{
    const json_t *ranges = json_object_get(json_object_get(description, "boot"), "code");

    for (size_t i = 0; i < json_array_size(ranges); i++) {
        const json_t *range = json_array_get(ranges, i);
        machine_trust_code(m, (uint64_t)json_integer_value(json_array_get(range, 0)),
                           (uint64_t)json_integer_value(json_array_get(range, 1)),
                           (uint64_t)json_integer_value(json_array_get(range, 2)));
    }
}

/* ---- all of it ---- */

static char *text_of(json_t *description)
{
    char *text = description ? json_dumps(description, JSON_SORT_KEYS) : NULL;

    json_decref(description);
    return text;
}

/* What of its options says how it ran, where that is not as ever. */
static void describe_options(json_t *machine, const struct run_options *o, const struct machine *m)
{
    if (m->config.parallel)
        json_object_set_new(machine, "smp", json_string("crew"));
    if (o->slow > 1)
        json_object_set_new(machine, "slow", json_integer((json_int_t)o->slow));
    if (o->cpu_executes && o->cpu_executes[0])
        json_object_set_new(machine, "executes", json_string(o->cpu_executes));
    if (o->chaos && o->cpus > 1) /* all 64 bits, which JSON's numbers need not have */
        json_object_set_new(machine, "chaos", json_sprintf("%llu", (unsigned long long)o->chaos));
}

/* What dittovm has made of the kernel's code. */
static json_t *describe_kernel_code(const struct kernel_code *code)
{
    const struct entry_count *entries = &code->entries;

    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:i}}", "patched",
                     (int)code->patched, "module_hook", (json_int_t)code->module_hook, "kexec_hook",
                     (json_int_t)code->kexec_hook, "start", (json_int_t)code->start, "end",
                     (json_int_t)code->end, "entries", "gs_offset", (json_int_t)entries->gs_offset,
                     "start", (json_int_t)entries->start, "end", (json_int_t)entries->end, "sites",
                     (int)entries->sites);
}

void description_kernel_code(const json_t *description, struct kernel_code *code)
{
    const json_t *j = json_object_get(json_object_get(description, "boot"), "kernel_code");
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

bool description_owns_tsd(const json_t *description)
{
    return json_is_true(json_object_get(json_object_get(description, "machine"), "owns_tsd"));
}

char *description_of_boot(const struct run_options *o, const struct run_sources *s,
                          const struct machine *m, const struct machine_boot *boot)
{
    json_t *description = json_pack(
        "{s:s, s:{s:I, s:i, s:s, s:s, s:s, s:b}, s:{s:s, s:s, s:s, s:o, s:o}, s:I}", "recorder",
        RECORDER, "machine", "memory", (json_int_t)o->memory, "cpus", (int)o->cpus, "cpu",
        "ditto-v1", "clock", m->cpu->clock.ops->name, "console", "16550 at 0x3f8", "owns_tsd",
        (int)m->config.owns_tsd, "boot", "from", s->description, "kernel", boot->version,
        "command_line", s->command_line, "kernel_code", describe_kernel_code(&m->kernel_code),
        "code", describe_code(m), "time", (json_int_t)time(NULL));

    if (description)
        describe_options(json_object_get(description, "machine"), o, m);
    if (description && s->disk) {
        json_t *disk = describe_disk(o->disk, s->disk);
        if (!disk) {
            json_decref(description);
            return NULL;
        }
        json_object_set_new(description, "disk", disk);
    }
    return text_of(description);
}

char *description_of_live(const struct run_options *o, const json_t *before, uint64_t sync,
                          const char *disk, const struct machine *m)
{
    json_t *description = json_deep_copy(before);
    json_t *from = json_pack("{s:s, s:I}", "recording", o->from.path, "sync", (json_int_t)sync);

    if (!from) {
        json_decref(description);
        return NULL;
    }
    json_object_set_new(description, "live_from", from);
    json_object_set_new(description, "recorder", json_string(RECORDER));
    json_object_set_new(description, "time", json_integer((json_int_t)time(NULL)));
    json_t *machine = json_object_get(description, "machine");
    json_object_set_new(machine, "clock", json_string(m->cpu->clock.ops->name));
    json_object_del(machine, "slow");
    json_object_del(machine, "executes");
    describe_options(machine, o, m);
    if (disk) {
        char *absolute = realpath(disk, NULL);
        json_object_set_new(json_object_get(description, "disk"), "path",
                            json_string(absolute ? absolute : disk));
        free(absolute);
    }
    return text_of(description);
}

json_t *description_load(const struct recording *recording, struct err *e)
{
    size_t len;
    const char *text = recording_meta(recording, &len);
    json_t *description = json_loadb(text, len, 0, NULL);

    if (json_is_object(description) && description_memory(description))
        return description;
    json_decref(description);
    err_set(e, STATUS_BAD_RECORDING, "%s is damaged: its description of the machine is incomplete",
            recording_path(recording));
    return NULL;
}

uint64_t description_memory(const json_t *description)
{
    const json_t *machine = json_object_get(description, "machine");
    const json_int_t memory = json_integer_value(json_object_get(machine, "memory"));
    struct err impossible;

    return memory > 0 && guest_memory_check((uint64_t)memory, &impossible) == 0 ? (uint64_t)memory
                                                                                : 0;
}

unsigned description_cpus(const json_t *description)
{
    const json_t *machine = json_object_get(description, "machine");
    const json_int_t cpus = json_integer_value(json_object_get(machine, "cpus"));

    return cpus > 0 && cpus <= MAX_VCPUS ? (unsigned)cpus : 0;
}
