#include "cli/description.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/version.h"
#include "devices/disk/disk_tree.h"
#include "replay/live/recorded_machine.h"
#include "vmm/kvm/frame_rf.h"
#include "vmm/kvm/vcpu_state.h"

#define RECORDER "dittovm " DITTO_VERSION

/* ---- disks ---- */

static json_t *absolute_path(const char *path)
{
    char *absolute = realpath(path, NULL);
    json_t *j = json_string(absolute ? absolute : path);

    free(absolute);
    return j;
}

/* NULL: its name is not valid UTF-8. */
static json_t *describe_disk(const struct run_options *o, const struct disk_wish *wish,
                             struct disk *disk)
{
    char digest[RECORDED_DISK_DIGEST];

    if (!strcmp(wish->format, DISK_TREE_FORMAT)) /* its files may change at any time */
        return json_pack("{s:o, s:I}", "path", absolute_path(o->unit.root), "size",
                         (json_int_t)disk->size);
    recorded_disk_digest(disk, digest);
    return json_pack("{s:o, s:I, s:s, s:o}", "path", absolute_path(wish->path), "size",
                     (json_int_t)disk->size, "digest", digest, "files",
                     recorded_disk_files(wish->path, wish->format));
}

/* One that is like none before is "disk"; others are listed. False: a name is not valid UTF-8. */
static bool describe_disks(json_t *description, const struct run_options *o,
                           const struct disk_set *set)
{
    const bool plain = set->count == 1 && !o->disks[0].read_only && !o->disks[0].serial[0] &&
                       !o->disks[0].format[0];
    json_t *list = plain ? NULL : json_array();

    for (unsigned i = 0; i < set->count; i++) {
        json_t *disk = describe_disk(o, &o->disks[i], set->disk[i]);
        if (!disk) {
            json_decref(list);
            return false;
        }
        if (plain) {
            json_object_set_new(description, "disk", disk);
            break;
        }
        json_object_set_new(disk, "read_only", json_boolean(o->disks[i].read_only));
        json_object_set_new(disk, "serial", json_string(set->serial[i]));
        if (o->disks[i].format[0])
            json_object_set_new(disk, "format", json_string(o->disks[i].format));
        json_array_append_new(list, disk);
    }
    if (set->count && !plain)
        json_object_set(description, "disks", list);
    json_decref(list);
    return true;
}

/* ---- what it was made from, for who makes such a machine again ---- */

/* False: a name is not valid UTF-8. */
static bool describe_origin(json_t *description, const struct run_options *o)
{
    json_t *boot = json_object_get(description, "boot");

    if (o->domain_name)
        json_object_set_new(description, "domain", domain_pack(&o->domain));
    if (!o->kernel)
        return true;
    if (o->append)
        json_object_set_new(boot, "append", json_string(o->append));
    return json_object_set_new(boot, "kernel_file", absolute_path(o->kernel)) == 0 &&
           (!o->initrd || json_object_set_new(boot, "initrd_file", absolute_path(o->initrd)) == 0);
}

/* ---- NICs ---- */

static void describe_nics(json_t *description, const struct run_options *o, const struct machine *m)
{
    json_t *nics = m->config.nic_count ? json_array() : NULL;

    for (unsigned i = 0; i < m->config.nic_count; i++) {
        const uint8_t *mac = m->config.nics[i].mac;
        json_t *address = json_sprintf("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2],
                                       mac[3], mac[4], mac[5]);
        const char *kind = i < o->net_count ? net_spec_kind(&o->nets[i]) : "none";
        json_array_append_new(nics, json_pack("{s:o, s:s}", "mac", address, "net", kind));
    }
    if (nics)
        json_object_set_new(description, "nics", nics);
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
    json_object_set_new(machine, "mxcsr_mask", json_integer(vcpu_mxcsr_mask()));
    json_object_set_new(machine, "frame_rf", json_string(frame_rf_name(frame_rf_here())));
    json_object_set_new(machine, "epoch_ns", json_integer((json_int_t)m->pc.time.epoch_ns));
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
    if (description)
        describe_nics(description, o, m);
    if (description && o->unit.root)
        json_object_set_new(description, "command", command_unit_describe(&o->unit));
    if (description &&
        (!describe_disks(description, o, &s->disks) || !describe_origin(description, o))) {
        json_decref(description);
        return NULL;
    }
    return text_of(description);
}

char *description_of_live(const struct run_options *o, const json_t *before, uint64_t sync,
                          const struct machine *m)
{
    json_t *description = json_deep_copy(before);
    json_t *from = json_pack("{s:s, s:I}", "recording", o->from.path, "sync", (json_int_t)sync);

    if (!from) {
        json_decref(description);
        return NULL;
    }
    if (m->cpu->state == CPU_HALTED)
        json_object_set_new(from, "halted", json_true());
    json_object_set_new(description, "live_from", from);
    json_object_set_new(description, "recorder", json_string(RECORDER));
    json_object_set_new(description, "time", json_integer((json_int_t)time(NULL)));
    json_t *machine = json_object_get(description, "machine");
    json_object_set_new(machine, "clock", json_string(m->cpu->clock.ops->name));
    json_object_del(machine, "slow");
    json_object_del(machine, "executes");
    describe_options(machine, o, m);
    describe_nics(description, o, m);
    for (unsigned i = 0; i < o->disk_count; i++) { /* they are elsewhere now */
        json_t *disk = (json_t *)(uintptr_t)meta_disk(description, i);
        const char *format = json_string_value(json_object_get(disk, "format"));
        json_object_set_new(disk, "path", absolute_path(o->disks[i].path));
        json_object_set_new(disk, "files",
                            recorded_disk_files(o->disks[i].path, format ? format : ""));
    }
    return text_of(description);
}
