/* base/text.c: text of others on its way to a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"

static void check(const char *text, const char *expected)
{
    char copy[128];

    snprintf(copy, sizeof copy, "%s", text);
    text_clean(copy);
    assert_string_equal(copy, expected);
}

static void test_good_text_stays(void **state)
{
    (void)state;
    check("", "");
    check("Debian GNU/Linux ~!", "Debian GNU/Linux ~!");
    check("Gr\xc3\xbc\xc3\x9f"
          "e \xe2\x82\xac \xf0\x9f\x90\xa7",
          "Gr\xc3\xbc\xc3\x9f"
          "e \xe2\x82\xac \xf0\x9f\x90\xa7");
    check("\xc2\xa0\xef\xbf\xbd\xf4\x8f\xbf\xbd", "\xc2\xa0\xef\xbf\xbd\xf4\x8f\xbf\xbd");
}

static void test_control_characters_go(void **state)
{
    (void)state;
    check("a\x1b[31mb\x07\r\n\tc\x7f", "a?[31mb????c?");
    check("\xc2\x9b"
          "31m\xc2\x85",
          "??31m??"); /* C1: CSI and NEL */
    check("\xe2\x80\xae"
          "cod.exe\xe2\x81\xa6\xe2\x80\xa8\xef\xbb\xbf",
          "???cod.exe?????????"); /* direction, line separator, byte order mark */
}

static void test_what_is_no_utf8_goes(void **state)
{
    (void)state;
    check("\x80\xbf", "??");
    check("\x9b"
          "31m",
          "?31m");
    check("\xc0\x9b\xe0\x80\x9b\xf0\x80\x80\x9b", "?????????"); /* overlong */
    check("\xed\xa0\x80\xf4\x90\x80\x80\xf8", "????????");      /* surrogate, too large */
    check("cut \xe2\x82", "cut ??");
    check("cut \xe2\x82\x1b[m", "cut ???[m");
}

static void test_what_fits(void **state)
{
    (void)state;
    assert_int_equal(text_fitting("", 3), 0);
    assert_int_equal(text_fitting("abc", 3), 3);
    assert_int_equal(text_fitting("abcd", 3), 3);
    assert_int_equal(text_fitting("ab\xc3\xbc", 3), 2);
    assert_int_equal(text_fitting("ab\xc3\xbc", 4), 4);
    assert_int_equal(text_fitting("\xf0\x9f\x90\xa7", 3), 0);
}

static void test_errors_are_clean(void **state)
{
    struct err e;
    char name[2048];

    (void)state;
    err_set(&e, STATUS_ERROR, "no kernel in %s: %d", "/boot/\x1b]0;pwned\x07", 7);
    assert_string_equal(e.text, "no kernel in /boot/?]0;pwned?: 7");
    /* Cut within a character. */
    memset(name, 'x', sizeof name);
    memcpy(name + sizeof e.text - 2, "\xc3\xbc", 3);
    err_set(&e, STATUS_ERROR, "%s", name);
    assert_int_equal(e.text[sizeof e.text - 2], '?');
}

static void test_one_line(void **state)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    (void)state;
    text_print(out, "kernel %s\n", "6.1\n\x1b[2J");
    fclose(out);
    assert_string_equal(text, "kernel 6.1??[2J\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_fits),
        cmocka_unit_test(test_good_text_stays),
        cmocka_unit_test(test_control_characters_go),
        cmocka_unit_test(test_what_is_no_utf8_goes),
        cmocka_unit_test(test_errors_are_clean),
        cmocka_unit_test(test_one_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
