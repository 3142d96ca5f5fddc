#include "cli/run_options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "mmu/memory.h"

#define DEFAULT_MEMORY   (256ull << 20)
#define DEFAULT_GRACE_MS 10
#define SLOW_MAX         1000

const char run_help[] =
    "usage: dittovm run [OPTIONS] [DISK.img]\n"
    "\n"
    "Runs a virtual machine from a raw disk image, or from a kernel. The kernel, its initrd and\n"
    "command line are found inside the image (GRUB, extlinux or boot loader entries, else the\n"
    "newest /boot/vmlinuz-*). The image is never changed: what the guest writes is kept in memory\n"
    "and gone at the end. On a terminal, Ctrl-A x leaves.\n"
    "\n"
    "With --from, the machine is not booted: a recorded one goes on, live, from a place in its\n"
    "recording. It has the recording's memory and its disk as it was there; what its disk held at\n"
    "the beginning is read from the image it was recorded with, which must be as it was. Its "
    "clock\n"
    "goes on from the time of that place.\n"
    "\n"
    "  -r, --record           record the run\n"
    "  -o, --output REC       the recording (default: the image's name with .ditto, in the "
    "current\n"
    "                         directory); implies --record\n"
    "  -f, --force            overwrite an existing recording\n"
    "      --unsure           record even a kernel in which not all could be found that a replay "
    "needs;\n"
    "                         the recording says so (see 'dittovm info')\n"
    "  -m, --memory SIZE      guest memory, e.g. 256M or 1G (default 256M)\n"
    "      --from REC[@PLACE] go on from a snapshot of a recording (see 'dittovm info') or from "
    "the\n"
    "                         sync point of this number (see 'dittovm dump'); without PLACE from\n"
    "                         the last sync point\n"
    "      --check-disk       with --from: replay from the recording's beginning even where there "
    "is\n"
    "                         a snapshot, and so compare all that the guest has read from its "
    "disk\n"
    "      --disk IMG         the disk image, when it is not the last argument\n"
    "      --write-through    let the guest change the image\n"
    "      --kernel FILE      a bzImage or ELF kernel, instead of the image's own\n"
    "      --initrd FILE      its initrd\n"
    "      --append TEXT      more kernel command line\n"
    "      --cpus N           number of CPUs, 1 to 8 (default 1)\n"
    "      --smp MODE         how several CPUs are recorded: uni (default), they take turns on "
    "one\n"
    "                         thread; crew, they run at the same time (slow for an operating\n"
    "                         system, which wants --slow 10); loose, the same, but nothing "
    "orders\n"
    "                         what they do to memory, and it cannot be recorded\n"
    "      --chaos SEED       with several CPUs, random turns, so that races show sooner; with "
    "--smp\n"
    "                         crew, how long a CPU keeps the pages that others want\n"
    "      --clock NAME       how instructions are found again: auto (default), pmu, landmark or "
    "step\n"
    "      --grace MS         how long an interrupt waits for an exit of the guest's own before "
    "the\n"
    "                         guest is stopped for it (default 10)\n"
    "      --slow N           let the machine's clock run N times slower than the host's, 1 to "
    "1000\n"
    "                         (default 1), where its kernel takes too long for its own time "
    "limits\n"
    "      --digest-every S   also record a digest of all memory every S seconds (default 30; 0:\n"
    "                         only at the end)\n"
    "      --checkpoint-every S  keep a snapshot in the recording every S seconds (see dittovm\n"
    "                         snapshot; default: none)\n"
    "  -q, --quiet            no summary on stderr\n"
    "      --json             the summary as JSON on stderr\n";

enum {
    OPT_DISK = 256,
    OPT_FROM,
    OPT_WRITE_THROUGH,
    OPT_CHECK_DISK,
    OPT_UNSURE,
    OPT_KERNEL,
    OPT_INITRD,
    OPT_APPEND,
    OPT_CPUS,
    OPT_SMP,
    OPT_CHAOS,
    OPT_CLOCK,
    OPT_GRACE,
    OPT_SLOW,
    OPT_DIGEST,
    OPT_CHECKPOINT,
    OPT_JSON
};

