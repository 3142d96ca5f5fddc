#include "recording/event.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/text.h"
#include "recording/cpu_state.h"
#include "recording/format.h"

const char *const reg_names[REG_COUNT] = {
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rsp", "rbp", "r8",
    "r9",  "r10", "r11", "r12", "r13", "r14", "r15", "rip", "rflags",
};
_Static_assert(sizeof(struct kvm_regs) == REG_COUNT * 8, "struct kvm_regs is 18 words");

const char *end_reason_text(enum end_reason reason)
{
    switch (reason) {
    case END_POWEROFF:
        return "powered off";
    case END_RESET:
        return "reset";
    case END_TRIPLE_FAULT:
        return "triple fault";
    case END_HALTED:
        return "halted with interrupts off";
    case END_STOPPED:
        return "stopped by the user";
    case END_FAILED:
        return "the host could not go on";
    }
    return "unknown";
}

void digest_format(const struct state_digest *digest, char text[DIGEST_TEXT])
{
    snprintf(text, DIGEST_TEXT, "%016llx-%016llx-%016llx", (unsigned long long)digest->memory,
             (unsigned long long)digest->cpu, (unsigned long long)digest->outputs);
}

uint64_t output_fold(uint64_t digest, uint64_t at, const void *data, size_t len)
{
    return XXH3_64bits_withSeed(data, len, digest ^ (at + 1) * 0x9e3779b97f4a7c15ull);
}

/* ---- registers: a mask of those that changed, then their differences ---- */

static void regs_encode(struct bytes *out, uint64_t last[REG_COUNT], const uint64_t regs[REG_COUNT])
{
    uint32_t mask = 0;

    for (unsigned i = 0; i < REG_COUNT; i++)
        mask |= (uint32_t)(regs[i] != last[i]) << i;
    bytes_put_varint(out, mask);
    for (unsigned i = 0; i < REG_COUNT; i++)
        if (mask >> i & 1)
            bytes_put_svarint(out, (int64_t)(regs[i] - last[i]));
    memcpy(last, regs, REG_COUNT * sizeof *last);
}

static bool regs_decode(struct cursor *in, uint64_t last[REG_COUNT], uint64_t regs[REG_COUNT])
{
    uint64_t mask = cursor_varint(in);

    if (mask >> REG_COUNT)
        in->bad = true;
    for (unsigned i = 0; i < REG_COUNT; i++)
        if (mask >> i & 1)
            last[i] += (uint64_t)cursor_svarint(in);
    memcpy(regs, last, REG_COUNT * sizeof *last);
    return !in->bad;
}

/* ---- sync points ---- */

#define SYNC_SAME_PLACE 0x80 /* `at`, `size` and `count` are as before */

void sync_encode(struct bytes *out, struct sync_point *last, const struct sync_point *sync)
{
    bool same = sync->at == last->at && sync->size == last->size && sync->count == last->count;

    assert(sync->kind >= 1 && sync->kind <= EXIT_SYNC_LAST);
    bytes_put_u8(out, (uint8_t)(sync->kind | (same ? SYNC_SAME_PLACE : 0)));
    if (!same) {
        bytes_put_varint(out, sync->at);
        bytes_put_u8(out, sync->size);
        bytes_put_varint(out, sync->count);
    }
    bytes_put_u8(out, sync->output);
    uint64_t regs[REG_COUNT];
    memcpy(regs, last->regs, sizeof regs);
    regs_encode(out, regs, sync->regs);
    *last = *sync;
}

bool sync_decode(struct cursor *in, struct sync_point *last, struct sync_point *sync)
{
    uint8_t head = cursor_u8(in);

    last->kind = head & ~SYNC_SAME_PLACE;
    if (last->kind < 1 || last->kind > EXIT_SYNC_LAST)
        in->bad = true;
    if (!(head & SYNC_SAME_PLACE)) {
        last->at = cursor_varint(in);
        last->size = cursor_u8(in);
        last->count = (uint32_t)cursor_varint(in);
    }
    last->output = cursor_u8(in);
    regs_decode(in, last->regs, last->regs);
    *sync = *last;
    return !in->bad;
}

