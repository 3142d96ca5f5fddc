/* recording/codec.c: what is encoded is decoded, and nothing hostile gets through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "recording/event.h"
#include "recording/format.h"
#include "tests/unit/random.h"

static uint64_t seed = RANDOM_SEED;

static uint64_t rnd(void)
{
    return random_next(&seed);
}

static void random_sync(struct sync_point *s)
{
    s->kind = (enum exit_kind)(1 + rnd() % EXIT_SYNC_LAST);
    s->output = (uint8_t)rnd();
    if (rnd() % 2) {
        s->at = rnd() >> (rnd() % 64);
        s->size = (uint8_t)(1 << rnd() % 4);
        s->count = (uint32_t)(rnd() % 512);
    }
    for (unsigned i = 0; i < REG_COUNT; i++)
        if (rnd() % 4 == 0)
            s->regs[i] = rnd() >> (rnd() % 64);
}

static void test_sync_points_round_trip(void **state)
{
    struct sync_point written[500], last = {0}, got;
    struct bytes b = {0};

    (void)state;
    for (unsigned i = 0; i < 500; i++) {
        written[i] = i ? written[i - 1] : (struct sync_point){0};
        random_sync(&written[i]);
        size_t before = b.len;
        sync_encode(&b, &last, &written[i]);
        assert_true(b.len - before <= SYNC_MAX_BYTES);
    }
    struct cursor c = cursor_of(b.data, b.len);
    memset(&last, 0, sizeof last);
    for (unsigned i = 0; i < 500; i++) {
        assert_true(sync_decode(&c, &last, &got));
        assert_int_equal(got.kind, written[i].kind);
        assert_int_equal(got.at, written[i].at);
        assert_int_equal(got.size, written[i].size);
        assert_int_equal(got.count, written[i].count);
        assert_int_equal(got.output, written[i].output);
        assert_memory_equal(got.regs, written[i].regs, sizeof got.regs);
    }
    assert_int_equal(cursor_left(&c), 0);
    bytes_free(&b);
}

static void test_equal_sync_points_are_short(void **state)
{
    struct sync_point s = {.kind = EXIT_PIO_IN, .at = 0x3fd, .size = 1, .count = 1}, last = {0};
    struct bytes b = {0};

    (void)state;
    sync_encode(&b, &last, &s);
    size_t first = b.len;
    sync_encode(&b, &last, &s);
    assert_int_equal(b.len - first, 3);
    bytes_free(&b);
}

static void fill_landmark(struct landmark *l)
{
    l->cpl = rnd() % 2 ? 3 : 0;
    l->code_len = (uint8_t)(1 + rnd() % LANDMARK_CODE);
    for (unsigned i = 0; i < l->code_len; i++)
        l->code[i] = (uint8_t)rnd();
    l->gpa = rnd() >> 30;
    l->cr3 = rnd() >> 30;
    l->fpu = rnd();
    l->counted = rnd() % 2;
    l->branches = l->counted ? rnd() >> rnd() % 64 : 0;
    l->entry = (enum landmark_entry)(rnd() % (ENTRY_HERE + 1));
    l->entries = l->entry != ENTRY_UNKNOWN ? rnd() >> rnd() % 64 : 0;
    l->entries_gpa = l->entry != ENTRY_UNKNOWN ? rnd() >> rnd() % 64 & ~7ull : 0;
    for (unsigned i = 0; i < REG_COUNT; i++)
        l->regs[i] = rnd();
    l->cs = (struct kvm_segment){.limit = 0xffffffff,
                                 .selector = 0x33,
                                 .type = 11,
                                 .present = 1,
                                 .dpl = 3,
                                 .s = 1,
                                 .l = 1,
                                 .g = 1};
    l->ss = (struct kvm_segment){.selector = 0x2b,
                                 .type = 3,
                                 .present = 1,
                                 .dpl = 3,
                                 .db = 1,
                                 .s = 1,
                                 .avl = 1,
                                 .unusable = l->cpl == 0};
    l->probes = (unsigned)(rnd() % (LANDMARK_PROBES + 1));
    for (unsigned i = 0; i < l->probes; i++)
        l->probe[i] = (struct memory_probe){rnd(), rnd() >> (rnd() % 64)};
    l->exact = rnd() & 1;
    l->pages = l->exact ? (unsigned)(rnd() % (rnd() % 16 ? 16385 : LANDMARK_PAGES + 1)) : 0;
    struct bytes list = {0};
    struct landmark_page last = {0};
    for (unsigned i = 0; i < l->pages; i++) {
        const uint32_t step = (uint32_t)(rnd() % 8000);
        const struct landmark_page page = {last.page + step + (i > 0), rnd() & 1};
        landmark_put_page(&list, &last, &page);
    }
    l->page_list = list.data;
    l->page_list_bytes = list.len;
    if (l->exact && (rnd() & 1)) { /* as a recording of format 17 has them */
        uint8_t *checks = malloc(l->pages + 1);
        assert_non_null(checks);
        for (unsigned i = 0; i < l->pages; i++)
            checks[i] = (uint8_t)rnd();
        l->page_checks = checks;
    }
    l->pages_digest = l->exact ? rnd() : 0;
}

