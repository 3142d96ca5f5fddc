/* cli/options.c: tables of options, honest command lines and others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

struct wanted {
    bool loud;
    const char *name, *where;
    uint64_t number, size;
};

static int take_where(void *into, const char *value, struct err *e)
{
    ((struct wanted *)into)->where = value ? value : "nowhere";
    return value && !strcmp(value, "bad") ? err_set(e, STATUS_USAGE, "not there") : 0;
}

static const struct option_entry table[] = {
    FLAG_OPTION('l', "loud", struct wanted, loud, "be heard"),
    TEXT_OPTION("name", "NAME", struct wanted, name, "a name"),
    NUMBER_OPTION(OPTION_NUMBER, "number", "N", struct wanted, number, 2, 9, "2 to 9", "how many"),
    NUMBER_OPTION(OPTION_SIZE, "size", "SIZE", struct wanted, size, 1024, UINT64_MAX, "1K or more",
                  "how large"),
    CALL_OPTION('w', "where", "[PLACE]", take_where, "a place"),
    END_OF_OPTIONS,
};

static struct wanted wanted;
static struct err e;

/* Of up to 8 words behind the command's name; what options_parse() returns. */
static int parse(const char *line)
{
    static char text[200];
    char *argv[10] = {"command"};
    int argc = 1;

    strcpy(text, line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    wanted = (struct wanted){0};
    e = (struct err){0};
    return options_parse(table, &wanted, argc, argv, &e);
}

static void takes_each_kind(void **state)
{
    (void)state;
    assert_int_equal(parse("-l --name=x --number 9 file --size 2K --where"), 8);
    assert_true(wanted.loud);
    assert_string_equal(wanted.name, "x");
    assert_int_equal(wanted.number, 9);
    assert_int_equal(wanted.size, 2048);
    assert_string_equal(wanted.where, "nowhere");
    assert_int_equal(parse("--where=there"), 1 + 1);
    assert_string_equal(wanted.where, "there");
    assert_int_equal(parse(""), 1);
    assert_false(wanted.loud);
}

static void refuses(const char *line, const char *why)
{
    assert_int_equal(parse(line), -1);
    assert_int_equal(e.status, STATUS_USAGE);
    if (strcmp(e.text, why) != 0)
        fail_msg("'%s': %s", line, e.text);
}

static void refuses_the_rest(void **state)
{
    (void)state;
    refuses("--number 1", "--number takes 2 to 9, not '1'");
    refuses("--number 10", "--number takes 2 to 9, not '10'");
    refuses("--number x", "--number takes 2 to 9, not 'x'");
    refuses("--size 1023", "--size takes 1K or more, not '1023'");
    refuses("--name", "command: a value is missing after '--name' (see dittovm command --help)");
    refuses("--nosuch", "command: unknown option '--nosuch' (see dittovm command --help)");
    refuses("-x", "command: unknown option '-x' (see dittovm command --help)");
    refuses("--where=bad", "not there");
}

static void prints_help(void **state)
{
    static const struct option_entry long_ones[] = {
        FLAG_OPTION('l', "loud", struct wanted, loud, "be heard"),
        NUMBER_OPTION(
            OPTION_NUMBER, "a-very-long-number", "NUMBER", struct wanted, number, 0, 9, "",
            "a text of such a length that it does not fit into one line of help, and goes "
            "on in the next one"),
        CALL_OPTION(0, "where", "[PLACE]", take_where, "a place"),
        END_OF_OPTIONS,
    };
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    (void)state;
    options_print(long_ones, out);
    fclose(out);
    static const char expected[] = "  -l, --loud             be heard\n"
                                   "      --a-very-long-number NUMBER\n"
                                   "                         a text of such a length that it does "
                                   "not fit into one line of help, "
                                   "and\n"
                                   "                         goes on in the next one\n"
                                   "      --where[=PLACE]    a place\n";
    assert_string_equal(text, expected);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_each_kind),
        cmocka_unit_test(refuses_the_rest),
        cmocka_unit_test(prints_help),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
