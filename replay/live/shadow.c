#include "replay/live/shadow.h"

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hidden_ports.h"
#include "devices/clock_ticks.h"
#include "recorder/live_state.h"
#include "recorder/recorder.h"
#include "recording/meta.h"
#include "vmm/kvm/msr.h"
#include "vmm/machine/pc_access.h"

static struct shadow *shadow_of(struct player_follower *f)
{
    return (struct shadow *)f; /* its first member */
}

/* The devices are not those that were recorded, or their disk has other contents. */
__attribute__((format(printf, 2, 3))) static int differ(struct shadow *s, const char *format, ...)
{
    char what[160];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    s->differs = true;
    return err_set(s->e, STATUS_ERROR,
                   "cannot go live from %s: at sync point %llu the devices are not what they were "
                   "when it was recorded: %s",
                   recording_path(s->player->recording), (unsigned long long)s->player->ordinal,
                   what);
}

/* ---- what the devices do ---- */

/* Play the recording's next transfers, which must be these len bytes. Writes bring the recording's
 * bytes to memory; they are compared with the device's own unless those are not known. */
static int transfer(struct shadow *s, bool write, uint64_t gpa, const uint8_t *data, size_t len)
{
    const enum event_kind kind = write ? EVENT_DMA_WRITE : EVENT_DMA_READ;

    for (size_t done = 0; done < len && !s->differs;) {
        const size_t n = len - done < DMA_MAX ? len - done : DMA_MAX;
        const struct event *next;
        const uint8_t *memory = guest_memory_at(&s->player->vm.memory, gpa + done, n);

        assert(memory);
        if (player_next(s->player, &next, s->e) < 0)
            s->differs = true;
        else if (!next || next->kind != kind || next->dma.gpa != gpa + done || next->dma.len != n)
            differ(s, "a transfer of %zu bytes %s memory at %#llx is not in the recording", n,
                   write ? "to" : "from", (unsigned long long)(gpa + done));
        else if (player_take(s->player, s->e) < 0)
            s->differs = true;
        else if (write && !s->unknown && memcmp(memory, data + done, n) != 0)
            differ(s, "%zu bytes for memory at %#llx are others%s", n,
                   (unsigned long long)(gpa + done),
                   s->has_disk ? " (is this the disk image, unchanged?)" : "");
        done += n;
    }
    return s->differs ? -1 : 0;
}

static struct shadow *shadow_of_dma(struct dma *dma)
{
    return (struct shadow *)((char *)dma - offsetof(struct shadow, dma));
}

static int dma_read(struct dma *dma, uint64_t gpa, void *data, size_t len)
{
    struct shadow *s = shadow_of_dma(dma);
    const void *from = guest_memory_at(&s->player->vm.memory, gpa, len);

    if (!from || s->differs)
        return -1;
    memcpy(data, from, len);
    return len >= DMA_READ_MIN ? transfer(s, false, gpa, data, len) : 0;
}

static int dma_peek(struct dma *dma, uint64_t gpa, void *data, size_t len)
{
    const struct shadow *s = shadow_of_dma(dma);
    const void *from = guest_memory_at(&s->player->vm.memory, gpa, len);

    if (recording_version(s->player->recording) < RECORDING_FRAMES)
        return dma_read(dma, gpa, data, len);
    if (!from || s->differs)
        return -1;
    memcpy(data, from, len);
    return 0;
}

static int dma_write(struct dma *dma, uint64_t gpa, const void *data, size_t len)
{
    struct shadow *s = shadow_of_dma(dma);

    if (!guest_memory_at(&s->player->vm.memory, gpa, len) || s->differs)
        return -1;
    return transfer(s, true, gpa, data, len);
}

static void entropy(void *opaque, void *buf, size_t len)
{
    struct shadow *s = opaque;

    memset(buf, 0, len);
    s->unknown = true;
}

/* ---- frames of NICs ---- */

/* The recording's next event, if it is a frame of this NIC's that is sent; else NULL. */
static const struct frame *next_sent(const struct shadow_link *link)
{
    struct shadow *s = link->shadow;
    const struct event *next;

    if (!s->differs && player_next(s->player, &next, s->e) < 0)
        s->differs = true;
    return !s->differs && next && next->kind == EVENT_FRAME && next->frame.is_sent &&
                   next->frame.nic == link->nic
               ? &next->frame
               : NULL;
}

static bool link_takes(struct net_link *link)
{
    const struct shadow_link *l = (struct shadow_link *)link;
    const struct frame *next = next_sent(l);

    if (!next || next->len)
        return !l->shadow->differs;
    player_pass(l->shadow->player);
    return false;
}