/* Of one that is sent the places hold it and its header just so. */
static void random_frame(struct frame *f)
{
    static uint8_t list[2 * 15];
    const struct frame_place parts[2] = {{.gpa = rnd() >> 20, .len = FRAME_HEADER},
                                         {.gpa = rnd() >> 20, .len = 1 + rnd() % FRAME_MAX}};
    struct bytes places = {0};
    struct frame_place last = {0};

    *f = (struct frame){.nic = rnd() % MAX_NICS, .is_sent = rnd() % 2, .time_ns = rnd()};
    f->len = f->is_sent && rnd() % 8 == 0 ? 0 : parts[1].len;
    if (!f->is_sent || !f->len)
        return;
    for (f->places = 0; f->places < 2; f->places++)
        frame_put_place(&places, &last, &parts[f->places]);
    assert_true(places.len <= sizeof list);
    memcpy(list, places.data, places.len);
    f->place_list = list;
    f->place_list_bytes = places.len;
    bytes_free(&places);
}

static void assert_same_frame(const struct frame *a, const struct frame *b)
{
    struct cursor list = cursor_of(b->place_list, b->place_list_bytes);
    struct frame_place place = {0};
    uint64_t room = 0;

    assert_int_equal(a->nic, b->nic);
    assert_int_equal(a->is_sent, b->is_sent);
    assert_int_equal(a->len, b->len);
    assert_int_equal(a->time_ns, b->time_ns);
    assert_int_equal(a->places, b->places);
    assert_int_equal(a->place_list_bytes, b->place_list_bytes);
    while (frame_next_place(&list, &place))
        room += place.len;
    assert_int_equal(room, a->places ? FRAME_HEADER + a->len : 0);
}

static void random_later_event(struct event *e, const uint8_t *data)
{
    switch (e->kind) {
    case EVENT_TIME:
        e->time_ns = rnd();
        break;
    case EVENT_RECEIVED:
        e->received.len = (uint8_t)(1 + rnd() % RECEIVED_MAX);
        for (unsigned i = 0; i < e->received.len; i++)
            e->received.data[i] = (uint8_t)rnd();
        break;
    case EVENT_FRAME:
        random_frame(&e->frame);
        break;
    case EVENT_DISK_DONE:
        e->disk_done =
            (struct disk_done){.disk = rnd() % MAX_DISKS, .count = 1 + rnd() % UINT16_MAX};
        break;
    case EVENT_MARK:
        e->mark.time_ns = rnd();
        e->mark.by_guest = rnd() % 2;
        e->mark.len = (uint8_t)(1 + rnd() % MARK_MAX);
        for (unsigned i = 0; i < e->mark.len; i++)
            e->mark.text[i] = (char)(' ' + rnd() % 95);
        break;
    case EVENT_BOOT:
        e->boot =
            (struct boot){.time_ns = rnd(), .state = data, .state_len = 1 + rnd() % DMA_INLINE_MAX};
        break;
    default:
        fail();
    }
}

