#include "cli/run_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "devices/disk/disk_format.h"
#include "devices/disk/disk_tree.h"
#include "mmu/memory.h"

#define DEFAULT_MEMORY   (256ull << 20)
#define DEFAULT_GRACE_MS 10
#define SLOW_MAX         1000

static int take_output(void *into, const char *value, struct err *e)
{
    struct run_options *o = into;

    o->record = true;
    if (snprintf(o->recording, sizeof o->recording, "%s", value) >= (int)sizeof o->recording)
        return err_set(e, STATUS_USAGE, "the name of the recording is too long");
    return 0;
}

static int take_memory(void *into, const char *value, struct err *e)
{
    struct run_options *o = into;

    if (parse_size(value, &o->memory) < 0)
        return err_set(e, STATUS_USAGE, "--memory takes a size like 256M, not '%s'", value);
    return guest_memory_check(o->memory, e);
}

static int take_from(void *into, const char *value, struct err *e)
{
    struct run_options *o = into;

    if (snapshot_place_parse(value, &o->from, e) < 0)
        return -1;
    return o->from.path[0]
               ? 0
               : err_set(e, STATUS_USAGE, "--from takes a recording, REC, REC@NAME or REC@POINT");
}

static int name_disk(struct run_options *o, const char *image, struct disk_wish **wish,
                     struct err *e)
{
    if (o->disk_count == MAX_DISKS)
        return err_set(e, STATUS_USAGE, "run: at most %u disks", MAX_DISKS);
    *wish = &o->disks[o->disk_count];
    **wish = (struct disk_wish){0};
    if (snprintf((*wish)->path, sizeof(*wish)->path, "%s", image) >= (int)sizeof(*wish)->path)
        return err_set(e, STATUS_USAGE, "run: the name of the disk image is too long");
    o->disk_count++;
    return 0;
}

/* IMG[,ro][,size=SIZE][,format=NAME][,serial=NAME]: what is no such setting is part of the name. */
static int take_disk(void *into, const char *value, struct err *e)
{
    struct disk_wish *wish;
    char *comma;

    if (name_disk(into, value, &wish, e) < 0)
        return -1;
    while ((comma = strrchr(wish->path, ','))) {
        if (!strcmp(comma, ",ro"))
            wish->read_only = true;
        else if (!strncmp(comma, ",size=", 6) &&
                 (parse_size(comma + 6, &wish->size) < 0 || wish->size > DISK_SIZE_MAX))
            return err_set(e, STATUS_USAGE, "run: a disk's size is one like 10G, not '%s'",
                           comma + 6);
        else if (!strncmp(comma, ",size=", 6))
            ;
        else if (!strncmp(comma, ",format=", 8) && !disk_format_known(comma + 8))
            return err_set(e, STATUS_USAGE,
                           "run: a disk's format is raw, qcow2, vmdk, vdi, vhdx or vpc, not '%s'",
                           comma + 8);
        else if (!strncmp(comma, ",format=", 8))
            snprintf(wish->format, sizeof wish->format, "%s", comma + 8);
        else if (strncmp(comma, ",serial=", 8) != 0)
            break;
        else if (snprintf(wish->serial, sizeof wish->serial, "%s", comma + 8) >=
                 (int)sizeof wish->serial)
            return err_set(e, STATUS_USAGE, "run: a serial has at most %u characters",
                           DISK_SERIAL_BYTES);
        *comma = '\0';
    }
    return 0;
}

static int take_user_data(void *into, const char *value, struct err *e)
{
    struct run_options *o = into;

    (void)e;
    o->seed.user_data = value;
    o->wants_seed = true;
    return 0;
}

static int take_key(void *into, const char *value, struct err *e)
{
    struct run_options *o = into;

    if (o->seed.key_count == SEED_KEYS_MAX)
        return err_set(e, STATUS_USAGE, "run: at most %u keys", SEED_KEYS_MAX);
    o->seed.ssh_keys[o->seed.key_count++] = value;
    o->wants_seed = true;
    return 0;
}

static int take_net(void *into, const char *value, struct err *e)
{
    struct run_options *o = into;

    if (o->net_count == MAX_NICS)
        return err_set(e, STATUS_USAGE, "run: at most %u NICs, which is --net so many times",
                       MAX_NICS);
    return net_spec_parse(&o->nets[o->net_count++], value, e);
}