/* The frame that the recording has here is the one that the device is about to move. */
static void link_begin(struct net_link *link, uint32_t len, const struct net_segment *segment,
                       unsigned count)
{
    const struct shadow_link *l = (struct shadow_link *)link;
    struct shadow *s = l->shadow;
    const struct frame *next = s->has_frame ? &s->frame : next_sent(l);

    (void)count;
    if (s->differs)
        return;
    if (!next || next->len != len || next->is_sent != (segment != NULL) || next->nic != l->nic)
        differ(s, "a frame of %u bytes is not in the recording", len);
    else if (!s->has_frame)
        player_pass(s->player);
    s->has_frame = false;
}

static void link_send(struct net_link *link, const uint8_t *frame, size_t len)
{
    (void)link;
    (void)frame;
    (void)len;
}

static int follow_frame(struct shadow *s)
{
    static const uint8_t unknown[FRAME_MAX];
    struct virtio_net *net = &s->pc.nics[s->frame.nic].net;
    if (s->frame.is_sent) {
        s->has_frame = false;
        virtio_net_send(net);
    } else {
        s->unknown = true;
        virtio_net_receive(net, unknown, s->frame.len);
        s->unknown = false;
    }
    if (s->has_frame && !s->differs)
        differ(s, "a frame is not the device's");
    return s->differs ? -1 : 0;
}

/* ---- disks ---- */

/* All is done at once, and completed where the recording says. */
static void disk_submit(struct block_link *link, struct block_job *job)
{
    (void)link;
    job->run(job, true);
    atomic_store(&job->done, true);
}

static void disk_settle(struct block_link *link)
{
    (void)link;
}

static unsigned disk_completes(struct block_link *link, unsigned done)
{
    const struct shadow_disk *d = (struct shadow_disk *)link;
    struct shadow *s = d->shadow;
    const struct event *next = NULL;
    unsigned count = 0;

    if (link->one_by_one)
        return done;
    if (s->differs)
        return 0;
    if (s->completes) {
        count = s->completes;
        s->completes = 0;
    } else if (player_next(s->player, &next, s->e) < 0) {
        s->differs = true;
    } else if (next && next->kind == EVENT_DISK_DONE && next->disk_done.disk == d->disk) {
        count = next->disk_done.count;
        player_pass(s->player);
    }
    if (count <= done)
        return count;
    differ(s, "disk %u has not %u requests to complete", d->disk, count);
    return 0;
}

static int follow_disk(struct shadow *s)
{
    virtio_blk_complete(&s->pc.disks[s->completing].blk);
    if (s->completes && !s->differs)
        differ(s, "disk %u has nothing to complete", s->completing);
    s->completes = 0;
    return s->differs ? -1 : 0;
}

/* At no access of the guest's a frame came, what waited to be sent was gone on with, or requests of
 * a disk were completed. */
static int follow_behind(struct player_follower *f, struct err *e)
{
    struct shadow *s = shadow_of(f);

    s->e = e;
    s->unknown = false;
    if (s->has_frame)
        return follow_frame(s);
    return s->completes ? follow_disk(s) : 0;
}

static void request(void *opaque, enum machine_request wanted)
{
    struct shadow *s = opaque;

    s->end = wanted == MACHINE_POWEROFF ? END_POWEROFF : END_RESET;
}

/* ---- what the guest does ---- */

static void tell(struct shadow *s, uint64_t ns)
{
    if (ns > s->told_ns)
        s->told_ns = ns;
}

/* The guest has read the PM timer: 32 bits of device time, which is not before what it knew. */
static void tell_ticks(struct shadow *s, const struct vcpu_exit *exit)
{
    const uint64_t known = ticks_at(s->told_ns, PM_TIMER_HZ);
    uint32_t low;

    if (exit->at != PM_TIMER_PORT || exit->size != sizeof low || exit->count != 1)
        return;
    memcpy(&low, exit->data, sizeof low);
    tell(s, ns_of_tick(known + (uint32_t)(low - (uint32_t)known), PM_TIMER_HZ));
}