/* ---- landmarks ---- */

/* One byte says which counts there are: bit 0 that of branches, the others enum landmark_entry. */
#define LANDMARK_ENTRY_SHIFT 1
#define LANDMARK_OLD_WORDS   256
/* What there is of the pages written before. */
enum { PAGES_UNKNOWN, PAGES_LISTED, PAGES_CHECKED };

static void segment_encode(struct bytes *out, const struct kvm_segment *s)
{
    bytes_put_varint(out, s->base);
    bytes_put_u32(out, s->limit);
    bytes_put_u16(out, s->selector);
    bytes_put_u16(out, segment_attributes(s));
}

static void segment_decode(struct cursor *in, struct kvm_segment *s)
{
    memset(s, 0, sizeof *s);
    s->base = cursor_varint(in);
    s->limit = cursor_u32(in);
    s->selector = cursor_u16(in);
    segment_set_attributes(s, cursor_u16(in));
}

void landmark_put_page(struct bytes *list, struct landmark_page *last,
                       const struct landmark_page *page)
{
    bytes_put_varint(list, (uint64_t)(page->page - last->page) << 1 | page->is_table);
    *last = *page;
}

bool landmark_next_page(struct cursor *list, struct landmark_page *page)
{
    if (!cursor_left(list))
        return false;
    const uint64_t got = cursor_varint(list);
    page->page += (uint32_t)(got >> 1);
    page->is_table = got & 1;
    return !list->bad;
}

void landmark_mark_pages(const struct landmark *l, const struct guest_memory *m, uint64_t *bitmap)
{
    struct cursor list = cursor_of(l->page_list, l->page_list_bytes);
    struct landmark_page page = {0};

    assert(l->exact);
    while (landmark_next_page(&list, &page) && page.page < m->size / PAGE_BYTES)
        bitmap_set(bitmap, page.page);
}

static void pages_encode(struct bytes *out, const struct landmark *l)
{
    bytes_put_varint(out, l->pages);
    bytes_put(out, l->page_list, l->page_list_bytes);
    if (l->page_checks)
        bytes_put(out, l->page_checks, l->pages);
    bytes_put_u64(out, l->pages_digest);
}

/* The pages are in ascending order, or it makes no sense. */
static void pages_decode(struct cursor *in, bool checked, struct landmark *l)
{
    const uint64_t pages = cursor_varint(in);
    uint64_t page = 0;

    l->page_list = in->p;
    if (pages > LANDMARK_PAGES)
        in->bad = true;
    else
        l->pages = (unsigned)pages;
    for (unsigned i = 0; i < l->pages && !in->bad; i++) {
        const uint64_t step = cursor_varint(in) >> 1;
        page += step;
        if ((i && !step) || step > UINT32_MAX || page > UINT32_MAX)
            in->bad = true;
    }
    l->page_list_bytes = (size_t)(in->p - l->page_list);
    if (checked)
        l->page_checks = cursor_take(in, l->pages);
    l->pages_digest = cursor_u64(in);
}

static void landmark_encode(struct bytes *out, struct event_codec *codec, const struct landmark *l)
{
    assert(l->code_len <= LANDMARK_CODE && l->probes <= LANDMARK_PROBES &&
           l->pages <= LANDMARK_PAGES);
    bytes_put_u8(out, l->cpl);
    bytes_put_u8(out, l->code_len);
    bytes_put(out, l->code, l->code_len);
    bytes_put_varint(out, l->gpa);
    bytes_put_varint(out, l->cr3);
    bytes_put_u64(out, l->fpu);
    regs_encode(out, codec->regs, l->regs);
    segment_encode(out, &l->cs);
    segment_encode(out, &l->ss);
    bytes_put_u8(out, (uint8_t)l->probes);
    for (unsigned i = 0; i < l->probes; i++) {
        bytes_put_svarint(out, (int64_t)(l->probe[i].va - l->regs[REGISTER_RSP]));
        bytes_put_varint(out, l->probe[i].value);
    }
    bytes_put_u8(out, !l->exact ? PAGES_UNKNOWN : l->page_checks ? PAGES_CHECKED : PAGES_LISTED);
    if (l->exact)
        pages_encode(out, l);
    bytes_put_u8(out, (uint8_t)(l->counted | l->entry << LANDMARK_ENTRY_SHIFT));
    if (l->counted)
        bytes_put_varint(out, l->branches);
    if (l->entry != ENTRY_UNKNOWN) {
        bytes_put_varint(out, l->entries);
        bytes_put_varint(out, l->entries_gpa);
    }
}

