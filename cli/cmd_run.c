#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/now.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/description.h"
#include "cli/run_options.h"
#include "cli/run_sources.h"
#include "cli/run_to_end.h"
#include "host/doctor/doctor.h"
#include "host/host_net.h"
#include "recording/meta.h"
#include "replay/live/live.h"
#include "vmm/kvm/frame_rf.h"
#include "vmm/machine/machine.h"

static void stop_arriving(void *opaque)
{
    live_interrupt(opaque);
}

static struct recorder *start_recording(const struct run_options *o, const struct run_sources *s,
                                        struct machine *m, const struct machine_boot *boot,
                                        struct err *e)
{
    if (m->kernel_code.doubt[0] && !o->unsure) {
        err_set(e, STATUS_ERROR,
                "this kernel cannot be recorded exactly: %s; give --unsure to record it all the "
                "same, or leave --record out",
                m->kernel_code.doubt);
        return NULL;
    }
    char *meta = description_of_boot(o, s, m, boot);
    struct recorder *recorder;

    if (!meta) {
        err_set(e, STATUS_ERROR,
                "the kernel's or the image's name, or the command line, is not valid UTF-8");
        return NULL;
    }
    recorder = recorder_create(o->recording, o->force, meta, e);
    free(meta);
    recorder_symbols(recorder, &boot->symbols);
    if (recorder && machine_record(m, recorder, e) < 0) {
        recorder_abort(recorder);
        return NULL;
    }
    return recorder;
}

/* How a machine runs, whatever it is. */
static struct machine_config machine_config_of(const struct run_options *o)
{
    return (struct machine_config){
        .cpu_doubt = o->cpu_doubt,
        .clock = o->clock,
        .slow = o->slow,
        .wall_ns = o->rtc_now ? machine_wall_ns() : o->rtc_ns,
        .grace_ns = o->grace_ms * 1000000u,
        .digest_ns = o->digest_s * 1000000000u,
        .snapshot_ns = o->checkpoint_s * 1000000000u,
    };
}

/* Plug in what --net says; `count` NICs, those without one nowhere. */
static int plug_nets(const struct run_options *o, struct machine_config *config, unsigned count,
                     struct err *e)
{
    for (; config->nic_count < count; config->nic_count++) {
        struct nic_config *nic = &config->nics[config->nic_count];
        nic->fd = -1;
        if (config->nic_count < o->net_count &&
            host_net_open(&o->nets[config->nic_count], config->nic_count, &nic->fd, e) < 0)
            return -1;
    }
    return 0;
}

static void draw_random(uint8_t *bytes, size_t len)
{
    while (getrandom(bytes, len, 0) != (ssize_t)len)
        continue; /* so few come at once, or a signal came */
}

/* An address of this machine's own (IEEE 802: locally administered), or the one asked for. */
static void give_macs(const struct run_options *o, struct machine_config *config)
{
    for (unsigned i = 0; i < o->net_count; i++) {
        uint8_t *mac = config->nics[i].mac;
        memcpy(mac, (const uint8_t[]){0x52, 0x54, 0x00}, 3);
        draw_random(mac + 3, MAC_BYTES - 3);
        if (o->nets[i].has_mac)
            memcpy(mac, o->nets[i].mac, MAC_BYTES);
    }
}

/* streams: of the command that the machine runs; NULL: it runs none. */
static int run_sources(const struct run_options *o, struct run_sources *s, struct console *console,
                       struct command_streams *streams, struct err *e)
{
    struct machine m;
    struct machine_boot boot;
    struct recorder *recorder = NULL;
    struct machine_config config = machine_config_of(o);
    uint64_t start = host_now_ns();

    config.memory = o->memory;
    config.cpus = (unsigned)o->cpus;
    config.chaos = o->chaos;
    config.parallel = o->crew && o->cpus > 1;
    config.loose = o->loose;
    config.kernel = s->kernel;
    config.kernel_len = s->kernel_len;
    config.initrd = s->initrd;
    config.initrd_len = s->initrd_len;
    config.command_line = s->command_line;
    config.disks = &s->disks;
    config.command = streams;
    config.owns_tsd = true;
    config.reboots = o->reboots;

