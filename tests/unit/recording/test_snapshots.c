/* Snapshots in a recording (recording/snapshot.h, recording/places/snapshot_list.h). */
#include "tests/unit/recording/recording_content.h"
#include "vmm/kvm/vcpu.h"

#include "recording/chunks.h"
#include "recording/snapshot.h"
#include "recording/places/snapshot_list.h"
#include "tests/unit/random.h"

static uint64_t seed = RANDOM_SEED;

static uint64_t rnd(void)
{
    return random_next(&seed);
}

static void fill(void *to, size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)to)[i] = (uint8_t)rnd();
}

static void make_cpu(struct cpu_mark *m)
{
    m->window = rnd() % 2;
    m->last_sync =
        (struct sync_point){.kind = EXIT_PIO_IN, .size = 4, .output = 7, .count = 2, .at = 0x3f8};
    fill(m->last_sync.regs, sizeof m->last_sync.regs);
    fill(&m->state.regs, sizeof m->state.regs);
    m->state.regs.rflags &= ~RFLAGS_RF;
    m->state.sregs.cs = vcpu_flat_segment(0x33, true);
    m->state.sregs.cr3 = rnd();
    fill(m->state.fpu.xmm, sizeof m->state.fpu.xmm);
    m->state.fpu.mxcsr = (uint32_t)rnd();
    m->without_x87_last = rnd() % 2;
    if (!m->without_x87_last) {
        m->state.fpu.last_opcode = (uint16_t)rnd();
        m->state.fpu.last_ip = rnd();
        m->state.fpu.last_dp = rnd();
    }
    m->state.msrs[0] = rnd();
    fill(m->pending.debug.db, sizeof m->pending.debug.db);
    m->pending.debug.dr6 = rnd();
    m->pending.debug.dr7 = rnd();
    m->pending.events.exception.nr = 13;
    m->pending.events.exception.injected = 1;
    m->pending.events.exception.has_error_code = 1;
    m->pending.events.exception.error_code = (uint32_t)rnd();
    m->pending.events.interrupt.nr = 0x30;
    m->pending.events.interrupt.shadow = 2;
    m->pending.events.nmi.masked = 1;
    m->pending.events.flags = KVM_VCPUEVENT_VALID_SHADOW;
}

/* A mark in which every field that travels has a value of its own. */
static void make_mark(struct player_mark *m, uint64_t ordinal)
{
    *m = (struct player_mark){
        .cpu_count = (unsigned)(1 + rnd() % MAX_VCPUS),
        .at_sync = true,
        .at = {1, 2, 0, 3},
        .codec = {.ordinal = ordinal - 1,
                  .gpa = rnd(),
                  .next_chunk = rnd() >> 20,
                  .time_ns = rnd()},
        .ordinal = ordinal,
        .tsc = rnd() >> 8,
        .hook = {rnd(), rnd(), rnd(), rnd()},
        .outputs = rnd(),
        .dlab = rnd() % 2,
        .loopback = rnd() % 2,
    };
    m->cpu = (unsigned)(rnd() % m->cpu_count);
    fill(m->codec.regs, sizeof m->codec.regs);
    for (unsigned i = 0; i < m->cpu_count; i++)
        make_cpu(&m->cpus[i]);
    if (m->cpu_count > 1) /* it has not run yet */
        m->cpus[(m->cpu + 1) % m->cpu_count].last_sync = (struct sync_point){0};
}

static void expect_cpu(const struct cpu_mark *got, const struct cpu_mark *m)
{
    assert_int_equal(got->window, m->window);
    assert_int_equal(got->without_x87_last, m->without_x87_last);
    assert_int_equal(got->last_sync.kind, m->last_sync.kind);
    assert_int_equal(got->last_sync.at, m->last_sync.at);
    assert_int_equal(got->last_sync.count, m->last_sync.count);
    assert_memory_equal(got->last_sync.regs, m->last_sync.regs, sizeof m->last_sync.regs);
    assert_memory_equal(&got->state, &m->state, sizeof m->state);
    assert_memory_equal(&got->pending.events, &m->pending.events, sizeof m->pending.events);
    assert_memory_equal(got->pending.debug.db, m->pending.debug.db, sizeof m->pending.debug.db);
    assert_true(got->pending.debug.dr6 == m->pending.debug.dr6 &&
                got->pending.debug.dr7 == m->pending.debug.dr7);
}