/* Of user code they are loaded as they are here, when it is landed on: they are what a CPU can have
 * loaded, and KVM takes. */
static bool segments_are_users(const struct kvm_segment *cs, const struct kvm_segment *ss)
{
    return cs->present && cs->s && (cs->type & 8) && !cs->unusable && !(cs->l && cs->db) &&
           ss->present && ss->s && !(ss->type & 8) && !ss->unusable && ss->dpl == 3;
}

/* What landmarks had before they listed all pages: a digest of words that the code around them
 * uses.
 */
static void skip_words(struct cursor *in)
{
    const uint64_t words = cursor_varint(in);

    if (words > LANDMARK_OLD_WORDS)
        in->bad = true;
    for (uint64_t i = 0; i < words && !in->bad; i++)
        cursor_varint(in);
    if (words)
        cursor_u64(in);
}

static void landmark_decode(struct cursor *in, struct event_codec *codec, uint32_t version,
                            struct landmark *l)
{
    const bool old = version < RECORDING_PAGES_ALONE;

    memset(l, 0, sizeof *l);
    l->cpl = cursor_u8(in);
    l->code_len = cursor_u8(in);
    if ((l->cpl != 0 && l->cpl != 3) || l->code_len < 1 || l->code_len > LANDMARK_CODE)
        in->bad = true;
    else
        cursor_get(in, l->code, l->code_len);
    l->gpa = cursor_varint(in);
    l->cr3 = cursor_varint(in);
    l->fpu = cursor_u64(in);
    if (old) { /* digests of the stack, and of what it points to */
        cursor_u64(in);
        cursor_u64(in);
    }
    regs_decode(in, codec->regs, l->regs);
    segment_decode(in, &l->cs);
    segment_decode(in, &l->ss);
    if (l->cpl == 3 && !segments_are_users(&l->cs, &l->ss))
        in->bad = true;
    l->probes = cursor_u8(in);
    if (l->probes > LANDMARK_PROBES)
        in->bad = true;
    for (unsigned i = 0; i < l->probes && !in->bad; i++) {
        l->probe[i].va = l->regs[REGISTER_RSP] + (uint64_t)cursor_svarint(in);
        l->probe[i].value = cursor_varint(in);
    }
    if (old)
        skip_words(in);
    const uint8_t pages = cursor_u8(in);
    if (pages > PAGES_CHECKED)
        in->bad = true;
    l->exact = pages == PAGES_LISTED || pages == PAGES_CHECKED;
    if (l->exact)
        pages_decode(in, pages == PAGES_CHECKED, l);
    const uint8_t counts = cursor_u8(in);
    if (counts >> LANDMARK_ENTRY_SHIFT > ENTRY_HERE)
        in->bad = true;
    l->counted = counts & 1;
    if (l->counted)
        l->branches = cursor_varint(in);
    l->entry = counts >> LANDMARK_ENTRY_SHIFT;
    if (l->entry != ENTRY_UNKNOWN) {
        l->entries = cursor_varint(in);
        l->entries_gpa = cursor_varint(in);
        if (l->entries_gpa % sizeof l->entries != 0)
            in->bad = true;
    }
}

/* ---- DMA ---- */

static unsigned chunks_of(uint32_t len)
{
    return (len + 4095) / 4096;
}