static const struct option long_options[] = {
    {"record", no_argument, NULL, 'r'},
    {"output", required_argument, NULL, 'o'},
    {"force", no_argument, NULL, 'f'},
    {"memory", required_argument, NULL, 'm'},
    {"quiet", no_argument, NULL, 'q'},
    {"disk", required_argument, NULL, OPT_DISK},
    {"from", required_argument, NULL, OPT_FROM},
    {"write-through", no_argument, NULL, OPT_WRITE_THROUGH},
    {"check-disk", no_argument, NULL, OPT_CHECK_DISK},
    {"unsure", no_argument, NULL, OPT_UNSURE},
    {"kernel", required_argument, NULL, OPT_KERNEL},
    {"initrd", required_argument, NULL, OPT_INITRD},
    {"append", required_argument, NULL, OPT_APPEND},
    {"cpus", required_argument, NULL, OPT_CPUS},
    {"smp", required_argument, NULL, OPT_SMP},
    {"chaos", required_argument, NULL, OPT_CHAOS},
    {"clock", required_argument, NULL, OPT_CLOCK},
    {"grace", required_argument, NULL, OPT_GRACE},
    {"slow", required_argument, NULL, OPT_SLOW},
    {"digest-every", required_argument, NULL, OPT_DIGEST},
    {"checkpoint-every", required_argument, NULL, OPT_CHECKPOINT},
    {"json", no_argument, NULL, OPT_JSON},
    {0},
};

static int parse_one(struct run_options *o, int option, char **argv, struct err *e)
{
    switch (option) {
    case 'r':
        o->record = true;
        return 0;
    case 'o':
        o->record = true;
        if (snprintf(o->recording, sizeof o->recording, "%s", optarg) >= (int)sizeof o->recording)
            return err_set(e, STATUS_USAGE, "the name of the recording is too long");
        return 0;
    case 'f':
        o->force = true;
        return 0;
    case 'q':
        o->quiet = true;
        return 0;
    case OPT_JSON:
        o->json = true;
        return 0;
    case 'm':
        if (parse_size(optarg, &o->memory) < 0)
            return err_set(e, STATUS_USAGE, "--memory takes a size like 256M, not '%s'", optarg);
        return guest_memory_check(o->memory, e);
    case OPT_DISK:
        o->disk = optarg;
        return 0;
    case OPT_FROM:
        if (snapshot_place_parse(optarg, &o->from, e) < 0)
            return -1;
        return o->from.path[0] ? 0
                               : err_set(e, STATUS_USAGE,
                                         "--from takes a recording, REC, REC@NAME or REC@POINT");
    case OPT_CHECK_DISK:
        o->check_disk = true;
        return 0;
    case OPT_UNSURE:
        o->unsure = true;
        return 0;
    case OPT_WRITE_THROUGH:
        o->write_through = true;
        return 0;
    case OPT_KERNEL:
        o->kernel = optarg;
        return 0;
    case OPT_INITRD:
        o->initrd = optarg;
        return 0;
    case OPT_APPEND:
        o->append = optarg;
        return 0;
    case OPT_CPUS:
        if (parse_number(optarg, MAX_VCPUS, &o->cpus) < 0 || !o->cpus)
            return err_set(e, STATUS_USAGE, "--cpus takes 1 to %u, not '%s'", MAX_VCPUS, optarg);
        return 0;
    case OPT_SMP:
        o->loose = strcmp(optarg, "loose") == 0;
        o->crew = o->loose || strcmp(optarg, "crew") == 0;
        if (!o->crew && strcmp(optarg, "uni") != 0)
            return err_set(e, STATUS_USAGE, "--smp takes uni, crew or loose, not '%s'", optarg);
        return 0;
    case OPT_CHAOS:
        if (parse_number(optarg, UINT64_MAX, &o->chaos) < 0 || !o->chaos)
            return err_set(e, STATUS_USAGE, "--chaos takes a number from 1 on, not '%s'", optarg);
        return 0;
    case OPT_CLOCK:
        return clock_option(optarg, &o->clock, e);
    case OPT_GRACE:
        if (parse_number(optarg, 10000, &o->grace_ms) < 0)
            return err_set(e, STATUS_USAGE, "--grace takes 0 to 10000 ms, not '%s'", optarg);
        return 0;
    case OPT_SLOW:
        if (parse_number(optarg, SLOW_MAX, &o->slow) < 0 || !o->slow)
            return err_set(e, STATUS_USAGE, "--slow takes 1 to %u, not '%s'", SLOW_MAX, optarg);
        return 0;
    case OPT_DIGEST:
        if (parse_number(optarg, 86400, &o->digest_s) < 0)
            return err_set(e, STATUS_USAGE, "--digest-every takes 0 to 86400 s, not '%s'", optarg);
        return 0;
    case OPT_CHECKPOINT:
        if (parse_number(optarg, 86400, &o->checkpoint_s) < 0 || !o->checkpoint_s)
            return err_set(e, STATUS_USAGE, "--checkpoint-every takes 1 to 86400 s, not '%s'",
                           optarg);
        return 0;
    default:
        return err_set(e, STATUS_USAGE, "run: %s '%s' (see dittovm run --help)",
                       option == ':' ? "a value is missing after" : "unknown option",
                       argv[optind - 1]);
    }
}