static int serve(struct shadow *s, const struct vcpu_exit *exit)
{
    uint8_t data[PIO_MAX_BYTES];
    struct bus_access ours = access_of(0, exit);
    const size_t len = (size_t)exit->size * exit->count;
    const struct event *next;
    uint64_t now = s->pc.time.now_ns;

    assert(len <= sizeof data);
    memcpy(data, exit->data, len);
    ours.data = data;
    if (player_next(s->player, &next, s->e) < 0)
        return -1;
    if (next && next->kind == EVENT_TIME)
        now = next->time_ns; /* if it is this access's; nobody asks otherwise */
    s->unknown = false;
    const bool asked = pc_serve(&s->pc, &ours, now);
    if (s->differs)
        return -1;
    if (asked) {
        if (!next || next->kind != EVENT_TIME)
            return differ(s, "the recording does not have the time of an access");
        tell(s, now);
        player_pass(s->player);
    }
    if (!ours.write && memcmp(data, exit->data, len) != 0)
        return differ(s, "%s %#llx reads otherwise", ours.mmio ? "address" : "port",
                      (unsigned long long)exit->at);
    return 0;
}

static int follow_access(struct player_follower *f, const struct vcpu_exit *exit, struct err *e)
{
    struct shadow *s = shadow_of(f);
    uint64_t value;

    s->e = e;
    if (exit->kind == EXIT_PIO_OUT && exit->at == KEXEC_PORT && s->kexec_hook && !s->kexec_at &&
        s->player->cpu->vcpu.regs->rip == s->kexec_hook)
        s->kexec_at = s->player->ordinal;
    tell(s, s->player->tsc); /* an RDTSC since the last time */
    if (exit->kind == EXIT_RDMSR) {
        memcpy(&value, exit->data, sizeof value);
        if (exit->at == MSR_IA32_TSC)
            tell(s, value);
        return 0;
    }
    const struct bus_access access = access_of(0, exit);
    if (pc_is_pm_timer(&access)) {
        tell_ticks(s, exit);
        return 0;
    }
    if (!s->hold || s->player->ordinal < s->hold)
        return serve(s, exit);
    s->held = *exit;
    s->held.data = s->held_data;
    memcpy(s->held_data, exit->data, (size_t)exit->size * exit->count);
    /* In the middle of an instruction is no place for a snapshot. */
    const int halfway = player_is_halfway(s->player, e);
    return halfway > 0 ? shadow_go_on(s, e) : halfway;
}

int shadow_go_on(struct shadow *s, struct err *e)
{
    const struct vcpu_exit access = s->held;

    s->e = e;
    s->held = (struct vcpu_exit){0};
    return access.kind ? serve(s, &access) : 0;
}

static int follow_event(struct player_follower *f, const struct event *event, struct err *e)
{
    struct shadow *s = shadow_of(f);
    struct irqchip *chip = &s->pc.irqchip;

    s->e = e;
    switch (event->kind) {
    case EVENT_TIME: /* of no access: the devices were polled */
        pc_poll(&s->pc, event->time_ns);
        tell(s, event->time_ns);
        return 0;
    case EVENT_RECEIVED:
        if (serial_receive(&s->pc.serial, event->received.data, event->received.len) !=
            event->received.len)
            return differ(s, "the console takes less input");
        return 0;
    case EVENT_FRAME:
        if (event->frame.nic >= s->pc.config.nic_count)
            return differ(s, "a frame is of a NIC that there is not");
        if (event->frame.is_sent && event->frame.len)
            return differ(s, "a frame is sent at no access");
        s->frame = event->frame;
        s->has_frame = true;
        return 0;
    case EVENT_DISK_DONE:
        if (event->disk_done.disk >= (s->pc.config.disks ? s->pc.config.disks->count : 0))
            return differ(s, "there is no disk %u", event->disk_done.disk);
        s->completing = event->disk_done.disk;
        s->completes = event->disk_done.count;
        return 0;
    case EVENT_BOOT: /* it was reset, by an access or a triple fault */
        s->end = 0;
        s->kexec_at = 0;
        tell(s, event->boot.time_ns);
        return pc_reset(&s->pc, event->boot.time_ns, e);
    case EVENT_INJECT:
        if (!irqchip_pending(chip) || irqchip_acknowledge(chip) != event->vector)
            return differ(s, "there is no interrupt with vector %#x", event->vector);
        return 0;
    case EVENT_WINDOW:
        if (event->window != irqchip_pending(chip))
            return differ(s, "an interrupt is %s", event->window ? "missing" : "too many");
        return 0;
    default:
        return 0;
    }
}

/* ---- opening, and the end ---- */

/* Of their state: what requests of disks hold is the most of it. */
#define DEVICES_MAX (256u << 20)