static void dma_encode(struct bytes *out, struct event_codec *codec, const struct dma_transfer *dma,
                       bool write)
{
    assert(dma->len >= 1 && dma->len <= DMA_MAX);
    bytes_put_svarint(out, (int64_t)(dma->gpa - codec->gpa));
    bytes_put_varint(out, dma->len);
    codec->gpa = dma->gpa + dma->len;
    if (!write)
        return;
    if (dma->len <= DMA_INLINE_MAX) {
        bytes_put(out, dma->data, dma->len);
        return;
    }
    for (unsigned i = 0; i < chunks_of(dma->len); i++) {
        bytes_put_svarint(out, (int64_t)(dma->chunks[i] - codec->next_chunk));
        codec->next_chunk = dma->chunks[i] + 1;
    }
}

static void dma_decode(struct cursor *in, struct event_codec *codec, struct dma_transfer *dma,
                       bool write)
{
    dma->gpa = codec->gpa + (uint64_t)cursor_svarint(in);
    uint64_t len = cursor_varint(in);
    if (len < 1 || len > DMA_MAX) {
        in->bad = true;
        return;
    }
    dma->len = (uint32_t)len;
    codec->gpa = dma->gpa + len;
    if (!write)
        return;
    if (dma->len <= DMA_INLINE_MAX) {
        dma->data = cursor_take(in, dma->len);
        return;
    }
    for (unsigned i = 0; i < chunks_of(dma->len); i++) {
        dma->chunks[i] = codec->next_chunk + (uint64_t)cursor_svarint(in);
        codec->next_chunk = dma->chunks[i] + 1;
    }
}

/* ---- frames ---- */

void frame_put_place(struct bytes *list, struct frame_place *last, const struct frame_place *place)
{
    bytes_put_svarint(list, (int64_t)(place->gpa - last->gpa));
    bytes_put_varint(list, place->len);
    *last = *place;
}

bool frame_next_place(struct cursor *list, struct frame_place *place)
{
    if (!cursor_left(list))
        return false;
    place->gpa += (uint64_t)cursor_svarint(list);
    const uint64_t len = cursor_varint(list);
    place->len = (uint32_t)len;
    return !list->bad && len <= UINT32_MAX;
}

static void frame_encode(struct bytes *out, struct event_codec *codec, const struct frame *f)
{
    assert(f->nic < MAX_NICS && f->len >= !f->is_sent && f->len <= FRAME_MAX &&
           f->places <= FRAME_PLACES_MAX);
    bytes_put_u8(out, (uint8_t)(f->nic << 1 | f->is_sent));
    bytes_put_varint(out, f->len);
    bytes_put_svarint(out, (int64_t)(f->time_ns - codec->time_ns));
    codec->time_ns = f->time_ns;
    if (!f->is_sent || !f->len)
        return;
    bytes_put_varint(out, f->places);
    bytes_put(out, f->place_list, f->place_list_bytes);
}

/* What lies in the places is at least the frame and its header. */
static void places_decode(struct cursor *in, struct frame *f)
{
    const uint64_t places = cursor_varint(in);
    uint64_t room = 0;

    f->place_list = in->p;
    if (places > FRAME_PLACES_MAX)
        in->bad = true;
    else
        f->places = (unsigned)places;
    for (unsigned i = 0; i < f->places && !in->bad; i++) {
        cursor_svarint(in);
        const uint64_t len = cursor_varint(in);
        if (len > UINT32_MAX)
            in->bad = true;
        room += len;
    }
    f->place_list_bytes = (size_t)(in->p - f->place_list);
    if (room < FRAME_HEADER + f->len)
        in->bad = true;
}

static void frame_decode(struct cursor *in, struct event_codec *codec, struct frame *f)
{
    const uint8_t which = cursor_u8(in);
    const uint64_t len = cursor_varint(in);

    if (which >> 1 >= MAX_NICS || len < !(which & 1) || len > FRAME_MAX)
        in->bad = true;
    f->nic = which >> 1;
    f->is_sent = which & 1;
    f->len = (uint32_t)len;
    f->time_ns = codec->time_ns += (uint64_t)cursor_svarint(in);
    if (f->is_sent && f->len && !in->bad)
        places_decode(in, f);
}

static void disk_done_decode(struct cursor *in, struct disk_done *d)
{
    const uint64_t which = cursor_varint(in);

    d->disk = which % MAX_DISKS;
    d->count = (unsigned)(which / MAX_DISKS) + 1;
    if (which / MAX_DISKS >= UINT16_MAX)
        in->bad = true;
}

