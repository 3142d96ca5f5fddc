/* Marks and boots of a recording (recording/places/mark_list.h), and their places. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "recording/event.h"
#include "recording/places/mark_list.h"
#include "recording/places/snapshot_list.h"
#include "recording/streams.h"
#include "recording/writer.h"

static const char META[] = "{\"recorder\":\"test\"}";
static char path[64];
static struct event_codec codec;
static struct bytes events;

static void put_mark(uint64_t ordinal, const char *text)
{
    struct event e = {.ordinal = ordinal, .kind = EVENT_MARK};

    e.mark.time_ns = ordinal * 1000;
    e.mark.len = (uint8_t)strlen(text);
    memcpy(e.mark.text, text, e.mark.len);
    event_encode(&events, &codec, &e);
}

static void put_boot(uint64_t ordinal)
{
    struct event e = {.ordinal = ordinal, .kind = EVENT_BOOT};

    e.boot =
        (struct boot){.time_ns = ordinal * 1000, .state = (const uint8_t *)"s", .state_len = 1};
    event_encode(&events, &codec, &e);
}

/* With these events; and `more` bytes that are none. */
static struct recording *record(const char *more)
{
    struct err e = {0};

    snprintf(path, sizeof path, "/tmp/marks-%d.ditto", (int)getpid());
    struct recording_writer *w = writer_create(path, true, &e);
    assert_non_null(w);
    assert_int_equal(writer_meta(w, META, sizeof META - 1, &e), 0);
    bytes_put(&events, more, strlen(more));
    writer_put(w, STREAM_EVENTS, events.data, events.len);
    assert_int_equal(writer_finish(w, 1, "done", &e), 0);
    bytes_free(&events);
    codec = (struct event_codec){0};
    struct recording *r = recording_open(path, &e);
    assert_non_null(r);
    unlink(path);
    return r;
}

static void assert_place(const struct recording *r, const char *name, uint64_t wanted)
{
    struct err e = {0};
    uint64_t at = 0;

    assert_true(mark_place_is(name));
    assert_int_equal(mark_place_find(r, name, &at, &e), 0);
    assert_int_equal(at, wanted);
}

static void assert_no_place(const struct recording *r, const char *name, const char *why)
{
    struct err e = {0};
    uint64_t at;

    assert_int_equal(mark_place_find(r, name, &at, &e), -1);
    assert_non_null(strstr(e.text, why));
}

static void test_list_and_places(void **state)
{
    struct mark_list list;
    struct err e = {0};

    (void)state;
    put_mark(3, "again");
    put_mark(5, "x@y #z");
    put_boot(7);
    put_mark(7, "again");
    put_mark(8, "again#2");
    put_mark(9, "\x1b\xff");
    struct recording *r = record("");
    assert_int_equal(mark_list_load(&list, r, &e), 0);
    assert_int_equal(list.mark_count, 5);
    assert_int_equal(list.boot_count, 2);
    assert_int_equal(list.marks[1].time_ns, 5000);
    assert_string_equal(list.marks[4].text, "??"); /* a recording may hold anything */
    mark_list_free(&list);
    assert_place(r, "mark:again", 3);
    assert_place(r, "mark:again#1", 3);
    assert_place(r, "mark:again#2", 8); /* that is its own text */
    assert_place(r, "mark:x@y #z", 5);
    assert_place(r, "boot:1", 0);
    assert_place(r, "boot:2", 8); /* the first sync point behind the reboot */
    assert_no_place(r, "mark:again#3", "no mark 'again#3'");
    assert_no_place(r, "mark:again#0", "no mark 'again#0'");
    assert_no_place(r, "mark:", "no mark ''");
    assert_no_place(r, "boot:0", "there is no boot:0");
    assert_no_place(r, "boot:3", "has 2 boots");
    assert_no_place(r, "boot:x", "there is no boot:x");
    recording_close(r);
}

static void test_none_and_too_many(void **state)
{
    struct mark_list list;
    struct err e = {0};

    (void)state;
    struct recording *r = record("");
    assert_int_equal(mark_list_load(&list, r, &e), 0);
    assert_int_equal(list.mark_count, 0);
    assert_int_equal(list.boot_count, 1);
    mark_list_free(&list);
    assert_no_place(r, "mark:a", "has no marks");
    recording_close(r);
    for (unsigned i = 0; i <= MARKS_MAX; i++)
        put_mark(i, "m");
    r = record("");
    assert_int_equal(mark_list_load(&list, r, &e), -1);
    assert_non_null(strstr(e.text, "too many marks"));
    recording_close(r);
    for (unsigned i = 1; i <= BOOTS_MAX; i++)
        put_boot(i);
    r = record("");
    assert_int_equal(mark_list_load(&list, r, &e), -1);
    assert_non_null(strstr(e.text, "too many boots"));
    recording_close(r);
    put_mark(1, "m");
    r = record("\x01\xff no event");
    assert_int_equal(mark_list_load(&list, r, &e), -1);
    assert_non_null(strstr(e.text, "an event makes no sense"));
    recording_close(r);
}

static void test_parsing(void **state)
{
    struct snapshot_place place;
    struct err e = {0};
    char wide[PLACE_NAME_MAX + 8];

    (void)state;
    assert_int_equal(snapshot_place_parse("r.ditto@mark:a b@c#2", &place, &e), 0);
    assert_string_equal(place.path, "r.ditto");
    assert_string_equal(place.name, "mark:a b@c#2");
    assert_int_equal(snapshot_place_parse("a@b@boot:2", &place, &e), 0);
    assert_string_equal(place.path, "a@b");
    assert_string_equal(place.name, "boot:2");
    memset(wide, 'w', sizeof wide);
    memcpy(wide, "r@mark:", 7);
    wide[2 + PLACE_NAME_MAX] = '\0';
    assert_int_equal(snapshot_place_parse(wide, &place, &e), 0);
    assert_int_equal(strlen(place.name), PLACE_NAME_MAX);
    wide[2 + PLACE_NAME_MAX] = 'w';
    wide[3 + PLACE_NAME_MAX] = '\0';
    assert_int_equal(snapshot_place_parse(wide, &place, &e), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_and_places),
        cmocka_unit_test(test_none_and_too_many),
        cmocka_unit_test(test_parsing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
