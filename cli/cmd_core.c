#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/now.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "base/whole_file.h"
#include "base/x86.h"
#include "cli/playing.h"
#include "replay/core_compressed.h"
#include "replay/core_file.h"

struct core_options {
    struct snapshot_place place;
    const char *output;
    bool compress, force, quiet, json;
};

/* What is to be done, once the recording was looked into. */
struct core_task {
    const struct core_options *options;
    struct recording *recording;
    struct symbol_list symbols;
    uint64_t at; /* the sync point; UINT64_MAX: the end */
};

static const struct option_entry options[] = {
    {.kind = OPTION_TEXT,
     .letter = 'o',
     .name = "output",
     .value = "FILE",
     .help = "the core to be made",
     .member = offsetof(struct core_options, output)},
    FLAG_OPTION('c', "compress", struct core_options, compress,
                "in the format of kdump's makedumpfile, for crash and drgn"),
    FLAG_OPTION('f', "force", struct core_options, force, "overwrite an existing file"),
    FLAG_OPTION('q', "quiet", struct core_options, quiet, "say nothing"),
    FLAG_OPTION(0, "json", struct core_options, json, "say what was made as JSON"),
    END_OF_OPTIONS,
};

static int parse(struct core_options *o, int argc, char **argv, struct err *e)
{
    *o = (struct core_options){0};
    const int first = options_parse(options, o, argc, argv, e);
    if (first < 0)
        return -1;
    if (first != argc - 1)
        return err_set(e, STATUS_USAGE, "core: give one recording (see dittovm core --help)");
    if (!o->output || !o->output[0])
        return err_set(e, STATUS_USAGE, "core: give -o FILE, the core to be made");
    return snapshot_place_parse(argv[first], &o->place, e);
}

/* ---- what to do ---- */

static int check_output(const struct core_options *o, struct err *e)
{
    struct stat own, other;

    if (stat(o->place.path, &own) == 0 && stat(o->output, &other) == 0 &&
        own.st_dev == other.st_dev && own.st_ino == other.st_ino)
        return err_set(e, STATUS_USAGE, "core: %s is the recording itself", o->output);
    return whole_file_check(o->output, o->force, e);
}

static void task_close(struct core_task *t)
{
    symbol_list_free(&t->symbols);
    if (t->recording)
        recording_close(t->recording);
}

/* Refuse what cannot be before a long replay: outside the emulated host and, as nothing of it
 * remains, once more inside. */
static int task_open(struct core_task *t, const struct core_options *o, struct err *e)
{
    *t = (struct core_task){.options = o, .recording = recording_open(o->place.path, e)};
    if (!t->recording)
        return -1;
    if (playing_find_point(t->recording, o->place.name, &t->at, e) == 0 &&
        check_output(o, e) == 0 && symbol_list_load(&t->symbols, t->recording, e) == 0)
        return 0;
    task_close(t);
    return -1;
}

/* ---- doing it ---- */

/* The replay stands where it is wanted, the instruction that led there done. 0; a status otherwise,
 * or -1. */
static int arrive(const struct core_task *t, struct player *p, struct err *e)
{
    const bool progress = !t->options->quiet && isatty(STDERR_FILENO);

    if (playing_begin(p, "", t->at, e) < 0)
        return -1;
    if (!(p->at_sync && p->ordinal >= t->at) && playing_run(p, t->at, progress, e) < 0)
        return -1;
    const int rc = playing_arrived(p, t->at, e);
    return rc ? rc : player_finish_exit(p, e);
}

static void find_kernel(const struct core_task *t, const struct player *p,
                        const struct vcpu_state *cpus, struct core_kernel *kernel)
{
    uint64_t roots[MAX_VCPUS];
    unsigned count = 0;

    for (unsigned i = 0; i < p->cpu_count; i++)
        if (cpus[i].sregs.efer & EFER_LMA)
            roots[count++] = cpus[i].sregs.cr3;
    core_kernel_find(kernel, &p->vm.memory, &t->symbols, roots, count, p->cpu_count);
}

static void say_progress(void *opaque, uint64_t done)
{
    const struct guest_memory *m = opaque;

    fprintf(stderr, "\rdittovm: %u%% written ", (unsigned)(100 * done / m->size));
}

