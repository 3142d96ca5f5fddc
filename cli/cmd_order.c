#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "recording/meta.h"
#include "recording/order/access_batch.h"
#include "recording/order/access_text.h"
#include "recording/order/accesses.h"
#include "recording/order/order.h"
#include "recording/order/order_check.h"
#include "recording/order/order_objects.h"

struct result {
    const struct order_encoder *encoder;
    uint64_t constraints, bytes, compressed;
    double time, uneven;
};

/* What an encoder keeps of an object is some hundred bytes. */
#define OBJECTS_MAX (1u << 22)

/* Up to one more than there may be. */
static uint64_t count_objects(const struct access_list *list)
{
    struct order_objects objects;

    order_objects_init(&objects, 0);
    for (size_t i = 0; i < list->count && objects.count <= OBJECTS_MAX; i++)
        order_objects_get(&objects, list->at[i].object);
    const uint64_t count = objects.count;
    order_objects_free(&objects);
    return count;
}

static int check_objects(const struct access_list *list, const char *path, struct err *e)
{
    return count_objects(list) <= OBJECTS_MAX
               ? 0
               : err_set(e, STATUS_ERROR, "%s has more than %u objects", path, OBJECTS_MAX);
}

static int read_recording(struct access_list *list, const char *path, struct err *e)
{
    struct recording *r = recording_open(path, e);
    int rc = -1;

    if (!r)
        return -1;
    json_t *description = meta_load(r, e);
    const unsigned cpus = description ? meta_cpus(description) : 0;
    if (description && !cpus)
        err_set(e, STATUS_BAD_RECORDING, "%s does not say how many CPUs its machine has", path);
    if (cpus)
        rc = accesses_load(list, r, cpus, e);
    if (rc == 0 && !list->count)
        rc = err_set(e, STATUS_ERROR,
                     cpus == 1 ? "%s has one CPU: there is no order between CPUs"
                               : "%s holds no accesses to shared memory: its CPUs took turns",
                     path);
    if (rc == 0)
        rc = check_objects(list, path, e);
    if (rc == 0)
        access_list_sort_batches(list);
    json_decref(description);
    recording_close(r);
    return rc;
}

static int read_trace(struct access_list *list, const char *path, struct err *e)
{
    const bool is_stdin = !strcmp(path, "-");
    FILE *in = is_stdin ? stdin : fopen(path, "re");

    if (!in)
        return err_set(e, STATUS_ERROR, "cannot open %s: %s", path, strerror(errno));
    const char *name = is_stdin ? "standard input" : path;
    int rc = access_text_read(list, in, name, e);
    if (!is_stdin)
        fclose(in);
    return rc < 0 ? -1 : check_objects(list, name, e);
}

/* Encode, and replay what was encoded: at random, and as fast as it goes. */
static int measure(struct result *result, const struct access_list *list, struct err *e)
{
    struct order_log log;

    order_log_init(&log, list->vcpus);
    order_record(result->encoder, list, &log);
    result->constraints = log.constraints;
    result->bytes = order_log_bytes(&log);
    result->compressed = order_log_compressed(&log);
    int rc = order_check(result->encoder, &log, list, ORDER_SCHEDULE_RANDOM, 1, e);
    if (rc == 0)
        rc = order_time(result->encoder, &log, list, 0, &result->time, e);
    if (rc == 0)
        rc = order_time(result->encoder, &log, list, 1, &result->uneven, e);
    order_log_free(&log);
    return rc;
}

static int measure_all(struct result results[ORDER_ENCODERS], const struct access_list *list,
                       struct err *e)
{
    const bool progress = isatty(STDERR_FILENO);
    int rc = 0;

    for (unsigned i = 0; i < ORDER_ENCODERS && rc == 0; i++) {
        results[i] = (struct result){.encoder = order_encoders[i]};
        if (progress)
            fprintf(stderr, "\r%-8s", order_encoders[i]->name);
        rc = measure(&results[i], list, e);
    }
    if (progress)
        fprintf(stderr, "\r%-8s\r", "");
    return rc;
}