/* ---- marks and boots ---- */

/* Their time is beside the codec's: it may be later than an event's that follows. */
static void mark_encode(struct bytes *out, const struct event_codec *codec, const struct mark *m)
{
    assert(m->len >= 1 && m->len <= MARK_MAX);
    bytes_put_u8(out, m->by_guest);
    bytes_put_svarint(out, (int64_t)(m->time_ns - codec->time_ns));
    bytes_put_u8(out, m->len);
    bytes_put(out, m->text, m->len);
}

static void mark_decode(struct cursor *in, const struct event_codec *codec, struct mark *m)
{
    m->by_guest = cursor_u8(in) != 0;
    m->time_ns = codec->time_ns + (uint64_t)cursor_svarint(in);
    m->len = cursor_u8(in);
    if (m->len < 1 || m->len > MARK_MAX) {
        in->bad = true;
        return;
    }
    cursor_get(in, m->text, m->len);
    m->text[m->len] = '\0';
    if (strlen(m->text) != m->len)
        in->bad = true;
    text_clean(m->text);
}

static void boot_encode(struct bytes *out, const struct event_codec *codec, const struct boot *b)
{
    assert(b->state_len >= 1 && b->state_len <= BOOT_STATE_MAX);
    bytes_put_svarint(out, (int64_t)(b->time_ns - codec->time_ns));
    bytes_put_varint(out, b->state_len);
    bytes_put(out, b->state, b->state_len);
}

static void boot_decode(struct cursor *in, const struct event_codec *codec, struct boot *b)
{
    b->time_ns = codec->time_ns + (uint64_t)cursor_svarint(in);
    const uint64_t len = cursor_varint(in);
    if (len < 1 || len > BOOT_STATE_MAX) {
        in->bad = true;
        return;
    }
    b->state_len = (size_t)len;
    b->state = cursor_take(in, b->state_len);
}

/* ---- events ---- */

static void digest_encode(struct bytes *out, const struct state_digest *d)
{
    bytes_put_u64(out, d->memory);
    bytes_put_u64(out, d->cpu);
    bytes_put_u64(out, d->outputs);
}

static void digest_decode(struct cursor *in, struct state_digest *d)
{
    d->memory = cursor_u64(in);
    d->cpu = cursor_u64(in);
    d->outputs = cursor_u64(in);
}

/* Those for who follows the devices. */
static void device_event_encode(struct bytes *out, struct event_codec *codec,
                                const struct event *event)
{
    switch (event->kind) {
    case EVENT_TIME:
        bytes_put_varint(out, event->time_ns - codec->time_ns);
        codec->time_ns = event->time_ns;
        break;
    case EVENT_RECEIVED:
        assert(event->received.len >= 1 && event->received.len <= RECEIVED_MAX);
        bytes_put_u8(out, event->received.len);
        bytes_put(out, event->received.data, event->received.len);
        break;
    case EVENT_FRAME:
        frame_encode(out, codec, &event->frame);
        break;
    case EVENT_DISK_DONE:
        assert(event->disk_done.disk < MAX_DISKS && event->disk_done.count >= 1);
        bytes_put_varint(out, (uint64_t)(event->disk_done.count - 1) * MAX_DISKS +
                                  event->disk_done.disk);
        break;
    default:
        assert(!"an event of no known kind");
    }
}