static void say(const struct core_task *t, const struct player *p, const struct core *core,
                uint64_t bytes, double seconds)
{
    const struct core_options *o = t->options;
    const struct core_kernel *k = core->kernel;
    const char *end = playing_which_end(p, t->at);

    if (o->json) {
        json_t *j = json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:f}", "output", o->output, "cpus",
                              (int)core->cpu_count, "memory", (json_int_t)core->memory->size,
                              "bytes", (json_int_t)bytes, "vmcoreinfo", (json_int_t)k->info_len,
                              "sync", (json_int_t)p->ordinal, "seconds", seconds);
        char *text = j ? json_dumps(j, JSON_SORT_KEYS) : NULL;
        printf("%s\n", text ? text : "{}"); /* a name that is not UTF-8 */
        free(text);
        json_decref(j);
    } else if (!o->quiet) {
        text_print(stdout,
                   "dittovm: %s: the machine as it was at sync point %llu%s: %llu bytes of memory, "
                   "of which %llu are not zero; written in %.1f s\n",
                   o->output, (unsigned long long)p->ordinal, end,
                   (unsigned long long)core->memory->size, (unsigned long long)bytes, seconds);
    }
    if (!o->quiet && k->without)
        text_print(stderr, "dittovm: there is no VMCOREINFO in %s, which crash and drgn want: %s\n",
                   o->output, k->without);
}

static int write_core(const struct core_task *t, struct player *p, const struct core *core,
                      struct err *e)
{
    const struct core_options *o = t->options;
    const bool progress = !o->quiet && isatty(STDERR_FILENO);
    struct core_output out = {
        .path = o->output,
        .stop = stop_signals_came(),
        .progress = progress ? say_progress : NULL,
        .opaque = &p->vm.memory,
    };
    struct whole_file file;

    if (whole_file_begin(&file, o->output, e) < 0)
        return -1;
    out.fd = file.fd;
    const uint64_t began = host_now_ns();
    int rc = o->compress ? core_compressed_write(core, &out, e) : core_file_write(core, &out, e);
    if (progress)
        fputs("\r\033[K", stderr);
    rc = whole_file_end(&file, rc == 0, e);
    if (rc == 0)
        say(t, p, core, out.bytes, (double)(host_now_ns() - began) / 1e9);
    return rc;
}

static int take_core(const struct core_task *t, struct player *p, struct err *e)
{
    struct vcpu_state cpus[MAX_VCPUS];
    struct core_kernel kernel;
    const struct core core = {
        .memory = &p->vm.memory,
        .cpus = cpus,
        .cpu_count = p->cpu_count,
        .kernel = &kernel,
    };

    for (unsigned i = 0; i < p->cpu_count; i++)
        if (vcpu_state_get(&p->cpus[i].vcpu, &cpus[i], e) < 0)
            return -1;
    find_kernel(t, p, cpus, &kernel);
    const int rc = write_core(t, p, &core, e);
    core_kernel_free(&kernel);
    return rc;
}

static int make(const struct core_task *t, struct err *e)
{
    struct player p;

    if (player_open(&p, t->recording, NULL, e) < 0)
        return -1;
    int rc = arrive(t, &p, e);
    if (rc == 0)
        rc = take_core(t, &p, e);
    player_close(&p);
    return rc;
}

static int run(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    struct core_options o;
    struct core_task task;
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

const struct command command_core = {
    .name = "core",
    .summary = "write a core of the machine, at any place of a recording, for crash and gdb",
    .usage = "core [OPTIONS] -o FILE REC[@PLACE]",
    .about =
        "Writes memory and registers of the recorded machine as an ELF core, as kdump does: at a\n"
        "snapshot or a mark, mark:TEXT (see 'dittovm info'), or behind the sync point of this "
        "number (see 'dittovm "
        "dump');\n"
        "without PLACE at the end. crash, drgn and gdb read it, with the debug symbols of the "
        "guest's\n"
        "kernel. Nothing beside the recording is needed. The core is there once it is whole.",
    .options = options,
    .run = run,
};