/* The next len bytes. */
static int load_devices(struct shadow *s, struct stream_reader *in, uint64_t len, struct err *e)
{
    uint8_t *data =
        len <= DEVICES_MAX && len <= stream_left(in) ? malloc(len ? (size_t)len : 1) : NULL;
    int rc = 0;

    if (!data || stream_read(in, data, (size_t)len) < 0) {
        rc = stream_bad(in)
                 ? stream_error(in, e)
                 : err_set(e, STATUS_BAD_RECORDING, "%s is damaged: its devices are not there",
                           recording_path(s->player->recording));
    } else {
        struct cursor c = cursor_of(data, (size_t)len);
        if (pc_restore(&s->pc, &c) < 0)
            rc = err_set(e, STATUS_BAD_RECORDING, "%s: this dittovm does not know its devices",
                         recording_path(s->player->recording));
    }
    free(data);
    return rc;
}

static int load_cluster(struct shadow *s, struct disk *disk, uint64_t cluster, uint64_t chunk,
                        struct err *e)
{
    struct player *p = s->player;
    uint8_t page[DISK_CLUSTER];
    size_t len;

    if (!disk || cluster >= (disk->size + DISK_CLUSTER - 1) / DISK_CLUSTER)
        return err_set(e, STATUS_BAD_RECORDING, "%s is damaged: it writes beyond its disk",
                       recording_path(p->recording));
    if (chunk_read(p->chunks, chunk, page, &len, e) < 0)
        return -1;
    const uint64_t at = cluster * DISK_CLUSTER, left = disk->size - at;
    if (disk_write(disk, at, page, left < sizeof page ? (size_t)left : sizeof page) < 0)
        return err_set(e, STATUS_ERROR, "cannot write to the copy-on-write disk in memory");
    return 0;
}

/* What the machine had written to its disk: the list up to `end`. */
static int load_disk(struct shadow *s, struct disk *disk, struct stream_reader *in, uint64_t end,
                     struct err *e)
{
    uint64_t cluster = 0, chunk = 0;

    while (stream_tell(in) < end) {
        cluster += (uint64_t)stream_svarint(in);
        chunk += (uint64_t)stream_svarint(in);
        if (stream_bad(in))
            return stream_error(in, e);
        if (load_cluster(s, disk, cluster++, chunk++, e) < 0)
            return -1;
    }
    if (stream_tell(in) != end)
        return err_set(e, STATUS_BAD_RECORDING, "%s is damaged: a list of its disk's has no end",
                       recording_path(s->player->recording));
    return 0;
}

/* As it is before the recording's first instruction. */
static int load_initial(struct shadow *s, struct disk *disk, struct err *e)
{
    const struct recording *r = s->player->recording;
    struct stream_reader *devices = stream_open(r, STREAM_DEVICES, e);
    struct stream_reader *clusters = devices ? stream_open(r, STREAM_DISK, e) : NULL;
    int rc = clusters && load_devices(s, devices, stream_left(devices), e) == 0
                 ? load_disk(s, disk, clusters, stream_left(clusters), e)
                 : -1;

    stream_close(devices);
    stream_close(clusters);
    return rc;
}

/* The access that is still to be served: it is the one of the sync point where the player stands,
 * of which the recording does not hold the data elsewhere. */
static int load_access(struct shadow *s, struct stream_reader *in, uint64_t len, struct err *e)
{
    const struct sync_point *sync = &s->player->cpu->last_sync;
    const bool mmio = sync->kind == EXIT_MMIO_READ || sync->kind == EXIT_MMIO_WRITE;
    const bool pio = sync->kind == EXIT_PIO_IN || sync->kind == EXIT_PIO_OUT;

    if (!len)
        return 0;
    if ((!mmio && !pio) || len > sizeof s->held_data || len != (uint64_t)sync->size * sync->count ||
        (mmio ? sync->size < 1 || sync->size > 8
              : sync->size != 1 && sync->size != 2 && sync->size != 4) ||
        stream_read(in, s->held_data, (size_t)len) < 0)
        return err_set(e, STATUS_BAD_RECORDING,
                       "%s is damaged: a snapshot has an access that is none",
                       recording_path(s->player->recording));
    s->held = (struct vcpu_exit){
        .kind = sync->kind,
        .at = sync->at,
        .size = sync->size,
        .count = sync->count,
        .data = s->held_data,
    };
    return 0;
}

