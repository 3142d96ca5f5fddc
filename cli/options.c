#include "cli/options.h"

#include <assert.h>
#include <getopt.h>
#include <stdbool.h>
#include <string.h>

#include "base/file.h"
#include "vmm/points/clock.h"

#define OPTIONS_MAX 48
#define LONG_ONLY   256 /* what getopt_long() returns for the first without a letter */

/* Where the text of an option begins in help, and where its lines end. */
#define HELP_COLUMN 25
#define HELP_WIDTH  98

/* ---- parsing ---- */

static int argument_of(const struct option_entry *o)
{
    return !o->value ? no_argument : o->value[0] == '[' ? optional_argument : required_argument;
}

static int refuse(const struct option_entry *o, const char *value, struct err *e)
{
    return err_set(e, STATUS_USAGE, "--%s takes %s, not '%s'", o->name, o->takes, value);
}

static int take(const struct option_entry *o, void *into, const char *value, struct err *e)
{
    void *const member = (char *)into + o->member;
    uint64_t number = 0;

    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)member = true;
        return 0;
    case OPTION_TEXT:
        *(const char **)member = value;
        return 0;
    case OPTION_NUMBER:
    case OPTION_SIZE:
        if ((o->kind == OPTION_SIZE ? parse_size(value, &number)
                                    : parse_number(value, o->most, &number)) < 0 ||
            number < o->least || number > o->most)
            return refuse(o, value, e);
        *(uint64_t *)member = number;
        return 0;
    case OPTION_CLOCK:
        return clock_option(value, member, e);
    case OPTION_CALL:
        return o->call(into, value, e);
    case OPTION_END:
        break;
    }
    assert(false);
    return -1;
}

int options_parse(const struct option_entry *table, void *into, int argc, char **argv,
                  struct err *e)
{
    struct option names[OPTIONS_MAX + 1] = {{0}};
    char letters[2 * OPTIONS_MAX + 2] = ":";
    unsigned count = 0, letter = 1;
    int got;

    for (; table[count].kind != OPTION_END; count++) {
        const struct option_entry *o = &table[count];
        assert(count < OPTIONS_MAX);
        names[count] = (struct option){o->name, argument_of(o), NULL, LONG_ONLY + (int)count};
        if (!o->letter)
            continue;
        letters[letter++] = o->letter;
        if (o->value)
            letters[letter++] = ':';
    }
    optind = 0; /* glibc: begin anew, whatever was parsed before */
    opterr = 0;
    while ((got = getopt_long(argc, argv, letters, names, NULL)) != -1) {
        const struct option_entry *o = NULL;
        for (unsigned i = 0; i < count && !o; i++)
            if (got == LONG_ONLY + (int)i || (got == table[i].letter && got))
                o = &table[i];
        if (!o)
            return err_set(e, STATUS_USAGE, "%s: %s '%s' (see dittovm %s --help)", argv[0],
                           got == ':' ? "a value is missing after" : "unknown option",
                           argv[optind - 1], argv[0]);
        if (take(o, into, optarg, e) < 0)
            return -1;
    }
    return optind;
}

/* ---- help ---- */

/* The text, its lines no longer than they may be; `column` is where the first begins. */
static void print_wrapped(const char *text, int column, FILE *out)
{
    int at = column;

    fprintf(out, "%*s", HELP_COLUMN - column > 0 ? HELP_COLUMN - column : 0, "");
    if (column >= HELP_COLUMN)
        fprintf(out, "\n%*s", HELP_COLUMN, "");
    at = HELP_COLUMN;
    while (*text) {
        const int word = (int)strcspn(text, " ");
        if (at > HELP_COLUMN && at + 1 + word > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            at = HELP_COLUMN;
        }
        at += fprintf(out, "%s%.*s", at > HELP_COLUMN ? " " : "", word, text);
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

void options_print(const struct option_entry *table, FILE *out)
{
    for (const struct option_entry *o = table; o->kind != OPTION_END; o++) {
        int column = o->letter ? fprintf(out, "  -%c, ", o->letter) : fprintf(out, "      ");
        column += fprintf(out, "--%s", o->name);
        if (o->value && o->value[0] == '[')
            column += fprintf(out, "[=%s", o->value + 1);
        else if (o->value)
            column += fprintf(out, " %s", o->value);
        print_wrapped(o->help, column, out);
    }
}
