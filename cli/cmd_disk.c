#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/stop_signals.h"
#include "base/text.h"
#include "cli/following.h"
#include "cli/playing.h"
#include "devices/disk/disk_image.h"
#include "recording/meta.h"
#include "replay/live/recorded_machine.h"

struct disk_options {
    struct snapshot_place place;
    const char *output, *format;
    struct disk_wish disks[MAX_DISKS];
    unsigned disk_count;
    uint64_t number; /* of the disk, from 1 on; 0: not said */
    bool force, quiet, json;
};

/* What is to be done, once the recording was looked into. */
struct disk_task {
    const struct disk_options *options;
    struct recording *recording;
    json_t *meta;
    unsigned index; /* of the disk */
    uint64_t at;    /* the sync point; UINT64_MAX: the end */
};

static int take_disk(void *into, const char *value, struct err *e)
{
    struct disk_options *o = into;

    return following_name_disk(o->disks, &o->disk_count, value, e);
}

static int take_format(void *into, const char *value, struct err *e)
{
    ((struct disk_options *)into)->format = value;
    return !strcmp(value, "qcow2") || !strcmp(value, "raw")
               ? 0
               : err_set(e, STATUS_USAGE, "--format takes qcow2 or raw, not '%s'", value);
}

static const struct option_entry options[] = {
    {.kind = OPTION_TEXT,
     .letter = 'o',
     .name = "output",
     .value = "IMG",
     .help = "the image to be made",
     .member = offsetof(struct disk_options, output)},
    CALL_OPTION(0, "format", "NAME", take_format,
                "its format, qcow2 or raw (default: by how its name ends, .qcow2, or .raw or "
                ".img)"),
    NUMBER_OPTION(OPTION_NUMBER, "number", "N", struct disk_options, number, 1, MAX_DISKS,
                  "the number of a disk, from 1 on",
                  "which disk: 1 is the machine's first (default: the only one that it could write "
                  "to)"),
    CALL_OPTION(0, "disk", "IMG", take_disk,
                "the disk image that was recorded with, where it is now; of several disks all, in "
                "their order (default: where they were)"),
    FLAG_OPTION('f', "force", struct disk_options, force, "overwrite an existing image"),
    FLAG_OPTION('q', "quiet", struct disk_options, quiet, "say nothing"),
    FLAG_OPTION(0, "json", struct disk_options, json, "say what was made as JSON"),
    END_OF_OPTIONS,
};

static const char *format_by_name(const char *path)
{
    static const struct {
        const char *end, *format;
    } formats[] = {{".qcow2", "qcow2"}, {".raw", "raw"}, {".img", "raw"}};
    const size_t len = strlen(path);

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (len > strlen(formats[i].end) &&
            !strcmp(path + len - strlen(formats[i].end), formats[i].end))
            return formats[i].format;
    return NULL;
}

static int parse(struct disk_options *o, int argc, char **argv, struct err *e)
{
    *o = (struct disk_options){0};
    const int first = options_parse(options, o, argc, argv, e);
    if (first < 0)
        return -1;
    if (first != argc - 1)
        return err_set(e, STATUS_USAGE, "disk: give one recording (see dittovm disk --help)");
    if (!o->output || !o->output[0])
        return err_set(e, STATUS_USAGE, "disk: give -o IMG, the image to be made");
    if (!o->format)
        o->format = format_by_name(o->output);
    if (!o->format)
        return err_set(e, STATUS_USAGE,
                       "disk: the name %s does not say the image's format; give --format qcow2 or "
                       "raw",
                       o->output);
    return snapshot_place_parse(argv[first], &o->place, e);
}

/* ---- what to do ---- */