static int take_smp(void *into, const char *value, struct err *e)
{
    struct run_options *o = into;

    o->loose = strcmp(value, "loose") == 0;
    o->crew = o->loose || strcmp(value, "crew") == 0;
    if (!o->crew && strcmp(value, "uni") != 0)
        return err_set(e, STATUS_USAGE, "--smp takes uni, crew or loose, not '%s'", value);
    return 0;
}

static int take_reboot(void *into, const char *value, struct err *e)
{
    struct run_options *o = into;

    o->reboots = strcmp(value, "boot") == 0;
    return o->reboots || !strcmp(value, "end")
               ? 0
               : err_set(e, STATUS_USAGE, "--on-reboot takes end or boot, not '%.40s'", value);
}

#define DATE_YEARS "1980 to 2500"
#define DATE_FIRST 315532800ll /* seconds since 1970 */
#define DATE_LAST  16756761599ll

/* A date of the calendar, in UTC; false: none, or none that a machine's clock may have. */
static bool parse_date(const char *text, uint64_t *ns)
{
    static const char *const formats[] = {"%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"};

    for (unsigned i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct tm tm = {0};
        const char *end = strptime(text, formats[i], &tm);
        if (!end || (*end && strcmp(end, "Z") != 0))
            continue;
        const int day = tm.tm_mday;
        const time_t seconds = timegm(&tm);
        *ns = (uint64_t)seconds * 1000000000u;
        return tm.tm_mday == day && seconds >= DATE_FIRST && seconds <= DATE_LAST;
    }
    return false;
}

static int take_rtc(void *into, const char *value, struct err *e)
{
    struct run_options *o = into;

    o->rtc_ns = 0;
    o->rtc_now = strcmp(value, "now") == 0;
    return o->rtc_now || parse_date(value, &o->rtc_ns)
               ? 0
               : err_set(e, STATUS_USAGE,
                         "--rtc takes now, or a date of the years " DATE_YEARS
                         " like 2026-11-30 or 2026-11-30T12:34:56 (UTC), not '%.40s'",
                         value);
}

static int take_keep(void *into, const char *value, struct err *e)
{
    return command_unit_take_keep(&((struct run_options *)into)->unit, value, e);
}

#define FLAG(letter, name, member, help) FLAG_OPTION(letter, name, struct run_options, member, help)
#define TEXT(name, value, member, help)  TEXT_OPTION(name, value, struct run_options, member, help)
#define NUMBER(name, value, member, least, most, takes, help)                                      \
    NUMBER_OPTION(OPTION_NUMBER, name, value, struct run_options, member, least, most, takes, help)