static void expect_mark(const struct player_mark *got, const struct player_mark *m)
{
    assert_int_equal(got->cpu_count, m->cpu_count);
    assert_int_equal(got->cpu, m->cpu);
    assert_true(got->at_sync);
    assert_memory_equal(got->at, m->at, sizeof m->at);
    assert_memory_equal(&got->codec, &m->codec, sizeof m->codec);
    assert_true(got->ordinal == m->ordinal && got->tsc == m->tsc && got->outputs == m->outputs);
    assert_memory_equal(&got->hook, &m->hook, sizeof m->hook);
    assert_true(got->dlab == m->dlab && got->loopback == m->loopback);
    for (unsigned i = 0; i < m->cpu_count; i++)
        expect_cpu(&got->cpus[i], &m->cpus[i]);
}

/* Pages in runs of all kinds; chunks below `chunks`. */
#define PAGES 4096u

static unsigned make_pages(struct snapshot *s, uint32_t chunk_of[PAGES], uint32_t chunks)
{
    uint32_t chunk = 1;
    unsigned count = 0;

    memset(chunk_of, 0xff, PAGES * sizeof *chunk_of);
    for (uint32_t page = (uint32_t)(rnd() % 30); page < PAGES; page += (uint32_t)(rnd() % 20)) {
        const uint32_t first = (uint32_t)(rnd() % chunks);
        const unsigned kind = (unsigned)(rnd() % 3);
        for (unsigned n = (unsigned)(rnd() % 40) + 1; n && page < PAGES; n--, page++) {
            chunk = kind == 0   ? first
                    : kind == 1 ? chunk % (chunks - 1) + 1
                                : (uint32_t)(rnd() % chunks);
            snapshot_add_page(s, page, chunk_of[page] = chunk);
            count++;
        }
    }
    return count;
}

static void expect_pages(const struct snapshot *s, const uint32_t chunk_of[PAGES])
{
    uint32_t page = 0;

    for (size_t i = 0; i < s->run_count; i++) {
        const struct page_run *r = &s->runs[i];
        for (; page < r->page; page++)
            assert_int_equal(chunk_of[page], UINT32_MAX);
        for (uint32_t n = 0; n < r->count; n++, page++)
            assert_int_equal(chunk_of[page], r->same ? r->chunk : r->chunk + n);
    }
    for (; page < PAGES; page++)
        assert_int_equal(chunk_of[page], UINT32_MAX);
}

static struct cursor body_of(const struct bytes *record)
{
    struct cursor c = cursor_of(record->data, record->len);
    const uint64_t len = cursor_varint(&c);

    assert_int_equal(len, cursor_left(&c));
    return c;
}

static void test_round_trip(void **state)
{
    static uint32_t chunk_of[PAGES];

    (void)state;
    for (unsigned round = 0; round < 100; round++) {
        struct snapshot s = {.name = "before.the_crash-2"}, got;
        struct bytes record = {0};
        struct snapshot_size size;
        s.new_chunks = rnd() % 1000;
        make_mark(&s.mark, 1 + rnd() % 1000000);
        const unsigned count = round ? make_pages(&s, chunk_of, 2000) : 0;
        assert_int_equal(s.pages, count);
        if (round % 2)
            bytes_put(&s.live, "devices", 7);
        snapshot_encode(&record, &s);

        struct cursor c = body_of(&record);
        assert_true(snapshot_decode_head(&c, &got, &size));
        assert_true(got.pages == count && size.runs == s.run_count && size.live == s.live.len);
        expect_mark(&got.mark, &s.mark);
        c = body_of(&record);
        assert_true(snapshot_decode(&c, &got));
        assert_string_equal(got.name, s.name);
        assert_int_equal(got.new_chunks, s.new_chunks);
        assert_int_equal(got.pages, count);
        expect_mark(&got.mark, &s.mark);
        if (round)
            expect_pages(&got, chunk_of);
        assert_int_equal(got.live.len, s.live.len);
        snapshot_free(&got);
        snapshot_free(&s);
        bytes_free(&record);
    }
}

/* The pages of a machine that has written 40 MB in one go take a few bytes. */
static void test_runs_are_short(void **state)
{
    struct snapshot s = {.name = "1"};
    struct bytes none = {0}, many = {0};

    (void)state;
    make_mark(&s.mark, 9);
    snapshot_encode(&none, &s);
    for (uint32_t page = 100; page < 10100; page++)
        snapshot_add_page(&s, page, page < 3000 ? CHUNK_ZERO_PAGE : page * 1);
    snapshot_encode(&many, &s);
    assert_int_equal(s.run_count, 2);
    assert_in_range(many.len - none.len, 1, 24);
    snapshot_free(&s);
    bytes_free(&none);
    bytes_free(&many);
}