    give_macs(o, &config);
    if (plug_nets(o, &config, o->net_count, e) < 0)
        return -1;
    if (machine_create(&m, &config, console, &boot, e) < 0) {
        run_sources_drop_seed(o);
        return -1;
    }
    if (o->record)
        recorder = start_recording(o, s, &m, &boot, e);
    free(boot.vmlinux);
    bytes_free(&boot.symbols);
    run_sources_drop_boot_files(s); /* they are in guest memory now */
    int rc = o->record && !recorder ? -1 : run_to_end(o, &m, recorder, start, e);
    if (o->record && !recorder)
        run_sources_drop_seed(o);
    machine_destroy(&m);
    return rc;
}

static struct recorder *record_from(const struct run_options *o, const struct live *l,
                                    struct machine *m, struct err *e)
{
    char *text = description_of_live(o, l->meta, l->point, m);
    struct recorder *recorder;

    if (!text) {
        err_set(e, STATUS_ERROR, "the recording's or the image's name is not valid UTF-8");
        return NULL;
    }
    recorder = recorder_create(o->recording, o->force, text, e);
    free(text);
    if (recorder && live_record(l, m, recorder, e) < 0) {
        recorder_abort(recorder);
        return NULL;
    }
    return recorder;
}

static int run_from(const struct run_options *o, struct live *l, struct console *console,
                    struct err *e)
{
    struct machine_config how = machine_config_of(o);
    struct machine m;
    struct recorder *recorder = NULL;
    uint64_t start = host_now_ns();
    uint8_t macs[MAX_NICS][MAC_BYTES];
    const unsigned nics = meta_nics(l->meta, macs);

    if (plug_nets(o, &how, nics, e) < 0)
        return -1;
    for (unsigned i = 0; i < nics; i++)
        memcpy(how.nics[i].mac, macs[i], sizeof macs[i]);
    if (live_machine(l, &how, &m, console, e) < 0)
        return -1;
    if (o->record)
        recorder = record_from(o, l, &m, e);
    int rc = o->record && !recorder ? -1 : run_to_end(o, &m, recorder, start, e);
    machine_destroy(&m);
    return rc;
}

/* What is found out on this host, for the command in another. */
struct handed {
    const struct run_options *o;
    struct run_sources *sources;
};

static int hand_in(void *opaque, struct err *e)
{
    const struct handed *h = opaque;

    return run_options_hand_in(h->o, e) < 0 ? -1 : run_sources_hand_in(h->sources, e);
}

/* False: it is for this process to run the machine, here. Sources: of one that is booted, or NULL.
 */
static bool redirected(const struct invocation *inv, struct run_options *o,
                       struct run_sources *sources, uint64_t memory, const json_t *from,
                       int *status, struct err *e)
{
    struct handed handed = {o, sources};
    struct host_needs needs = {
        .guest_memory = o->reboots ? 2 * memory : memory, /* what it boots from stays, too */
        .frame_rf = from ? frame_rf_named(meta_frame_rf(from)) : FRAME_RF_UNKNOWN,
        .hand_in = sources ? hand_in : NULL,
        .handed = &handed,
    };

    if (guest_memory_check_host(memory, e) < 0) {
        *status = -1;
        return true;
    }
    if (o->record)
        needs.recording = needs.write_paths[needs.write_path_count++] = o->recording;
    needs.nets = o->nets;
    needs.net_count = o->net_count;
    for (unsigned i = 0; o->write_through && i < o->disk_count; i++)
        if (!o->disks[i].read_only && o->disks[i].path[0])
            needs.write_paths[needs.write_path_count++] = o->disks[i].path;
    if (host_redirect(inv, &needs, status, e))
        return true;
    o->cpu_doubt = o->record ? doctor_cpu_doubt() : NULL;
    o->cpu_executes = o->record ? doctor_hidden_instructions() : NULL;
    if (o->record)
        (void)frame_rf_here(); /* which remembers: beside a machine its fork() takes longer */
    return false;
}

static int check_nets(const struct run_options *o, const json_t *meta, struct err *e)
{
    uint8_t macs[MAX_NICS][MAC_BYTES];
    const unsigned nics = meta_nics(meta, macs);

    for (unsigned i = 0; i < o->net_count; i++)
        if (o->nets[i].has_mac)
            return err_set(e, STATUS_USAGE,
                           "run: with --from a NIC has the address it had: no mac");
    if (o->net_count <= nics)
        return 0;
    return err_set(e, STATUS_USAGE, "run: the recorded machine has %u NIC%s: no further --net",
                   nics, nics == 1 ? "" : "s");
}