const struct option_entry run_entries[] = {
    FLAG('r', "record", record, "record the run"),
    CALL_OPTION(
        'o', "output", "REC", take_output,
        "the recording (default: the image's name with .ditto, in the current directory); implies "
        "--record"),
    FLAG('f', "force", force, "overwrite an existing recording"),
    FLAG(0, "unsure", unsure,
         "record even a kernel in which not all could be found that a replay needs; the recording "
         "says "
         "so (see 'dittovm info')"),
    TEXT("domain", "NAME", domain_name,
         "run a machine that libvirt knows by this name or UUID, and that is shut off; with a '/' "
         "or .xml at its end it is a file with a domain's XML. What is given beside it comes "
         "first: --memory, --cpus, --kernel; --net for its first NIC, its second; --disk and "
         "--append add"),
    TEXT("connect", "URI", connect, "the libvirt that knows it (default: qemu:///system)"),
    CALL_OPTION('m', "memory", "SIZE", take_memory, "guest memory, e.g. 256M or 1G (default 256M)"),
    CALL_OPTION(
        0, "from", "REC[@PLACE]", take_from,
        "go on from a snapshot of a recording, a mark (mark:TEXT) or a boot (boot:N; see 'dittovm "
        "info'), or from the sync point of this number (see 'dittovm dump'); without PLACE from "
        "the "
        "last sync point"),
    FLAG(
        0, "check-disk", check_disk,
        "with --from: replay from the recording's beginning even where there is a snapshot, and so "
        "compare all that the guest has read from its disk"),
    CALL_OPTION(0, "disk", "IMG[,ro][,size=SIZE][,format=NAME][,serial=NAME]", take_disk,
                "a disk image, as the last argument is; up to 8, of which the last argument is the "
                "first. ro: "
                "the guest cannot write to it; size: it is so large, and empty behind its image"),
    FLAG(0, "write-through", write_through, "let the guest change the image"),
    TEXT("kernel", "FILE", kernel, "a bzImage or ELF kernel, instead of the image's own"),
    TEXT("initrd", "FILE", initrd, "its initrd"),
    TEXT("append", "TEXT", append, "more kernel command line"),
    TEXT("root", "DIR", unit.root,
         "run the command behind -- in a machine whose root is this directory, and end with its "
         "status; "
         "what it writes there is gone at the end. Without --kernel: the newest /boot/vmlinuz-* in "
         "DIR, else of this host"),
    TEXT("modules", "DIR", unit.modules,
         "with --root: the kernel's modules (default: those of its release in DIR/lib/modules, "
         "beside the "
         "kernel, or in /lib/modules)"),
    CALL_OPTION(
        0, "keep", "WHEN", take_keep,
        "with --root: keep the recording always (default), or failed: delete it when the command's "
        "status was 0"),
    FLAG(0, "verbose", unit.verbose, "with --root: the kernel's console on stderr"),
    CALL_OPTION(0, "cloud-init", "FILE", take_user_data,
                "user-data for cloud-init in the machine, which finds it on a disk of its own; a "
                "recording has that disk's image beside it, as REC-seed.iso"),
    CALL_OPTION(0, "ssh-key", "FILE", take_key,
                "a public key for the default user that cloud-init makes; up to 8 times"),
    CALL_OPTION(
        0, "net", "WHAT", take_net,
        "a NIC, up to 4 times. user: NAT without rights, the host's ports by hostfwd (as in --net "
        "user,hostfwd=tcp::2222-:22), nothing but these with restrict=on; passt: the same by that "
        "program; stream:unix:PATH or stream:tcp:HOST:PORT: a peer that speaks as QEMU's stream "
        "network, waited for there with ,server; tap:NAME: a device of this host's, bridge:NAME: a "
        "bridge of "
        "its, both for root; none: "
        "plugged in nowhere. All take mac=MAC"),
    NUMBER("cpus", "N", cpus, 1, MAX_VCPUS, "1 to 8", "number of CPUs, 1 to 8 (default 1)"),
    CALL_OPTION(
        0, "smp", "MODE", take_smp,
        "how several CPUs are recorded: uni (default), they take turns on one thread; crew, they "
        "run at "
        "the same time (slow for an operating system, which wants --slow 10); loose, the same, but "
        "nothing orders what they do to memory, and it cannot be recorded"),
    NUMBER("chaos", "SEED", chaos, 1, UINT64_MAX, "a number from 1 on",
           "with several CPUs, random turns, so that races show sooner; with --smp crew, how long "
           "a CPU "
           "keeps the pages that others want"),
    CLOCK_OPTION(struct run_options,
                 "how instructions are found again: auto (default), pmu, landmark or step"),
    NUMBER("grace", "MS", grace_ms, 0, 10000, "0 to 10000 ms",
           "a guest that has not exited by itself for so long is stopped where an interrupt waits "
           "(default 10)"),
    NUMBER("slow", "N", slow, 1, SLOW_MAX, "1 to 1000",
           "let the machine's clock run N times slower than the host's, 1 to 1000 (default 1), "
           "where its "
           "kernel takes too long for its own time limits"),
    CALL_OPTION(
        0, "rtc", "now|DATE", take_rtc,
        "what the machine's real-time clock says at its start, in UTC: a date like 2026-11-30 "
        "or 2026-11-30T12:34:56, or the host's time (default; with --from by default the "
        "recorded machine's goes on). A system reads it when it boots, or is told to"),
    CALL_OPTION(
        0, "on-reboot", "end|boot", take_reboot,
        "what a reboot of the guest is: the machine's end (default), or its next boot, in the "
        "same recording, with the same kernel and the disks as they are then"),
    NUMBER("digest-every", "S", digest_s, 0, 86400, "0 to 86400 s",
           "also record a digest of all memory every S seconds (default 30; 0: only at the end)"),
    NUMBER(
        "checkpoint-every", "S", checkpoint_s, 1, 86400, "1 to 86400 s",
        "keep a snapshot in the recording every S seconds (see dittovm snapshot; default: none)"),
    FLAG('q', "quiet", quiet, "no summary on stderr"),
    FLAG(0, "json", json, "the summary as JSON on stderr"),
    END_OF_OPTIONS,
};