/* Several could be meant: say which there are. */
static int refuse_to_guess(const struct disk_task *t, struct err *e)
{
    char list[512] = "";
    size_t len = 0;

    for (unsigned i = 0; i < meta_disks(t->meta) && len < sizeof list; i++) {
        const json_t *disk = meta_disk(t->meta, i);
        const char *path = json_string_value(json_object_get(disk, "path"));
        const char *slash = path ? strrchr(path, '/') : NULL;
        len +=
            (size_t)snprintf(list + len, sizeof list - len, "%s%u (%.100s%s)", i ? ", " : "", i + 1,
                             slash ? slash + 1 : "?",
                             json_is_true(json_object_get(disk, "read_only")) ? ", read-only" : "");
    }
    return err_set(e, STATUS_USAGE, "the machine in %s has several disks; choose with --number: %s",
                   t->options->place.path, list);
}

static int choose_disk(struct disk_task *t, struct err *e)
{
    const unsigned count = meta_disks(t->meta);
    const uint64_t number = t->options->number;
    unsigned writable = 0;

    if (!count)
        return err_set(e, STATUS_ERROR, "the machine in %s has no disk", t->options->place.path);
    if (number > count)
        return err_set(e, STATUS_USAGE, "the machine in %s has %u disk%s; there is no number %llu",
                       t->options->place.path, count, count == 1 ? "" : "s",
                       (unsigned long long)number);
    for (unsigned i = 0; i < count; i++) {
        if (json_is_true(json_object_get(meta_disk(t->meta, i), "read_only")))
            continue;
        writable++;
        t->index = i;
    }
    if (number)
        t->index = (unsigned)number - 1;
    return number || count == 1 || writable == 1 ? 0 : refuse_to_guess(t, e);
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat first, second;

    return a && stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* What is overwritten must not be what it is made of. */
static int check_output(const struct disk_task *t, struct err *e)
{
    const struct disk_options *o = t->options;
    const struct disk_image_making how = {.format = o->format, .overwrite = o->force};
    bool needed = is_same_file(o->place.path, o->output);

    for (unsigned i = 0; i < meta_disks(t->meta); i++)
        needed |= is_same_file(
            i < o->disk_count ? o->disks[i].path
                              : json_string_value(json_object_get(meta_disk(t->meta, i), "path")),
            o->output);
    return needed ? err_set(e, STATUS_USAGE, "disk: %s is what the image is made of", o->output)
                  : disk_image_check(o->output, &how, e);
}

static void task_close(struct disk_task *t)
{
    json_decref(t->meta);
    if (t->recording)
        recording_close(t->recording);
}

/* Refuse what cannot be before a long replay: outside the emulated host and, as nothing of it
 * remains, once more inside. */
static int task_open(struct disk_task *t, const struct disk_options *o, struct err *e)
{
    struct disk_doubt doubt; /* said where it is done */
    struct disk_set disks;

    *t = (struct disk_task){.options = o, .recording = recording_open(o->place.path, e)};
    if (!t->recording)
        return -1;
    t->meta = meta_load(t->recording, e);
    int rc = t->meta ? choose_disk(t, e) : -1;
    if (rc == 0 && meta_cpus(t->meta) > 1)
        rc = err_set(e, STATUS_ERROR,
                     "the machine in %s has several CPUs; the disk can only be had of one with a "
                     "single CPU",
                     o->place.path);
    if (rc == 0 && playing_find_point(t->recording, o->place.name, &t->at, e) == 0 &&
        check_output(t, e) == 0 &&
        recorded_disks_open(t->meta, o->disks, o->disk_count, o->place.path, &disks, &doubt, e) ==
            0)
        disk_set_close(&disks);
    else
        rc = -1;
    if (rc < 0)
        task_close(t);
    return rc;
}

/* ---- doing it ---- */

/* The replay stands where it is wanted, all that the guest has done to its disk by then done. 0; a
 * status otherwise, or -1. */
static int arrive(const struct disk_task *t, struct following *f, struct player *p, struct err *e)
{
    if (following_play(f, p, t->at, e) < 0)
        return -1;
    const int rc = playing_arrived(p, t->at, e);
    return rc ? rc : shadow_go_on(f->shadow, e);
}

static void say_progress(void *opaque, uint64_t done)
{
    const struct disk *disk = opaque;
    const unsigned step = 64u << 20;

    if (done == disk->size)
        fputs("\r\033[K", stderr);
    else if (done % step == 0)
        fprintf(stderr, "\rdittovm: %u%% written ", (unsigned)(100 * done / disk->size));
}

static void say(const struct disk_task *t, const struct player *p, const struct disk *disk,
                uint64_t bytes)
{
    const struct disk_options *o = t->options;
    const char *end = playing_which_end(p, t->at);

    if (o->json) {
        json_t *j =
            json_pack("{s:s, s:s, s:i, s:I, s:I, s:I}", "output", o->output, "format", o->format,
                      "number", (int)t->index + 1, "size", (json_int_t)disk->size, "bytes",
                      (json_int_t)bytes, "sync", (json_int_t)p->ordinal);
        char *text = j ? json_dumps(j, JSON_SORT_KEYS) : NULL;
        printf("%s\n", text ? text : "{}"); /* a name that is not UTF-8 */
        free(text);
        json_decref(j);
    } else if (!o->quiet) {
        text_print(stdout,
                   "dittovm: %s, %s: disk %u as it was at sync point %llu%s: %llu bytes, of which "
                   "%llu are not zero\n",
                   o->output, o->format, t->index + 1, (unsigned long long)p->ordinal, end,
                   (unsigned long long)disk->size, (unsigned long long)bytes);
    }
}

static int write_image(const struct disk_task *t, const struct player *p, struct disk *disk,
                       struct err *e)
{
    const struct disk_options *o = t->options;
    const bool progress = !o->quiet && isatty(STDERR_FILENO);
    const struct disk_image_making how = {
        .format = o->format,
        .overwrite = o->force,
        .stop = stop_signals_came(),
        .progress = progress ? say_progress : NULL,
        .opaque = disk,
    };
    uint64_t bytes;

    if (disk_image_make(disk, o->output, &how, &bytes, e) < 0)
        return -1;
    say(t, p, disk, bytes);
    return 0;
}

static int make(const struct disk_task *t, struct err *e)
{
    const struct disk_options *o = t->options;
    const struct following_request request = {
        .recording = o->place.path,
        .disks = o->disks,
        .disk_count = o->disk_count,
        .required = true,
        .disk_only = true,
        .quiet = o->quiet,
    };
    struct following f = {0};
    struct player p;

    if (player_open(&p, t->recording, NULL, e) < 0)
        return -1;
    int rc = following_begin(&f, &p, &request, t->at, e);
    if (rc == 0)
        rc = arrive(t, &f, &p, e);
    if (rc == 0)
        rc = write_image(t, &p, f.disks.disk[t->index], e);
    following_end(&f);
    player_close(&p);
    return rc;
}

static int run(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    struct disk_options o;
    struct disk_task task;
    struct host_needs needs;
    int status;

    if (parse(&o, argc, argv, e) < 0 || task_open(&task, &o, e) < 0)
        return -1;
    if (playing_point_needs(&o.place, o.output, &needs, e) < 0) {
        task_close(&task);
        return -1;
    }
    if (!host_redirect(inv, &needs, &status, e))
        status = make(&task, e);
    task_close(&task);
    return status;
}

const struct command command_disk = {
    .name = "disk",
    .summary = "write a disk as the guest had it, at any place of a recording, to an image",
    .usage = "disk [OPTIONS] -o IMG REC[@PLACE]",
    .about =
        "Makes an image of what was on a disk of the recorded machine: at a snapshot (see 'dittovm "
        "info')\n"
        "or behind the sync point of this number (see 'dittovm dump'); without PLACE at the end. "
        "A\n"
        "recording holds only what the guest has read and written, so the image that it was made\n"
        "with is needed, as it was. The image stands alone; it is there once it is whole.",
    .options = options,
    .run = run,
};