/* As it is at a snapshot: its last bytes (recorder/live_state.h). */
static int load_live(struct shadow *s, struct disk *disk, struct stream_reader *in,
                     const struct snapshot_entry *from, struct err *e)
{
    const uint64_t end = from->offset + from->len;

    stream_seek(in, end - from->live);
    if (stream_u8(in) != LIVE_STATE_VERSION && !stream_bad(in))
        return err_set(e, STATUS_BAD_RECORDING,
                       "%s: this dittovm does not know the state of devices in its snapshot '%s'",
                       recording_path(s->player->recording), from->name);
    const uint64_t len = stream_varint(in);
    if (stream_bad(in))
        return stream_error(in, e);
    if (load_devices(s, in, len, e) < 0)
        return -1;
    const uint64_t access = stream_varint(in);
    if (stream_bad(in))
        return stream_error(in, e);
    return load_access(s, in, access, e) < 0 ? -1 : load_disk(s, disk, in, end, e);
}

static int load_snapshot(struct shadow *s, struct disk *disk, const struct snapshot_entry *from,
                         struct err *e)
{
    struct stream_reader *in = stream_open(s->player->recording, STREAM_SNAPSHOTS, e);
    int rc = in ? load_live(s, disk, in, from, e) : -1;

    stream_close(in);
    return rc;
}

static void plug_disks(struct shadow *s, struct pc_config *config)
{
    for (unsigned i = 0; i < MAX_DISKS; i++) {
        s->disks[i] = (struct shadow_disk){
            .link = {.submit = disk_submit,
                     .completes = disk_completes,
                     .settle = disk_settle,
                     .one_by_one = recording_version(s->player->recording) < RECORDING_DISK_DONE},
            .shadow = s,
            .disk = i,
        };
        config->disk_links[i] = &s->disks[i].link;
    }
}

/* The NICs that the recording says there are. */
static int plug_nics(struct shadow *s, struct pc_config *config, struct err *e)
{
    json_t *meta = meta_load(s->player->recording, e);
    uint8_t macs[MAX_NICS][MAC_BYTES];

    if (!meta)
        return -1;
    config->nic_count = meta_nics(meta, macs);
    for (unsigned i = 0; i < config->nic_count; i++) {
        s->links[i] = (struct shadow_link){
            .link = {.takes = link_takes, .begin = link_begin, .send = link_send},
            .shadow = s,
            .nic = i,
        };
        config->nics[i].link = &s->links[i].link;
        memcpy(config->nics[i].mac, macs[i], sizeof macs[i]);
    }
    json_decref(meta);
    return 0;
}

int shadow_open(struct shadow *s, struct player *p, const struct disk_set *disks,
                uint64_t kexec_hook, const struct snapshot_entry *from, struct err *e)
{
    struct disk *disk = disks ? disks->whole : NULL;

    *s = (struct shadow){
        .follower = {.access = follow_access, .event = follow_event, .behind = follow_behind},
        .dma = {.read = dma_read, .peek = dma_peek, .write = dma_write},
        .player = p,
        .has_disk = disk != NULL,
        .kexec_hook = kexec_hook,
        .e = e,
    };
    struct pc_config config = {
        .cpus = 1,
        .dma = &s->dma,
        .disks = disks,
        .entropy = entropy,
        .request = request,
        .opaque = s,
    };
    assert(!from || from->live);
    if (p->cpu_count != 1)
        return err_set(e, STATUS_ERROR,
                       "%s is of a machine with several CPUs, whose devices cannot be followed",
                       recording_path(p->recording));
    plug_disks(s, &config);
    if (plug_nics(s, &config, e) < 0 || pc_init(&s->pc, &config, e) < 0 ||
        (from ? load_snapshot(s, disk, from, e) : load_initial(s, disk, e)) < 0) {
        pc_close(&s->pc);
        s->player = NULL;
        return -1;
    }
    s->told_ns = s->pc.time.now_ns;
    p->follower = &s->follower;
    return 0;
}

int shadow_check_kernel(const struct shadow *s, struct err *e)
{
    if (!s->kexec_at)
        return 0;
    return err_set(e, STATUS_ERROR,
                   "cannot go live from %s at sync point %llu or later: there the machine starts "
                   "another kernel (kexec); give a place before",
                   recording_path(s->player->recording), (unsigned long long)s->kexec_at);
}

void shadow_close(struct shadow *s)
{
    if (!s->player)
        return;
    s->player->follower = NULL;
    s->player = NULL;
    pc_close(&s->pc);
}

void shadow_save_access(const struct shadow *s, struct bytes *access)
{
    if (s->held.kind)
        bytes_put(access, s->held_data, (size_t)s->held.size * s->held.count);
}

void shadow_save(struct shadow *s, struct bytes *devices)
{
    tell(s, s->player->tsc);
    s->pc.time.now_ns = s->told_ns;
    pc_save(&s->pc, devices);
}