void event_encode(struct bytes *out, struct event_codec *codec, const struct event *event)
{
    assert(event->ordinal >= codec->ordinal);
    bytes_put_varint(out, event->ordinal - codec->ordinal);
    codec->ordinal = event->ordinal;
    bytes_put_u8(out, (uint8_t)event->kind);
    switch (event->kind) {
    case EVENT_INJECT:
    case EVENT_START:
        bytes_put_u8(out, event->vector);
        break;
    case EVENT_SCHEDULE:
        bytes_put_u8(out, (uint8_t)event->vcpu);
        break;
    case EVENT_CR8:
        bytes_put_u8(out, event->cr8);
        break;
    case EVENT_NMI:
    case EVENT_REST:
    case EVENT_TSD:
        break;
    case EVENT_REGAIN:
        bytes_put_u8(out, event->all);
        break;
    case EVENT_WINDOW:
        bytes_put_u8(out, event->window);
        break;
    case EVENT_DMA_WRITE:
    case EVENT_DMA_READ:
        dma_encode(out, codec, &event->dma, event->kind == EVENT_DMA_WRITE);
        break;
    case EVENT_HOOK:
        bytes_put_u64(out, event->hook.rip);
        bytes_put_u64(out, event->hook.handler);
        bytes_put_u64(out, event->hook.ud);
        bytes_put_u64(out, event->hook.iretq);
        break;
    case EVENT_FORCED:
        landmark_encode(out, codec, &event->landmark);
        break;
    case EVENT_DIGEST:
        digest_encode(out, &event->digest);
        break;
    case EVENT_END:
        bytes_put_u8(out, (uint8_t)event->end.reason);
        bytes_put_u8(out, event->end.has_digest);
        digest_encode(out, &event->end.digest);
        break;
    case EVENT_MARK:
        mark_encode(out, codec, &event->mark);
        break;
    case EVENT_BOOT:
        boot_encode(out, codec, &event->boot);
        break;
    default:
        device_event_encode(out, codec, event);
    }
}

/* Those for who follows the devices. */
static void device_event_decode(struct cursor *in, struct event_codec *codec, struct event *event)
{
    switch (event->kind) {
    case EVENT_TIME:
        event->time_ns = codec->time_ns += cursor_varint(in);
        break;
    case EVENT_RECEIVED:
        event->received.len = cursor_u8(in);
        if (event->received.len < 1 || event->received.len > RECEIVED_MAX)
            in->bad = true;
        else
            cursor_get(in, event->received.data, event->received.len);
        break;
    case EVENT_FRAME:
        frame_decode(in, codec, &event->frame);
        break;
    case EVENT_DISK_DONE:
        disk_done_decode(in, &event->disk_done);
        break;
    default:
        in->bad = true;
    }
}

bool event_decode(struct cursor *in, struct event_codec *codec, uint32_t version,
                  struct event *event)
{
    memset(event, 0, sizeof *event);
    codec->ordinal += cursor_varint(in);
    event->ordinal = codec->ordinal;
    event->kind = cursor_u8(in);
    switch (event->kind) {
    case EVENT_INJECT:
    case EVENT_START:
        event->vector = cursor_u8(in);
        break;
    case EVENT_SCHEDULE:
        event->vcpu = cursor_u8(in);
        if (event->vcpu >= MAX_VCPUS)
            in->bad = true;
        break;
    case EVENT_CR8:
        event->cr8 = cursor_u8(in);
        if (event->cr8 > 15)
            in->bad = true;
        break;
    case EVENT_NMI:
    case EVENT_REST:
    case EVENT_TSD:
        break;
    case EVENT_REGAIN:
        event->all = cursor_u8(in) != 0;
        break;
    case EVENT_WINDOW:
        event->window = cursor_u8(in) != 0;
        break;
    case EVENT_DMA_WRITE:
    case EVENT_DMA_READ:
        dma_decode(in, codec, &event->dma, event->kind == EVENT_DMA_WRITE);
        break;
    case EVENT_HOOK:
        event->hook.rip = cursor_u64(in);
        event->hook.handler = cursor_u64(in);
        event->hook.ud = cursor_u64(in);
        event->hook.iretq = cursor_u64(in);
        break;
    case EVENT_FORCED:
        landmark_decode(in, codec, version, &event->landmark);
        break;
    case EVENT_DIGEST:
        digest_decode(in, &event->digest);
        break;
    case EVENT_END:
        event->end.reason = cursor_u8(in);
        event->end.has_digest = cursor_u8(in) != 0;
        digest_decode(in, &event->end.digest);
        break;
    case EVENT_MARK:
        mark_decode(in, codec, &event->mark);
        break;
    case EVENT_BOOT:
        boot_decode(in, codec, &event->boot);
        break;
    default:
        device_event_decode(in, codec, event);
    }
    return !in->bad;
}