static void random_event(struct event *e, const uint8_t *data)
{
    memset(e, 0, sizeof *e);
    e->kind = (enum event_kind)(1 + rnd() % EVENT_LAST);
    switch (e->kind) {
    case EVENT_INJECT:
    case EVENT_START:
        e->vector = (uint8_t)rnd();
        break;
    case EVENT_SCHEDULE:
        e->vcpu = (unsigned)(rnd() % MAX_VCPUS);
        break;
    case EVENT_CR8:
        e->cr8 = rnd() % 16;
        break;
    case EVENT_NMI:
    case EVENT_REST:
    case EVENT_TSD:
        break;
    case EVENT_REGAIN:
        e->all = rnd() % 2;
        break;
    case EVENT_WINDOW:
        e->window = rnd() % 2;
        break;
    case EVENT_DMA_WRITE:
    case EVENT_DMA_READ:
        e->dma.gpa = rnd() >> 20;
        e->dma.len = (uint32_t)(rnd() % 3 ? 1 + rnd() % DMA_INLINE_MAX : 1 + rnd() % DMA_MAX);
        e->dma.data = data;
        for (unsigned i = 0; i < DMA_MAX_CHUNKS; i++)
            e->dma.chunks[i] = rnd() >> 40;
        break;
    case EVENT_HOOK:
        e->hook = (struct gp_hook){rnd(), rnd(), rnd(), rnd()};
        break;
    case EVENT_FORCED:
        fill_landmark(&e->landmark);
        break;
    case EVENT_DIGEST:
        e->digest = (struct state_digest){rnd(), rnd(), rnd()};
        break;
    case EVENT_END:
        e->end.reason = END_POWEROFF;
        e->end.has_digest = true;
        e->end.digest = (struct state_digest){rnd(), rnd(), rnd()};
        break;
    default:
        random_later_event(e, data);
    }
}

static void assert_same_landmark(const struct landmark *a, const struct landmark *b)
{
    assert_memory_equal(a->regs, b->regs, sizeof a->regs);
    assert_memory_equal(a->code, b->code, a->code_len);
    assert_int_equal(a->gpa, b->gpa);
    assert_int_equal(a->cr3, b->cr3);
    assert_int_equal(a->fpu, b->fpu);
    assert_memory_equal(&a->cs, &b->cs, sizeof a->cs);
    assert_memory_equal(&a->ss, &b->ss, sizeof a->ss);
    assert_int_equal(a->probes, b->probes);
    assert_int_equal(a->counted, b->counted);
    assert_int_equal(a->branches, b->branches);
    assert_int_equal(a->entry, b->entry);
    assert_int_equal(a->entries, b->entries);
    assert_int_equal(a->entries_gpa, b->entries_gpa);
    assert_memory_equal(a->probe, b->probe, sizeof a->probe);
    assert_int_equal(a->exact, b->exact);
    assert_int_equal(a->pages, b->pages);
    assert_int_equal(a->page_list_bytes, b->page_list_bytes);
    assert_memory_equal(a->page_list, b->page_list, a->page_list_bytes);
    assert_int_equal(!a->page_checks, !b->page_checks);
    if (a->page_checks)
        assert_memory_equal(a->page_checks, b->page_checks, a->pages);
    assert_int_equal(a->pages_digest, b->pages_digest);
}

static void assert_same_later_event(const struct event *a, const struct event *b)
{
    switch (a->kind) {
    case EVENT_TIME:
        assert_int_equal(a->time_ns, b->time_ns);
        break;
    case EVENT_RECEIVED:
        assert_memory_equal(&a->received, &b->received, sizeof a->received);
        break;
    case EVENT_FRAME:
        assert_same_frame(&a->frame, &b->frame);
        break;
    case EVENT_DISK_DONE:
        assert_int_equal(a->disk_done.disk, b->disk_done.disk);
        assert_int_equal(a->disk_done.count, b->disk_done.count);
        break;
    case EVENT_MARK:
        assert_int_equal(a->mark.time_ns, b->mark.time_ns);
        assert_int_equal(a->mark.by_guest, b->mark.by_guest);
        assert_int_equal(a->mark.len, b->mark.len);
        assert_string_equal(a->mark.text, b->mark.text);
        break;
    case EVENT_BOOT:
        assert_int_equal(a->boot.time_ns, b->boot.time_ns);
        assert_int_equal(a->boot.state_len, b->boot.state_len);
        assert_memory_equal(a->boot.state, b->boot.state, a->boot.state_len);
        break;
    default:
        fail();
    }
}

