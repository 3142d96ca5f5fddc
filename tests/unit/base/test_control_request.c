/* base/control_request.c: what is a request, and what of everything else is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/control_request.h"
#include "tests/unit/random.h"

static uint64_t rnd(void)
{
    static uint64_t state = RANDOM_SEED;

    return random_next(&state);
}

static const char *parse(struct control_request *r, const char *line, bool with_id)
{
    return control_request_parse(r, line, strlen(line), with_id);
}

static void test_requests(void **state)
{
    struct control_request r;

    (void)state;
    assert_null(parse(&r, "{\"do\":\"mark\",\"text\":\"here\"}", false));
    assert_int_equal(r.verb, CONTROL_MARK);
    assert_string_equal(r.text, "here");
    assert_null(parse(&r, " { \"do\" : \"snapshot\" } \r", false));
    assert_int_equal(r.verb, CONTROL_SNAPSHOT);
    assert_string_equal(r.text, "");
    assert_null(parse(&r, "{\"do\":\"snapshot\",\"name\":\"a\"}", false));
    assert_string_equal(r.text, "a");
    assert_null(parse(&r, "{\"do\":\"stats\",\"id\":77}", true));
    assert_int_equal(r.id, 77);
    assert_null(parse(&r, "{\"do\":\"mark\",\"text\":\"\\u001b[2J\\u202e\"}", false));
    assert_string_equal(r.text, "?[2J???");
}

static void test_others_are_refused(void **state)
{
    static const char *const lines[] = {
        "",
        "{",
        "[]",
        "\"mark\"",
        "12",
        "null",
        "{}",
        "{\"do\":12}",
        "{\"do\":\"reboot\"}",
        "{\"do\":\"mark\"}",
        "{\"do\":\"mark\",\"text\":12}",
        "{\"do\":\"mark\",\"text\":\"\"}",
        "{\"do\":\"mark\",\"text\":{\"a\":[1]}}",
        "{\"do\":\"mark\",\"text\":\"a\",\"more\":1}",
        "{\"do\":\"mark\",\"text\":\"a\",\"text\":\"b\"}",
        "{\"do\":\"mark\",\"text\":\"a\\u0000b\"}",
        "{\"do\":\"mark\",\"text\":\"\xff\"}",
        "{\"do\":\"mark\",\"name\":\"a\"}",
        "{\"do\":\"stop\",\"text\":\"a\"}",
        "{\"do\":\"stats\",\"id\":1}",
        "{\"do\":\"stats\"} {\"do\":\"stop\"}",
    };
    struct control_request r;
    char wide[200];

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_non_null(parse(&r, lines[i], false));
    assert_non_null(parse(&r, "{\"do\":\"stats\"}", true));
    assert_non_null(parse(&r, "{\"do\":\"stats\",\"id\":-1}", true));
    for (unsigned len = MARK_MAX; len <= MARK_MAX + 1; len++) {
        snprintf(wide, sizeof wide, "{\"do\":\"mark\",\"text\":\"%0*d\"}", len, 1);
        assert_int_equal(!parse(&r, wide, false), len == MARK_MAX);
    }
    /* What it is made of may nest as deep as a line has room. */
    char deep[CONTROL_LINE_MAX];
    memset(deep, '[', sizeof deep);
    assert_non_null(control_request_parse(&r, deep, sizeof deep, false));
}

static void test_round_trip(void **state)
{
    static const struct control_request requests[] = {
        {.verb = CONTROL_MARK, .id = 1, .text = "a \"quoted\" \\ text"},
        {.verb = CONTROL_SNAPSHOT, .id = 1ull << 40},
        {.verb = CONTROL_SNAPSHOT, .id = 2, .text = "x"},
        {.verb = CONTROL_STOP, .id = 3},
        {.verb = CONTROL_STATS},
    };
    struct control_request got;

    (void)state;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        char *line = control_request_line(&requests[i]);
        assert_int_equal(line[strlen(line) - 1], '\n');
        assert_null(parse(&got, line, requests[i].id > 0));
        assert_memory_equal(&got, &requests[i], sizeof got);
        free(line);
    }
    char *said = control_answer_error(7, "why");
    assert_string_equal(said, "{\"error\":\"why\",\"id\":7,\"ok\":false}\n");
    free(said);
    said = control_answer_ok(0, NULL);
    assert_string_equal(said, "{\"ok\":true}\n");
    free(said);
}

static void test_random_bytes(void **state)
{
    static const char good[] = "{\"do\":\"mark\",\"text\":\"here\"}";
    struct control_request r;
    char line[sizeof good];

    (void)state;
    for (unsigned i = 0; i < 20000; i++) {
        memcpy(line, good, sizeof good);
        for (unsigned n = 0; n < 1 + i % 4; n++)
            line[rnd() % (sizeof good - 1)] = (char)rnd();
        (void)control_request_parse(&r, line, rnd() % sizeof good, i % 2);
        assert_true(strlen(r.text) <= MARK_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_others_are_refused),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_random_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