/* What a machine that goes on cannot have otherwise than it was recorded. */
static int check_from(const struct run_options *o, struct err *e)
{
    const char *option = o->kernel          ? "--kernel"
                         : o->initrd        ? "--initrd"
                         : o->append        ? "--append"
                         : o->memory        ? "--memory"
                         : o->cpus          ? "--cpus"
                         : o->chaos         ? "--chaos"
                         : o->write_through ? "--write-through"
                                            : NULL;

    if (!option)
        return 0;
    return err_set(e, STATUS_USAGE,
                   "run: %s makes no sense with --from: the machine is the recorded one", option);
}

/* disk.img -> disk.ditto, in the current directory; a machine without a disk: after its kernel; one
 * that goes on from disk.ditto: disk-live.ditto. */
static int default_recording(struct run_options *o, struct err *e)
{
    const char *from = o->from.path[0] ? o->from.path : o->disk ? o->disk : o->kernel;
    const char *slash = strrchr(from, '/');
    const char *name = slash ? slash + 1 : from;
    const char *dot = strrchr(name, '.');
    int stem = dot && dot != name ? (int)(dot - name) : (int)strlen(name);

    if (snprintf(o->recording, sizeof o->recording, "%.*s%s.ditto", stem, name,
                 o->from.path[0] ? "-live" : "") >= (int)sizeof o->recording)
        return err_set(e, STATUS_USAGE, "the name of the image is too long; give -o");
    return 0;
}

/* What --smp crew cannot do. */
static int check_crew(struct run_options *o, struct err *e)
{
    if (o->checkpoint_s)
        return err_set(e, STATUS_USAGE,
                       "run: --smp crew cannot have --checkpoint-every yet; give --smp uni");
    if (o->clock && o->clock != &clock_landmark)
        return err_set(e, STATUS_USAGE, "run: --smp crew goes with --clock landmark");
    o->clock = &clock_landmark;
    return 0;
}

int run_options_parse(struct run_options *o, int argc, char **argv, struct err *e)
{
    int option;

    *o = (struct run_options){
        .grace_ms = DEFAULT_GRACE_MS,
        .slow = 1,
        .digest_s = 30,
    };
    optind = 1;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":ro:fm:q", long_options, NULL)) != -1)
        if (parse_one(o, option, argv, e) < 0)
            return -1;
    if (optind < argc && !o->disk)
        o->disk = argv[optind++];
    if (optind < argc)
        return err_set(e, STATUS_USAGE, "run: one disk image only; '%s' is too much", argv[optind]);
    if (o->from.path[0] && check_from(o, e) < 0)
        return -1;
    if (!o->memory)
        o->memory = DEFAULT_MEMORY;
    if (!o->cpus)
        o->cpus = 1;
    if (!o->disk && !o->kernel && !o->from.path[0])
        return err_set(e, STATUS_USAGE,
                       "run: give a disk image or --kernel (see dittovm run --help)");
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
    return o->record && !o->recording[0] ? default_recording(o, e) : 0;
}