static void test_names(void **state)
{
    char longest[SNAPSHOT_NAME_MAX + 2];

    (void)state;
    memset(longest, 'x', sizeof longest);
    longest[SNAPSHOT_NAME_MAX + 1] = 0;
    assert_false(snapshot_name_valid(longest));
    assert_true(snapshot_name_valid(longest + 1));
    assert_true(snapshot_name_valid("a.B_9+-"));
    assert_false(snapshot_name_valid(""));
    assert_false(snapshot_name_valid("a b"));
    assert_false(snapshot_name_valid("a@b"));
    assert_false(snapshot_name_valid("a/b"));
    assert_false(snapshot_name_valid("\x1b[0m"));
}

/* A disk of which a guest has discarded a terabyte: a record that no reader takes is worse than one
 * from which nobody goes live. */
static void test_live_is_bounded(void **state)
{
    static uint32_t chunk_of[PAGES];
    struct snapshot s = {.name = "x"}, got;
    struct bytes record = {0};

    (void)state;
    make_mark(&s.mark, 77);
    make_pages(&s, chunk_of, 50);
    bytes_reserve(&s.live, SNAPSHOT_LIVE_MAX + 1);
    memset(s.live.data, 7, SNAPSHOT_LIVE_MAX + 1);
    s.live.len = SNAPSHOT_LIVE_MAX;
    snapshot_bound_live(&s);
    assert_int_equal(s.live.len, SNAPSHOT_LIVE_MAX);
    s.live.len++;
    snapshot_bound_live(&s);
    snapshot_encode(&record, &s);
    assert_true(record.len < SNAPSHOT_MAX_BYTES);
    struct cursor c = body_of(&record);
    assert_true(snapshot_decode(&c, &got));
    assert_int_equal(got.live.len, 0);
    assert_int_equal(got.pages, s.pages);
    snapshot_free(&got);
    snapshot_free(&s);
    bytes_free(&record);
}

/* Whatever the bytes are, a decoder yields what can be used, or nothing. */
static void test_hostile(void **state)
{
    static uint32_t chunk_of[PAGES];
    struct snapshot s = {.name = "x"}, got;
    struct bytes record = {0};
    unsigned good = 0, refused = 0;

    (void)state;
    make_mark(&s.mark, 77);
    make_pages(&s, chunk_of, 50);
    bytes_put(&s.live, "live", 4);
    snapshot_encode(&record, &s);
    snapshot_free(&s);
    const struct cursor whole = body_of(&record);
    const size_t len = cursor_left(&whole);
    uint8_t *copy = malloc(len);
    for (size_t cut = 0; cut < len; cut++) {
        memcpy(copy, whole.p, cut);
        struct cursor c = cursor_of(copy, cut);
        assert_false(snapshot_decode(&c, &got));
        assert_true(!got.runs && !got.live.data);
    }
    for (unsigned round = 0; round < rounds(200000); round++) {
        memcpy(copy, whole.p, len);
        for (unsigned flips = (unsigned)(rnd() % 3) + 1; flips; flips--)
            copy[rnd() % len] ^= (uint8_t)(1u << rnd() % 8);
        struct cursor c = cursor_of(copy, len);
        if (!snapshot_decode(&c, &got)) {
            refused++;
            continue;
        }
        good++;
        uint64_t page = 0, pages = 0;
        assert_true(snapshot_name_valid(got.name) && got.mark.at_sync && got.mark.ordinal);
        for (size_t i = 0; i < got.run_count; i++) {
            const struct page_run *r = &got.runs[i];
            assert_true(r->page >= page && r->count);
            page = (uint64_t)r->page + r->count;
            pages += r->count;
            assert_true(page <= UINT32_MAX);
            assert_true(r->same || (uint64_t)r->chunk + r->count - 1 <= CHUNK_MAX_ID);
        }
        assert_int_equal(pages, got.pages);
        snapshot_free(&got);
    }
    assert_true(good > 1000 && refused > 1000);
    free(copy);
    bytes_free(&record);
}

/* ---- in a recording ---- */

#define SYNCS 20u

