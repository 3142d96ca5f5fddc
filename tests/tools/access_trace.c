/*
 * access-trace [KEY=VALUE...]: writes accesses of vCPUs to shared counters, made up as Ditto's
 * microbenchmark makes them (tests/unit/recording/order/access_pattern.h), as text for `dittovm
 * order --trace`; or with recording=FILE as a recording that holds nothing else.
 *
 *   vcpus=4           1 to 8
 *   accesses=10000    of each vCPU
 *   objects=1         that are shared
 *   loads=500         of 1000 accesses
 *   own=0             of 1000 accesses: to an object that is the vCPU's alone
 *   again=0           of 1000 accesses: to the object that the vCPU accessed last
 *   turn=0            accesses until the next vCPU's turn; 0: after each a random one's
 *   work=0            not 0: time between two accesses of a vCPU, at random up to twice so many
 * points; whose turn it is follows from it idle=0            of 1000 such times: 100 times as long
 *   transitions=0     1: only those that change who may access the object
 *   seed=1
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "recording/order/access_text.h"
#include "recording/streams.h"
#include "recording/writer.h"
#include "tests/unit/recording/order/access_pattern.h"

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "access-trace: %s (see the head of tests/tools/access_trace.c)\n", what);
    exit(STATUS_USAGE);
}

static void write_recording(const char *path, const struct access_list *list)
{
    struct err e = {0};
    struct access_codec codec = {0};
    struct bytes stream = {0};
    char meta[96];
    const int len = snprintf(meta, sizeof meta,
                             "{\"machine\": {\"cpus\": %u, \"memory\": 16777216}}", list->vcpus);
    struct recording_writer *w = writer_create(path, true, &e);

    for (size_t i = 0; i < list->count; i++)
        access_encode(&stream, &codec, &list->at[i]);
    if (!w || writer_meta(w, meta, (size_t)len, &e) < 0 ||
        writer_put(w, STREAM_ACCESSES, stream.data, stream.len) < 0 || writer_epoch(w, &e) < 0 ||
        writer_finish(w, 0, "made up", &e) < 0)
        die(e.text);
    bytes_free(&stream);
}

int main(int argc, char **argv)
{
    struct access_pattern p = {.vcpus = 4, .accesses = 10000, .objects = 1, .loads = 500};
    unsigned seed = 1, transitions = 0;
    const char *recording = NULL;
    const struct {
        const char *name;
        unsigned *value;
        unsigned min, max;
    } keys[] = {
        {"vcpus", &p.vcpus, 1, MAX_VCPUS},  {"accesses", &p.accesses, 1, ACCESSES_MAX / MAX_VCPUS},
        {"objects", &p.objects, 1, 999999}, {"loads", &p.loads, 0, 1000},
        {"own", &p.own, 0, 1000},           {"again", &p.again, 0, 1000},
        {"work", &p.work, 0, 1u << 20},     {"idle", &p.idle, 0, 1000},
        {"turn", &p.turn, 0, 1u << 30},     {"transitions", &transitions, 0, 1},
        {"seed", &seed, 0, UINT32_MAX},
    };
    struct access_list list = {0};

    for (int i = 1; i < argc; i++) {
        const size_t len = strcspn(argv[i], "=");
        uint64_t value = 0;
        unsigned k = 0;
        if (!strncmp(argv[i], "recording=", len + 1)) {
            recording = argv[i] + len + 1;
            continue;
        }
        while (k < sizeof keys / sizeof *keys &&
               (strlen(keys[k].name) != len || strncmp(argv[i], keys[k].name, len)))
            k++;
        if (k == sizeof keys / sizeof *keys || !argv[i][len] ||
            parse_number(argv[i] + len + 1, keys[k].max, &value) < 0 || value < keys[k].min)
            die(argv[i]);
        *keys[k].value = (unsigned)value;
    }
    p.transitions = transitions;
    pattern_make(&p, seed, &list);
    if (recording)
        write_recording(recording, &list);
    for (size_t i = 0; !recording && i < list.count; i++)
        access_text_write(stdout, &list.at[i]);
    access_list_free(&list);
    return fflush(stdout) == 0 ? STATUS_OK : STATUS_ERROR;
}
