#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/command_unit/command_unit.h"
#include "cli/place_table.h"
#include "recording/doubts.h"
#include "recording/landings.h"
#include "recording/meta.h"
#include "recording/reader.h"
#include "recording/places/snapshot_list.h"
#include "recording/streams.h"
#include "vmm/kvm/frame_rf.h"

static const struct {
    const char *name;
    enum stream_kind kind;
} streams[] = {
    {"sync points", STREAM_SYNCS},
    {"inputs", STREAM_INPUTS},
    {"time stamps", STREAM_TSC},
    {"events", STREAM_EVENTS},
};

/* The description in the recording, with what the file itself tells added to it. */
static json_t *collect(const struct recording *r)
{
    size_t len;
    const char *text = recording_meta(r, &len);
    json_t *j = json_loadb(text, len, 0, NULL);
    json_t *sizes = json_object();

    if (!json_is_object(j)) {
        json_decref(j);
        j = json_object();
    }
    for (unsigned i = 0; i < sizeof streams / sizeof *streams; i++) {
        unsigned id = streams[i].kind;
        json_object_set_new(sizes, streams[i].name,
                            json_pack("{s:I, s:I}", "raw",
                                      (json_int_t)recording_stream_length(r, id), "stored",
                                      (json_int_t)recording_stored_bytes(r, BLOCK_STREAM, id)));
    }
    json_object_set_new(sizes, "memory and disk pages",
                        json_pack("{s:I, s:I}", "raw", (json_int_t)recording_chunks(r) * 4096,
                                  "stored",
                                  (json_int_t)recording_stored_bytes(r, BLOCK_CHUNKS, 0)));
    json_object_set_new(j, "bytes", sizes);
    json_object_set_new(j, "file_bytes", json_integer((json_int_t)recording_file_size(r)));
    json_object_set_new(j, "format", json_integer(recording_version(r)));
    json_object_set_new(j, "complete", json_boolean(recording_complete(r)));
    json_object_set_new(j, "in_progress", json_boolean(recording_in_progress(r)));
    const struct end_record *end = recording_end(r);
    if (end)
        json_object_set_new(j, "end", json_string(end->reason));
    const int status = end ? command_unit_status_of(end->reason) : -1;
    if (status >= 0)
        json_object_set_new(j, "status", json_integer(status));
    return j;
}

static const char *text_of(json_t *j, const char *section, const char *key)
{
    json_t *in = section ? json_object_get(j, section) : j;
    const char *text = json_string_value(json_object_get(in, key));

    return text ? text : "unknown";
}

static void add_doubt(void *opaque, const struct doubt *doubt)
{
    json_array_append_new(opaque, json_pack("{s:I, s:s}", "sync_point", (json_int_t)doubt->ordinal,
                                            "text", doubt->text));
}

static void show_doubts(json_t *doubts)
{
    json_t *doubt;
    size_t i;

    json_array_foreach(doubts, i, doubt) text_print(
        stdout, "  %-13s %s (sync point %lld)\n", i ? "" : "unsure", text_of(doubt, NULL, "text"),
        (long long)json_integer_value(json_object_get(doubt, "sync_point")));
}

static void show_nics(json_t *nics)
{
    json_t *nic;
    size_t i;

    json_array_foreach(nics, i, nic) text_print(
        stdout, "  NIC %-9zu %s, %s\n", i, text_of(nic, NULL, "mac"), text_of(nic, NULL, "net"));
}

/* Its words as a shell would want them, more or less: those with a blank in them are in quotes. */
static void show_command(json_t *command)
{
    struct bytes line = {0};
    json_t *word;
    size_t i;

    if (!command)
        return;
    json_array_foreach(json_object_get(command, "argv"), i, word)
    {
        const char *text = json_string_value(word) ? json_string_value(word) : "?";
        const char *quote = !*text || text[strcspn(text, " \t\n\"\\$&;|<>()*?")] ? "'" : "";
        bytes_put(&line, " '", i ? 1 : 0);
        bytes_put(&line, quote, strlen(quote));
        bytes_put(&line, text, strlen(text));
        bytes_put(&line, quote, strlen(quote));
    }
    text_print(stdout, "  command       %.*s, in %s\n", (int)line.len, (const char *)line.data,
               text_of(command, NULL, "root"));
    bytes_free(&line);
}