/* So many sync points, chunks 1 to 4, and no snapshot yet. */
static void make_recording(void)
{
    struct err e = {0};
    struct recording_writer *w = begin();
    struct chunk_store *chunks = chunks_create(w, &e);
    struct sync_point last = {0}, sync = {.kind = EXIT_HLT};
    uint8_t page[CHUNK_MAX_BYTES];
    struct bytes b = {0};

    for (unsigned i = 0; i < SYNCS; i++) {
        sync.regs[0] = i;
        sync_encode(&b, &last, &sync);
    }
    writer_put(w, STREAM_SYNCS, b.data, b.len);
    writer_put(w, STREAM_INPUTS, "inputs", 6);
    writer_put(w, STREAM_EVENTS, "events", 6);
    for (unsigned i = 1; i <= 4; i++) {
        memset(page, (int)i, sizeof page);
        assert_int_equal(chunks_add(chunks, page), i);
    }
    assert_int_equal(writer_finish(w, 1, "done", &e), 0);
    chunks_destroy(chunks);
    bytes_free(&b);
}

static void add_record(const struct bytes *record, struct chunk_store **chunks)
{
    struct end_record end;
    struct err e = {0};
    struct recording *r = recording_open(path, &e);
    struct recording_writer *w = writer_reopen(path, &end, &e);
    struct chunk_source *source = chunk_source_open(r, &e);
    uint8_t page[CHUNK_MAX_BYTES];
    size_t len;

    assert_true(r && w && source);
    *chunks = chunks_create(w, &e);
    for (uint64_t id = 1; id <= recording_chunks(r); id++) {
        assert_int_equal(chunk_read(source, id, page, &len, &e), 0);
        chunks_know(*chunks, page, len);
    }
    chunk_source_close(source);
    assert_int_equal(chunks_stored(*chunks), recording_chunks(r));
    memset(page, 3, sizeof page);
    assert_int_equal(chunks_add(*chunks, page), 3); /* it is there already */
    memset(page, (int)recording_chunks(r) + 1, sizeof page);
    assert_int_equal(chunks_add(*chunks, page), recording_chunks(r) + 1);
    writer_put(w, STREAM_SNAPSHOTS, record->data, record->len);
    assert_int_equal(writer_finish(w, end.reason_code, end.reason, &e), 0);
    chunks_destroy(*chunks);
    recording_close(r);
}

static void add_snapshot(const char *name, uint64_t ordinal, uint32_t last_chunk, uint64_t at)
{
    struct snapshot s = {.new_chunks = 1};
    struct bytes record = {0};
    struct chunk_store *chunks;

    snprintf(s.name, sizeof s.name, "%s", name);
    make_mark(&s.mark, ordinal);
    s.mark.at[STREAM_EVENTS] = at;
    snapshot_add_page(&s, 7, CHUNK_ZERO_PAGE);
    snapshot_add_page(&s, 9, last_chunk);
    snapshot_encode(&record, &s);
    add_record(&record, &chunks);
    snapshot_free(&s);
    bytes_free(&record);
}

static struct recording *reopen(struct snapshot_list *list)
{
    struct err e = {0};
    struct recording *r = recording_open(path, &e);

    assert_non_null(r);
    if (snapshot_list_load(list, r, &e) < 0)
        fail_msg("%s", e.text);
    return r;
}