static uint64_t count_stores(const struct access_list *list)
{
    uint64_t stores = 0;

    for (size_t i = 0; i < list->count; i++)
        stores += list->at[i].store;
    return stores;
}

static void show(const struct result results[ORDER_ENCODERS], const struct access_list *list)
{
    const uint64_t stores = count_stores(list);

    printf("%zu accesses of %u vCPUs to %llu objects: %llu loads, %llu stores\n\n", list->count,
           list->vcpus, (unsigned long long)count_objects(list),
           (unsigned long long)(list->count - stores), (unsigned long long)stores);
    printf("%-7s %24s %12s %12s %8s %8s\n", "log", "made of", "bytes", "after zlib", "time",
           "uneven");
    for (unsigned i = 0; i < ORDER_ENCODERS; i++) {
        const struct result *r = &results[i];
        printf("%-7s %12llu %-11s %12llu %12llu %8.2f %8.2f\n", r->encoder->name,
               (unsigned long long)r->constraints, r->encoder->unit, (unsigned long long)r->bytes,
               (unsigned long long)r->compressed, r->time, r->uneven);
    }
}

static void show_json(const struct result results[ORDER_ENCODERS], const struct access_list *list)
{
    const uint64_t stores = count_stores(list);
    json_t *logs = json_array();

    for (unsigned i = 0; i < ORDER_ENCODERS; i++) {
        const struct result *r = &results[i];
        json_array_append_new(
            logs, json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:f}", "log", r->encoder->name, "unit",
                            r->encoder->unit, "constraints", (json_int_t)r->constraints, "bytes",
                            (json_int_t)r->bytes, "zlib_bytes", (json_int_t)r->compressed, "time",
                            r->time, "uneven_time", r->uneven));
    }
    json_t *j =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "accesses", (json_int_t)list->count, "loads",
                  (json_int_t)(list->count - stores), "stores", (json_int_t)stores, "objects",
                  (json_int_t)count_objects(list), "vcpus", (json_int_t)list->vcpus, "logs", logs);
    json_dumpf(j, stdout, JSON_SORT_KEYS | JSON_INDENT(2));
    putchar('\n');
    json_decref(j);
}

struct order_options {
    const char *trace;
    bool json;
};

static const struct option_entry options[] = {
    TEXT_OPTION(
        "trace", "FILE", struct order_options, trace,
        "the accesses are in a text file, one a line, in their order: VCPU load|store OBJECT "
        "[POINT], "
        "as "
        "in '1 store 0x2f', with vCPUs 0 to 7 and a time by the vCPU's own clock; '#' begins a "
        "comment; "
        "'-' is standard input"),
    FLAG_OPTION(0, "json", struct order_options, json, "as JSON"),
    END_OF_OPTIONS,
};

static int run(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    struct result results[ORDER_ENCODERS];
    struct access_list list = {0};
    struct order_options o = {0};

    (void)inv;
    const int first = options_parse(options, &o, argc, argv, e);
    if (first < 0)
        return -1;
    if (first != argc - !o.trace)
        return err_set(e, STATUS_USAGE,
                       "order: give one recording, or --trace alone (see dittovm "
                       "order --help)");
    int rc = o.trace ? read_trace(&list, o.trace, e) : read_recording(&list, argv[first], e);
    if (rc == 0)
        rc = measure_all(results, &list, e);
    if (rc == 0 && o.json)
        show_json(results, &list);
    else if (rc == 0)
        show(results, &list);
    access_list_free(&list);
    return rc;
}

const struct command command_order = {
    .name = "order",
    .summary = "compare logs of the order between vCPUs",
    .usage = "order [--json] REC\norder [--json] --trace FILE",
    .about =
        "Compares order logs: what a replay has to know of accesses to shared memory by vCPUs\n"
        "that ran at the same time, as Ditto, LEAP, JaRec and DejaVu write it, and by levels.\n"
        "For each: what it is made of, bytes, bytes after zlib, and how long a replay takes that\n"
        "waits for nothing else, by the time of the slowest vCPU alone: at the recording's pace,\n"
        "and at an uneven one. Each log is replayed and compared. docs/order.md says more.",
    .options = options,
    .run = run,
};