/* What a machine that goes on cannot have otherwise than it was recorded. */
static int check_from(const struct run_options *o, struct err *e)
{
    const char *option = o->kernel          ? "--kernel"
                         : o->unit.root     ? "--root"
                         : o->initrd        ? "--initrd"
                         : o->append        ? "--append"
                         : o->memory        ? "--memory"
                         : o->cpus          ? "--cpus"
                         : o->chaos         ? "--chaos"
                         : o->write_through ? "--write-through"
                         : o->wants_seed    ? "--cloud-init or --ssh-key"
                         : o->domain_name   ? "--domain"
                         : o->reboots       ? "--on-reboot boot"
                                            : NULL;

    if (!option)
        return 0;
    return err_set(e, STATUS_USAGE,
                   "run: %s makes no sense with --from: the machine is the recorded one", option);
}

/* disk.img -> disk.ditto, in the current directory; a domain: after its name; a machine without a
 * disk: after its kernel; one that goes on from disk.ditto: disk-live.ditto. */
static int default_recording(struct run_options *o, struct err *e)
{
    const char *from = o->from.path[0]  ? o->from.path
                       : o->unit.root   ? o->unit.argv[0]
                       : o->domain_name ? o->domain.name
                       : o->disk_count  ? o->disks[0].path
                                        : o->kernel;
    const char *slash = strrchr(from, '/');
    const char *name = slash ? slash + 1 : from;
    const char *dot = strrchr(name, '.');
    int stem = dot && dot != name ? (int)(dot - name) : (int)strlen(name);

    if (snprintf(o->recording, sizeof o->recording, "%.*s%s.ditto", stem, name,
                 o->from.path[0] ? "-live" : "") >= (int)sizeof o->recording)
        return err_set(e, STATUS_USAGE, "the name of the image is too long; give -o");
    return 0;
}

/* The last argument: --disk has those behind it. */
static int take_first_disk(struct run_options *o, char *image, struct err *e)
{
    struct disk_wish *wish;

    if (name_disk(o, image, &wish, e) < 0)
        return -1;
    const struct disk_wish first = *wish;
    memmove(o->disks + 1, o->disks, (o->disk_count - 1) * sizeof first);
    o->disks[0] = first;
    return 0;
}

/* What --smp crew cannot do. */
static int check_crew(struct run_options *o, struct err *e)
{
    if (o->checkpoint_s)
        return err_set(e, STATUS_USAGE,
                       "run: --smp crew cannot have --checkpoint-every yet; give --smp uni");
    if (o->reboots)
        return err_set(e, STATUS_USAGE,
                       "run: --smp crew cannot have --on-reboot boot yet; give --smp uni");
    if (o->clock && o->clock != &clock_landmark)
        return err_set(e, STATUS_USAGE, "run: --smp crew goes with --clock landmark");
    o->clock = &clock_landmark;
    return 0;
}

/* disk.ditto -> disk-seed.iso beside it. A machine that is not recorded has none that stays. */
static int add_seed(struct run_options *o, struct err *e)
{
    const size_t len = strlen(o->recording), suffix = strlen(".ditto");
    const bool named = len > suffix && !strcmp(o->recording + len - suffix, ".ditto");
    char path[sizeof o->recording + 16] = "seed.iso"; /* in a directory of its own */
    struct disk_wish *wish;

    if (o->record)
        snprintf(path, sizeof path, "%.*s-seed.iso", (int)(named ? len - suffix : len),
                 o->recording);
    if (name_disk(o, path, &wish, e) < 0)
        return -1;
    wish->read_only = true;
    return 0;
}