static void assert_same_event(const struct event *a, const struct event *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->ordinal, b->ordinal);
    switch (a->kind) {
    case EVENT_INJECT:
    case EVENT_START:
        assert_int_equal(a->vector, b->vector);
        break;
    case EVENT_SCHEDULE:
        assert_int_equal(a->vcpu, b->vcpu);
        break;
    case EVENT_CR8:
        assert_int_equal(a->cr8, b->cr8);
        break;
    case EVENT_NMI:
    case EVENT_REST:
    case EVENT_TSD:
        break;
    case EVENT_REGAIN:
        assert_int_equal(a->all, b->all);
        break;
    case EVENT_WINDOW:
        assert_int_equal(a->window, b->window);
        break;
    case EVENT_DMA_WRITE:
    case EVENT_DMA_READ:
        assert_int_equal(a->dma.gpa, b->dma.gpa);
        assert_int_equal(a->dma.len, b->dma.len);
        if (a->kind == EVENT_DMA_WRITE && a->dma.len <= DMA_INLINE_MAX)
            assert_memory_equal(a->dma.data, b->dma.data, a->dma.len);
        for (unsigned i = 0; a->kind == EVENT_DMA_WRITE && a->dma.len > DMA_INLINE_MAX &&
                             i < (a->dma.len + 4095) / 4096;
             i++)
            assert_int_equal(a->dma.chunks[i], b->dma.chunks[i]);
        break;
    case EVENT_HOOK:
        assert_memory_equal(&a->hook, &b->hook, sizeof a->hook);
        break;
    case EVENT_FORCED:
        assert_same_landmark(&a->landmark, &b->landmark);
        break;
    case EVENT_DIGEST:
        assert_memory_equal(&a->digest, &b->digest, sizeof a->digest);
        break;
    case EVENT_END:
        assert_int_equal(a->end.reason, b->end.reason);
        assert_memory_equal(&a->end.digest, &b->end.digest, sizeof a->end.digest);
        break;
    default:
        assert_same_later_event(a, b);
    }
}

#define EVENTS 600

static void test_events_round_trip(void **state)
{
    static struct event written[EVENTS];
    static uint8_t data[DMA_INLINE_MAX];
    struct event_codec codec = {0};
    struct bytes b = {0};
    uint64_t ordinal = 0;

    (void)state;
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)rnd();
    for (unsigned i = 0; i < EVENTS; i++) {
        random_event(&written[i], data);
        ordinal += rnd() % 3;
        written[i].ordinal = ordinal;
        size_t before = b.len;
        event_encode(&b, &codec, &written[i]);
        assert_true(b.len - before <= EVENT_MAX_BYTES);
    }
    struct cursor c = cursor_of(b.data, b.len);
    struct event got;
    memset(&codec, 0, sizeof codec);
    for (unsigned i = 0; i < EVENTS; i++) {
        assert_true(event_decode(&c, &codec, RECORDING_VERSION, &got));
        assert_same_event(&written[i], &got);
        if (got.kind == EVENT_FORCED) {
            free((void *)written[i].landmark.page_list);
            free((void *)written[i].landmark.page_checks);
        }
    }
    assert_int_equal(cursor_left(&c), 0);
    bytes_free(&b);
}

