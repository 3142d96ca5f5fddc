#include "recording/meta.h"

#include <string.h>

#include "base/limits.h"
#include "mmu/memory.h"

json_t *meta_load(const struct recording *recording, struct err *e)
{
    size_t len;
    const char *text = recording_meta(recording, &len);
    json_t *meta = json_loadb(text, len, 0, NULL);

    if (json_is_object(meta) && meta_memory(meta))
        return meta;
    json_decref(meta);
    err_set(e, STATUS_BAD_RECORDING, "%s is damaged: its description of the machine is incomplete",
            recording_path(recording));
    return NULL;
}

static const json_t *of_machine(const json_t *meta, const char *key)
{
    return json_object_get(json_object_get(meta, "machine"), key);
}

uint64_t meta_memory(const json_t *meta)
{
    const json_int_t memory = json_integer_value(of_machine(meta, "memory"));
    struct err impossible;

    return memory > 0 && guest_memory_check((uint64_t)memory, &impossible) == 0 ? (uint64_t)memory
                                                                                : 0;
}

unsigned meta_cpus(const json_t *meta)
{
    const json_int_t cpus = json_integer_value(of_machine(meta, "cpus"));

    return cpus > 0 && cpus <= MAX_VCPUS ? (unsigned)cpus : 0;
}

bool meta_is_crew(const json_t *meta)
{
    const char *smp = json_string_value(of_machine(meta, "smp"));

    return smp && !strcmp(smp, "crew") && meta_cpus(meta) > 1;
}

const char *meta_clock(const json_t *meta)
{
    return json_string_value(of_machine(meta, "clock"));
}

bool meta_owns_tsd(const json_t *meta)
{
    return json_is_true(of_machine(meta, "owns_tsd"));
}

uint32_t meta_mxcsr_mask(const json_t *meta)
{
    return (uint32_t)json_integer_value(of_machine(meta, "mxcsr_mask"));
}

const char *meta_frame_rf(const json_t *meta)
{
    const char *name = json_string_value(of_machine(meta, "frame_rf"));

    return name ? name : "none";
}

unsigned meta_nics(const json_t *meta, uint8_t macs[][MAC_BYTES])
{
    const json_t *nics = json_object_get(meta, "nics");
    const size_t count = json_array_size(nics) < MAX_NICS ? json_array_size(nics) : MAX_NICS;

    /* A text that is no address gives zeroes. */
    memset(macs, 0, count * sizeof *macs);
    for (size_t i = 0; i < count; i++) {
        const char *mac = json_string_value(json_object_get(json_array_get(nics, i), "mac"));
        (void)(mac && mac_parse(mac, macs[i]));
    }
    return (unsigned)count;
}

const json_t *meta_command(const json_t *meta)
{
    const json_t *command = json_object_get(meta, "command");

    return json_is_object(command) ? command : NULL;
}

uint64_t meta_epoch_ns(const json_t *meta)
{
    const json_int_t ns = json_integer_value(of_machine(meta, "epoch_ns"));

    return ns > 0 ? (uint64_t)ns : 0;
}

bool meta_begins_halted(const json_t *meta)
{
    return json_is_true(json_object_get(json_object_get(meta, "live_from"), "halted"));
}

/* A recording of one disk, and all before version 24, has no list. */
unsigned meta_disks(const json_t *meta)
{
    const size_t listed = json_array_size(json_object_get(meta, "disks"));

    if (listed)
        return listed < MAX_DISKS ? (unsigned)listed : MAX_DISKS;
    return json_object_get(meta, "disk") != NULL;
}

const json_t *meta_disk(const json_t *meta, unsigned index)
{
    const json_t *list = json_object_get(meta, "disks");

    return list ? json_array_get(list, index) : json_object_get(meta, "disk");
}