/* The root of a machine that runs one command; where it is, is known when it is made. */
static int add_root(struct run_options *o, struct err *e)
{
    struct disk_wish *wish;

    if (o->initrd || o->wants_seed || o->domain_name || o->reboots)
        return err_set(e, STATUS_USAGE, "run: %s makes no sense with --root",
                       o->initrd        ? "--initrd"
                       : o->domain_name ? "--domain"
                       : o->reboots     ? "--on-reboot boot"
                                        : "--cloud-init or --ssh-key");
    if (name_disk(o, "", &wish, e) < 0)
        return -1;
    memcpy(wish->format, DISK_TREE_FORMAT, sizeof DISK_TREE_FORMAT);
    memcpy(wish->serial, COMMAND_DISK_SERIAL, sizeof COMMAND_DISK_SERIAL);
    return 0;
}

/* Options, and the image that is no option. */
static int parse_words(struct run_options *o, int argc, char **argv, struct err *e)
{
    command_unit_split(&o->unit, &argc, argv);
    int first = options_parse(run_entries, o, argc, argv, e);
    if (first < 0)
        return -1;
    char *image = first < argc ? argv[first++] : NULL;
    if (!o->unit.root && o->unit.argv) { /* it ends the options, and an image may follow */
        char *const *rest = o->unit.argv;
        if (!image && *rest)
            image = *rest++;
        if (*rest)
            return err_set(e, STATUS_USAGE, "run: a command ('%s') wants --root", *rest);
        o->unit.argv = NULL;
    }
    if (image && o->domain_name)
        return err_set(e, STATUS_USAGE, "run: a domain has its disks; give one more with --disk %s",
                       image);
    if (image && take_first_disk(o, image, e) < 0)
        return -1;
    if (first < argc)
        return err_set(e, STATUS_USAGE,
                       "run: one disk image, and more with --disk; '%s' is too much", argv[first]);
    return 0;
}

void run_options_free(struct run_options *o)
{
    domain_free(&o->domain);
    free(o->joined);
    o->joined = NULL;
}

static int parse(struct run_options *o, int argc, char **argv, struct err *e)
{
    *o = (struct run_options){
        .grace_ms = DEFAULT_GRACE_MS,
        .slow = 1,
        .digest_s = 30,
    };
    if (parse_words(o, argc, argv, e) < 0)
        return -1;
    if (o->from.path[0] && check_from(o, e) < 0)
        return -1;
    if (o->connect && !o->domain_name)
        return err_set(e, STATUS_USAGE, "run: --connect goes with --domain");
    if (o->domain_name && run_options_take_domain(o, e) < 0)
        return -1;
    if (command_unit_check(&o->unit, &o->kernel, e) < 0)
        return -1;
    if (o->unit.root && o->unit.keep_failed && !o->record)
        return err_set(e, STATUS_USAGE, "run: --keep goes with --record");
    if (!o->memory)
        o->memory = DEFAULT_MEMORY;
    if (!o->cpus)
        o->cpus = 1;
    if (!o->disk_count && !o->kernel && !o->from.path[0])
        return err_set(e, STATUS_USAGE,
                       "run: give a disk image or --kernel (see dittovm run --help)");
    for (unsigned i = 0; o->write_through && i < o->disk_count; i++)
        if (o->disks[i].size && !o->disks[i].read_only)
            return err_set(e, STATUS_USAGE,
                           "run: --write-through cannot make an image larger: no size");
    if (o->crew && check_crew(o, e) < 0)
        return -1;
    if (o->loose && o->record)
        return err_set(e, STATUS_USAGE,
                       "run: --smp loose cannot be recorded; give --smp crew or uni");
    if (o->initrd && !o->kernel)
        return err_set(e, STATUS_USAGE, "run: --initrd goes with --kernel");
    if (o->check_disk && !o->from.path[0])
        return err_set(e, STATUS_USAGE, "run: --check-disk goes with --from");
    if (o->checkpoint_s && !o->record)
        return err_set(e, STATUS_USAGE, "run: --checkpoint-every goes with --record");
    if (o->record && !o->recording[0] && default_recording(o, e) < 0)
        return -1;
    if (o->unit.root)
        return add_root(o, e);
    return o->wants_seed ? add_seed(o, e) : 0;
}

int run_options_parse(struct run_options *o, int argc, char **argv, struct err *e)
{
    const int rc = parse(o, argc, argv, e);

    if (rc < 0)
        run_options_free(o);
    return rc;
}