/* Segments that no user code has go to nobody, least of all to KVM. */
static void test_impossible_segments_are_refused(void **state)
{
    const struct kvm_segment cs = {.type = 11, .present = 1, .dpl = 3, .s = 1, .l = 1, .g = 1};
    const struct kvm_segment ss = {.type = 3, .present = 1, .dpl = 3, .s = 1, .db = 1, .g = 1};

    (void)state;
    for (unsigned round = 0; round < 10; round++) {
        struct event event = {.kind = EVENT_FORCED}, got;
        struct event_codec encoder = {0}, decoder = {0};
        struct landmark *l = &event.landmark;
        struct bytes b = {0};
        *l = (struct landmark){.cpl = 3, .code_len = 1, .cs = cs, .ss = ss};
        switch (round) {
        case 1: /* 64-bit and 32-bit code at once */
            l->cs.db = 1;
            break;
        case 2:
            l->cs.type = 3;
            break;
        case 3:
            l->cs.present = 0;
            break;
        case 4:
            l->cs.s = 0;
            break;
        case 5:
            l->cs.unusable = 1;
            break;
        case 6:
            l->ss.dpl = 0;
            break;
        case 7:
            l->ss.type = 11;
            break;
        case 8:
            l->ss.present = 0;
            break;
        case 9:
            l->ss.s = 0;
            break;
        }
        event_encode(&b, &encoder, &event);
        struct cursor c = cursor_of(b.data, b.len);
        assert_int_equal(event_decode(&c, &decoder, RECORDING_VERSION, &got), round == 0);
        bytes_free(&b);
    }
}

static void test_lists_of_pages(void **state)
{
    const struct landmark_page pages[] = {{0, true}, {1, false}, {700, true}, {UINT32_MAX, true}};
    struct landmark_page last = {0}, got = {0};
    struct bytes list = {0};

    (void)state;
    for (unsigned i = 0; i < 4; i++)
        landmark_put_page(&list, &last, &pages[i]);
    struct cursor c = cursor_of(list.data, list.len);
    for (unsigned i = 0; i < 4; i++) {
        assert_true(landmark_next_page(&c, &got));
        assert_int_equal(got.page, pages[i].page);
        assert_int_equal(got.is_table, pages[i].is_table);
    }
    assert_false(landmark_next_page(&c, &got));
    bytes_free(&list);
}

static void test_random_bytes_are_refused_or_bounded(void **state)
{
    uint8_t noise[512];

    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        struct event_codec codec = {0};
        struct sync_point last = {0}, sync;
        struct event event;
        for (unsigned i = 0; i < sizeof noise; i++)
            noise[i] = (uint8_t)rnd();
        const uint32_t version =
            RECORDING_OLDEST + (uint32_t)(rnd() % (RECORDING_VERSION - RECORDING_OLDEST + 1));
        struct cursor c = cursor_of(noise, 1 + rnd() % sizeof noise);
        while (event_decode(&c, &codec, version, &event)) {
            assert_true(event.kind >= EVENT_INJECT && event.kind <= EVENT_LAST);
            if (event.kind == EVENT_SCHEDULE)
                assert_true(event.vcpu < MAX_VCPUS);
            if (event.kind == EVENT_CR8)
                assert_true(event.cr8 < 16);
            if (event.kind == EVENT_DMA_WRITE || event.kind == EVENT_DMA_READ)
                assert_true(event.dma.len >= 1 && event.dma.len <= DMA_MAX);
            if (event.kind == EVENT_RECEIVED)
                assert_true(event.received.len >= 1 && event.received.len <= RECEIVED_MAX);
            if (event.kind == EVENT_FORCED)
                assert_true(event.landmark.probes <= LANDMARK_PROBES &&
                            event.landmark.code_len <= LANDMARK_CODE &&
                            event.landmark.pages <= LANDMARK_PAGES &&
                            event.landmark.page_list_bytes >= event.landmark.pages &&
                            event.landmark.page_list_bytes < sizeof noise);
        }
        c = cursor_of(noise, 1 + rnd() % sizeof noise);
        while (sync_decode(&c, &last, &sync))
            assert_true(sync.kind >= 1 && sync.kind <= EXIT_SYNC_LAST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sync_points_round_trip),
        cmocka_unit_test(test_equal_sync_points_are_short),
        cmocka_unit_test(test_events_round_trip),
        cmocka_unit_test(test_impossible_segments_are_refused),
        cmocka_unit_test(test_lists_of_pages),
        cmocka_unit_test(test_random_bytes_are_refused_or_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
