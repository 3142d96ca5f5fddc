#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "base/version.h"
#include "replay/pcapng.h"
#include "cli/playing.h"
#include "devices/virtio/virtio_net.h"
#include "recording/meta.h"
#include "replay/divergence.h"
#include "replay/frames.h"

_Static_assert(FRAME_HEADER == VIRTIO_NET_HEADER, "a frame is recorded with the device's header");

struct pcap_options {
    struct snapshot_place place;
    uint64_t until;
    const char *output;
    bool quiet;
};

struct capture {
    FILE *out;
    uint64_t epoch_ns; /* the time of day at device time 0 */
    unsigned nics;
    uint64_t sent, received;
};

static const struct option_entry options[] = {
    {.kind = OPTION_TEXT,
     .letter = 'o',
     .name = "output",
     .value = "FILE",
     .help = "where the frames go (default: standard output)",
     .member = offsetof(struct pcap_options, output)},
    NUMBER_OPTION(OPTION_NUMBER, "to", "POINT", struct pcap_options, until, 0, UINT64_MAX - 1,
                  "the number of a sync point", "stop at sync point POINT (see 'dittovm dump')"),
    FLAG_OPTION('q', "quiet", struct pcap_options, quiet, "say nothing"),
    END_OF_OPTIONS,
};

static int parse(struct pcap_options *o, int argc, char **argv, struct err *e)
{
    *o = (struct pcap_options){.until = UINT64_MAX};
    const int first = options_parse(options, o, argc, argv, e);
    if (first < 0)
        return -1;
    if (first != argc - 1)
        return err_set(e, STATUS_USAGE, "pcap: give one recording (see dittovm pcap --help)");
    if (!o->output && isatty(STDOUT_FILENO))
        return err_set(e, STATUS_USAGE,
                       "pcap: give -o FILE, or a pipe, as in 'dittovm pcap REC | tshark -r -'");
    return snapshot_place_parse(argv[first], &o->place, e);
}

static void take(void *opaque, const struct frame *frame, uint8_t *bytes)
{
    struct capture *c = opaque;

    if (frame->nic >= c->nics)
        return; /* its description does not know it */
    if (frame->is_sent)
        virtio_net_finish(bytes, bytes + FRAME_HEADER, frame->len);
    pcapng_put_frame(c->out, frame->nic, c->epoch_ns + frame->time_ns, frame->is_sent,
                     bytes + FRAME_HEADER, frame->len);
    *(frame->is_sent ? &c->sent : &c->received) += 1;
}

static int begin_file(struct capture *c, const struct recording *r, struct err *e)
{
    json_t *meta = meta_load(r, e);
    uint8_t macs[MAX_NICS][MAC_BYTES];

    if (!meta)
        return -1;
    c->nics = meta_nics(meta, macs);
    c->epoch_ns = meta_epoch_ns(meta);
    json_decref(meta);
    if (!c->nics)
        return err_set(e, STATUS_ERROR, "%s is of a machine without a NIC (see dittovm run --net)",
                       recording_path(r));
    pcapng_put_head(c->out, "dittovm " DITTO_VERSION);
    for (unsigned i = 0; i < c->nics; i++) {
        char name[16];
        snprintf(name, sizeof name, "nic%u", i);
        pcapng_put_interface(c->out, name, macs[i]);
    }
    return 0;
}

static int play(struct capture *c, struct recording *r, const struct pcap_options *o, struct err *e)
{
    static struct frames frames;
    struct player p;

    if (player_open(&p, r, NULL, e) < 0)
        return -1;
    frames_follow(&frames, &p, take, c);
    int rc = o->place.name[0] ? playing_begin(&p, o->place.name, o->until, e) : 0;
    if (rc == 0)
        rc = playing_run(&p, o->until, !o->quiet && isatty(STDERR_FILENO), e);
    if (rc == 0 && p.status == PLAYER_DIVERGED) {
        divergence_report(&p, stderr);
        rc = STATUS_DIVERGED;
    }
    player_close(&p);
    return rc;
}

static int capture(const struct pcap_options *o, struct recording *r, struct err *e)
{
    struct stat own, other;

    if (o->output && stat(o->place.path, &own) == 0 && stat(o->output, &other) == 0 &&
        own.st_dev == other.st_dev && own.st_ino == other.st_ino)
        return err_set(e, STATUS_USAGE, "pcap: %s is the recording itself", o->output);
    struct capture c = {.out = o->output ? fopen(o->output, "we") : stdout};
    if (!c.out)
        return err_set(e, STATUS_ERROR, "cannot write to %s: %s", o->output, strerror(errno));
    int rc = begin_file(&c, r, e);
    if (rc == 0)
        rc = play(&c, r, o, e);
    const bool failed = fflush(c.out) != 0 || ferror(c.out);
    if (o->output)
        fclose(c.out);
    if (rc >= 0 && failed && o->output)
        return err_set(e, STATUS_ERROR, "cannot write to %s: %s", o->output, strerror(errno));
    if (rc == 0 && !o->quiet)
        text_print(stderr, "dittovm: %llu frames sent, %llu received\n", (unsigned long long)c.sent,
                   (unsigned long long)c.received);
    return rc;
}

static int run(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    struct pcap_options o;
    struct host_needs needs;
    int status;

    if (parse(&o, argc, argv, e) < 0 || playing_needs(&o.place, o.until, false, &needs, e) < 0)
        return -1;
    if (o.output)
        needs.write_paths[needs.write_path_count++] = o.output;
    if (host_redirect(inv, &needs, &status, e))
        return status;
    struct recording *r = recording_open(o.place.path, e);
    if (!r)
        return -1;
    int rc = capture(&o, r, e);
    recording_close(r);
    return rc;
}

const struct command command_pcap = {
    .name = "pcap",
    .summary = "write the network frames of a recording to a file for tshark or Wireshark",
    .usage = "pcap [OPTIONS] REC[@NAME]",
    .about =
        "Replays a recording and writes every frame that its NICs have sent and received, with "
        "the\n"
        "machine's time, as pcapng. What was sent is not in a recording: the replay makes it "
        "again.",
    .options = options,
    .run = run,
};