static int run_live(const struct invocation *inv, struct run_options *o, struct err *e)
{
    const struct live_request request = {
        .from = o->from,
        .output = o->record ? o->recording : NULL,
        .overwrite = o->force,
        .disks = o->disks,
        .disk_count = o->disk_count,
        .check_disk = o->check_disk,
    };
    struct live l;
    int rc;

    if (live_open(&l, &request, e) < 0)
        return -1;
    if (check_nets(o, l.meta, e) < 0) {
        live_close(&l);
        return -1;
    }
    if (!redirected(inv, o, NULL, meta_memory(l.meta), l.meta, &rc, e)) {
        const struct stopper stopper = {stop_arriving, &l};
        if (l.doubt.text[0])
            text_print(stderr, "dittovm: %s\n", l.doubt.text);
        stop_signals_call(&stopper);
        rc = live_play(&l, e);
        stop_signals_call(NULL);
        if (rc == 0 && !o->quiet && !o->json)
            text_print(stderr, "dittovm: live from sync point %llu of %s\n",
                       (unsigned long long)l.point, o->from.path);
        struct console *console =
            rc == 0 ? console_open(STDIN_FILENO, STDOUT_FILENO, true, e) : NULL;
        rc = console ? run_from(o, &l, console, e) : -1;
        console_close(console);
    }
    live_close(&l);
    return rc;
}

/* The machine runs here. */
static int run_here(const struct run_options *o, struct run_sources *s, struct err *e)
{
    const bool is_unit = o->unit.root != NULL;
    struct command_streams *streams = is_unit ? malloc(sizeof *streams) : NULL;
    struct console *console = NULL;

    if (is_unit && !streams)
        err_set(e, STATUS_ERROR, "out of memory");
    else /* Ctrl-C is for us, where the command has no terminal */
        console =
            console_open(STDIN_FILENO, STDOUT_FILENO, !is_unit || command_unit_has_terminal(), e);
    if (console && streams)
        command_streams_init(streams, console, STDOUT_FILENO, STDERR_FILENO,
                             o->unit.verbose ? STDERR_FILENO : -1);
    const int rc = console ? run_sources(o, s, console, streams, e) : -1;
    console_close(console);
    free(streams);
    return rc;
}

static int run_booted(const struct invocation *inv, struct run_options *o, struct err *e)
{
    struct run_sources s = {0};
    int status = -1;

    if (o->domain_name && inv->host == HOST_VMX)
        return err_set(e, STATUS_USAGE,
                       "run: --host vmx has no --domain; give what that is taken as");
    if (run_sources_check(&s, o, e) == 0) {
        run_options_show_domain(o);
        if (!redirected(inv, o, &s, o->memory, NULL, &status, e) && run_sources_load(&s, o, e) == 0)
            status = run_here(o, &s, e);
    }
    run_sources_free(&s);
    return status;
}

static int run(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    struct run_options o;
    int rc = run_options_parse(&o, argc, argv, e);

    if (rc == 0) {
        rc = o.from.path[0] ? run_live(inv, &o, e) : run_booted(inv, &o, e);
        run_options_free(&o);
    }
    if (rc < 0 || e->text[0])
        command_unit_failed(&o.unit, e);
    return rc < 0 || !e->text[0] ? rc : (int)e->status;
}

const struct command command_run = {
    .name = "run",
    .summary = "run a machine from a disk image or a kernel, and record it with --record",
    .usage = "run [OPTIONS] [DISK.img]\nrun [OPTIONS] --domain NAME",
    .about =
        "Runs a virtual machine from a disk image, or from a kernel. The kernel, its initrd "
        "and\n"
        "command line are found inside the image (GRUB, extlinux, boot loader entries or a "
        "unified\n"
        "kernel image, else the newest /boot/vmlinuz-*). The image is never changed: what the "
        "guest writes is kept in "
        "memory\n"
        "and gone at the end. On a terminal, Ctrl-A x leaves.\n"
        "\n"
        "With --from, the machine is not booted: a recorded one goes on, live, from a place in "
        "its\n"
        "recording. It has the recording's memory and its disk as it was there; what its disk held "
        "at\n"
        "the beginning is read from the image it was recorded with, which must be as it was. Its "
        "clock\n"
        "goes on from the time of that place.",
    .options = run_entries,
    .run = run,
};