static void test_list(void **state)
{
    struct snapshot_list list;
    struct snapshot s;
    struct err e = {0};
    char name[SNAPSHOT_NAME_MAX + 1];
    uint64_t last;

    (void)state;
    make_recording();
    struct recording *r = reopen(&list);
    assert_int_equal(recording_last_sync(r, &last, &e), 0);
    assert_int_equal(last, SYNCS);
    assert_int_equal(list.count, 0);
    assert_null(snapshot_list_find(&list, r, "1", &e));
    assert_non_null(strstr(e.text, "has no snapshots"));
    recording_close(r);

    const struct bytes before = slurp(path);
    add_snapshot("1", 10, 5, 6);
    const struct bytes one = slurp(path);
    add_snapshot("crash", 15, 5, 0);
    add_snapshot("7", 3, 4, 0);
    r = reopen(&list);
    assert_int_equal(list.count, 3);
    snapshot_list_new_name(&list, name);
    assert_string_equal(name, "8");
    assert_null(snapshot_list_find(&list, r, "2", &e));
    assert_non_null(strstr(e.text, "no snapshot '2'; it has: 1, crash, 7"));
    assert_null(snapshot_list_before(&list, 2));
    assert_string_equal(snapshot_list_before(&list, 3)->name, "7");
    assert_string_equal(snapshot_list_before(&list, 14)->name, "1");
    assert_string_equal(snapshot_list_before(&list, 99)->name, "crash");
    const struct snapshot_entry *entry = snapshot_list_find(&list, r, "1", &e);
    assert_true(entry && entry->ordinal == 10 && entry->pages == 2 && entry->new_chunks == 1);
    assert_true(snapshot_entry_bytes(entry) > CHUNK_MAX_BYTES);
    assert_int_equal(snapshot_read(r, entry, 10, &s, &e), 0);
    assert_true(s.run_count == 2 && s.runs[1].page == 9 && s.runs[1].chunk == 5);
    snapshot_free(&s);
    assert_int_equal(snapshot_read(r, entry, 9, &s, &e), -1); /* no such page */
    assert_int_equal(e.status, STATUS_BAD_RECORDING);
    assert_int_equal(recording_verify_all(r, &e), 0);
    snapshot_list_free(&list);
    recording_close(r);

    /* Wherever an addition is cut, what was there before it is. */
    for (size_t len = before.len; len < one.len; len += 1 + rnd() % 7) {
        spill(other, one.data, len);
        r = recording_open(other, &e);
        assert_non_null(r);
        assert_true(recording_complete(r));
        assert_int_equal(snapshot_list_load(&list, r, &e), 0);
        assert_int_equal(list.count, 0);
        assert_int_equal(recording_chunks(r), 4);
        recording_close(r);
    }
    free(before.data);
    free(one.data);
}

static void expect_bad_list(const char *text)
{
    struct snapshot_list list;
    struct err e = {0};
    struct recording *r = recording_open(path, &e);

    assert_non_null(r);
    assert_int_equal(snapshot_list_load(&list, r, &e), -1);
    assert_int_equal(e.status, STATUS_BAD_RECORDING);
    if (!strstr(e.text, text))
        fail_msg("'%s' lacks '%s'", e.text, text);
    assert_true(!list.at && !list.count);
    recording_close(r);
}

/* Records that are sound by themselves, and do not fit to the recording. */
static void test_list_refuses(void **state)
{
    struct snapshot_list list;
    struct chunk_store *chunks;
    struct snapshot s;
    struct bytes record = {0};
    struct err e = {0};

    (void)state;
    make_recording();
    add_snapshot("events", 10, 5, 7);
    expect_bad_list("makes no sense");

    make_recording();
    add_snapshot("chunk", 10, 6, 0);
    struct recording *r = reopen(&list);
    assert_int_equal(snapshot_read(r, list.at, 100, &s, &e), -1);
    assert_int_equal(e.status, STATUS_BAD_RECORDING);
    snapshot_list_free(&list);
    recording_close(r);

    make_recording();
    bytes_put_varint(&record, 1000);
    bytes_put(&record, "short", 5);
    add_record(&record, &chunks);
    expect_bad_list("behind its stream");

    make_recording();
    bytes_clear(&record);
    bytes_put_varint(&record, (uint64_t)SNAPSHOT_MAX_BYTES + 1);
    add_record(&record, &chunks);
    expect_bad_list("behind its stream");
    bytes_free(&record);
}

static void test_places(void **state)
{
    struct snapshot_place place;
    struct err e = {0};
    char text[128];

    (void)state;
    make_recording();
    snprintf(text, sizeof text, "%s@2", path);
    assert_int_equal(snapshot_place_parse(text, &place, &e), 0);
    assert_string_equal(place.path, path);
    assert_string_equal(place.name, "2");
    assert_int_equal(snapshot_place_parse(path, &place, &e), 0);
    assert_string_equal(place.name, "");
    /* A file that is really called so. */
    spill(text, "x", 1);
    assert_int_equal(snapshot_place_parse(text, &place, &e), 0);
    assert_string_equal(place.path, text);
    assert_string_equal(place.name, "");
    unlink(text);
    assert_int_equal(snapshot_place_parse("a@b c", &place, &e), 0);
    assert_string_equal(place.path, "a@b c");
    assert_int_equal(snapshot_place_parse("a@b@c", &place, &e), 0);
    assert_string_equal(place.path, "a@b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live_is_bounded), cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_runs_are_short),  cmocka_unit_test(test_names),
        cmocka_unit_test(test_hostile),         cmocka_unit_test(test_list),
        cmocka_unit_test(test_list_refuses),    cmocka_unit_test(test_places),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