static void show(json_t *j, const char *path)
{
    json_t *machine = json_object_get(j, "machine"), *value;
    const char *name;
    time_t when = (time_t)json_integer_value(json_object_get(j, "time"));
    char date[64] = "unknown";
    struct tm tm;

    if (when && gmtime_r(&when, &tm))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &tm);
    text_print(stdout, "%s\n", path);
    text_print(stdout, "  recorded      %s by %s, format %lld\n", date,
               text_of(j, NULL, "recorder"),
               (long long)json_integer_value(json_object_get(j, "format")));
    text_print(stdout, "  machine       %lld CPU %s%s, %lld MiB, clock %s",
               (long long)json_integer_value(json_object_get(machine, "cpus")),
               text_of(j, "machine", "cpu"),
               json_object_get(machine, "smp") ? " at the same time" : "",
               (long long)json_integer_value(json_object_get(machine, "memory")) >> 20,
               text_of(j, "machine", "clock"));
    if ((value = json_object_get(machine, "slow")))
        printf(", --slow %lld", (long long)json_integer_value(value));
    if (json_object_get(machine, "chaos"))
        text_print(stdout, ", --chaos %s", text_of(j, "machine", "chaos"));
    putchar('\n');
    if (json_object_get(j, "domain"))
        text_print(stdout, "  domain        %s, UUID %s\n", text_of(j, "domain", "name"),
                   text_of(j, "domain", "uuid"));
    show_nics(json_object_get(j, "nics"));
    text_print(stdout, "  booted        %s\n", text_of(j, "boot", "from"));
    if ((value = json_object_get(j, "live_from")))
        text_print(stdout, "  went live     from sync point %lld of %s\n",
                   (long long)json_integer_value(json_object_get(value, "sync")),
                   text_of(j, "live_from", "recording"));
    text_print(stdout, "  kernel        %s\n", text_of(j, "boot", "kernel"));
    show_command(json_object_get(j, "command"));
    text_print(stdout, "  command line  %s\n", text_of(j, "boot", "command_line"));
    text_print(stdout, "  ended         %s\n",
               json_is_true(json_object_get(j, "complete")) ? text_of(j, NULL, "end")
               : json_is_true(json_object_get(j, "in_progress"))
                   ? "not yet: it is being recorded; what there is so far replays"
                   : "the recorder was killed; it replays to its last whole block");
    show_doubts(json_object_get(j, "unsure"));
    if (json_object_get(machine, "executes"))
        text_print(stdout,
                   "  not recorded  what a program gets of %s, which CPUID hides and this CPU "
                   "executes\n",
                   text_of(j, "machine", "executes"));
    if ((value = json_object_get(machine, "mxcsr_mask")))
        printf("  replays on    any CPU, a guest that uses FXSAVE on one with MXCSR_MASK %#llx\n",
               (long long)json_integer_value(value));
    if (frame_rf_named(text_of(j, "machine", "frame_rf")) != FRAME_RF_UNKNOWN)
        text_print(stdout,
                   "  RF            is set in frames of %s: a guest that takes faults replays on "
                   "CPUs that do so\n",
                   text_of(j, "machine", "frame_rf"));
    printf("  file          %lld bytes\n",
           (long long)json_integer_value(json_object_get(j, "file_bytes")));
    json_object_foreach(json_object_get(j, "bytes"), name, value)
        printf("    %-22s %12lld bytes, %12lld stored\n", name,
               (long long)json_integer_value(json_object_get(value, "raw")),
               (long long)json_integer_value(json_object_get(value, "stored")));
}

static int show_all(const struct recording *r, const char *path, bool as_json, struct err *e)
{
    struct snapshot_list list;
    struct mark_list marks = {0};

    if (snapshot_list_load(&list, r, e) < 0)
        return -1;
    json_t *j = collect(r), *doubts = json_array();
    json_object_set_new(j, "unsure", doubts);
    if (mark_list_load(&marks, r, e) < 0 || doubts_read(r, add_doubt, doubts, e) < 0) {
        snapshot_list_free(&list);
        mark_list_free(&marks);
        json_decref(j);
        return -1;
    }
    if (meta_cpus(j) != 1 || meta_command(j)) /* no such machine goes live (replay/live/live.c) */
        for (size_t i = 0; i < list.count; i++)
            list.at[i].live = 0;
    if (as_json) {
        json_object_set_new(j, "snapshots", snapshot_table_json(&list));
        json_object_set_new(j, "marks", mark_table_json(&marks));
        json_object_set_new(j, "boots", boot_table_json(&marks));
        json_dumpf(j, stdout, JSON_SORT_KEYS | JSON_INDENT(2) | JSON_ENSURE_ASCII);
        putchar('\n');
    } else {
        show(j, path);
        snapshot_table_show(&list);
        boot_table_show(&marks);
        mark_table_show(&marks);
    }
    snapshot_list_free(&list);
    mark_list_free(&marks);
    json_decref(j);
    return 0;
}

static int show_landings(const struct recording *r, bool as_json, struct err *e)
{
    struct landing_log log;

    if (landing_log_load(&log, r, e) < 0)
        return -1;
    if (!log.clock[0]) {
        landing_log_free(&log);
        return err_set(e, STATUS_ERROR,
                       "%s does not say yet what its landings cost; dittovm verify --landings %s "
                       "finds out",
                       recording_path(r), recording_path(r));
    }
    if (as_json) {
        json_t *j = landing_log_json(&log);
        json_dumpf(j, stdout, JSON_SORT_KEYS | JSON_INDENT(2) | JSON_ENSURE_ASCII);
        putchar('\n');
        json_decref(j);
    } else {
        landing_log_print(&log, stdout);
    }
    landing_log_free(&log);
    return 0;
}

struct info_options {
    bool json, landings;
};

static const struct option_entry options[] = {
    FLAG_OPTION(
        0, "landings", struct info_options, landings,
        "what finding each forced point again has cost, in the last replay that noted it in the "
        "recording (the first whole one does)"),
    FLAG_OPTION(0, "json", struct info_options, json, "as JSON"),
    END_OF_OPTIONS,
};

static int run(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    struct info_options o = {false};

    (void)inv;
    const int first = options_parse(options, &o, argc, argv, e);
    if (first < 0)
        return -1;
    if (first != argc - 1)
        return err_set(e, STATUS_USAGE, "info: give one recording (see dittovm info --help)");
    struct recording *r = recording_open(argv[first], e);
    if (!r)
        return -1;
    int rc = recording_verify_all(r, e);
    if (rc == 0)
        rc = o.landings ? show_landings(r, o.json, e) : show_all(r, argv[first], o.json, e);
    recording_close(r);
    return rc;
}

const struct command command_info = {
    .name = "info",
    .summary = "say what a recording holds, and check its file",
    .usage = "info [OPTIONS] REC",
    .about = "Says what a recording holds: the machine, how it was booted, how it ended, where its "
             "bytes go,\n"
             "its snapshots (live: run --from can begin at it), its boots and marks. Every block "
             "of the file is checked.",
    .options = options,
    .run = run,
};
