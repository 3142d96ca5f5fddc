#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/symbol_file.h"

/* In a source tree beside the executable, installed in the share beside its bin. */
static int show_helper(const struct invocation *inv, struct err *e)
{
    static const char *const places[] = {"guest-tools/gdb", "../share/dittovm/gdb"};
    const char *slash = strrchr(inv->self, '/');
    char path[PATH_MAX + 64], *whole;

    for (unsigned i = 0; slash && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%.*s/%s/dittovm-gdb.py", (int)(slash - inv->self), inv->self,
                 places[i]);
        whole = realpath(path, NULL);
        if (!whole)
            continue;
        puts(whole);
        free(whole);
        return 0;
    }
    return err_set(e, STATUS_ERROR, "dittovm-gdb.py is neither in %s nor in %s beside %s",
                   places[0], places[1], inv->self);
}

static int write_out(const struct bytes *file, struct err *e)
{
    if (fwrite(file->data, 1, file->len, stdout) != file->len || fflush(stdout) != 0)
        return err_set(e, STATUS_ERROR, "cannot write the symbols: %s", strerror(errno));
    return 0;
}

static int show_symbols(const char *path, struct err *e)
{
    struct recording *r = recording_open(path, e);
    struct symbol_list list;
    struct bytes file = {0};
    int rc;

    if (!r)
        return -1;
    rc = symbol_list_load(&list, r, e);
    recording_close(r);
    if (rc < 0)
        return -1;
    if (list.count == 0)
        return err_set(e, STATUS_ERROR,
                       "%s holds no symbols: its kernel had no kallsyms table that dittovm knows",
                       path);
    symbol_file_write(&file, &list);
    symbol_list_free(&list);
    rc = write_out(&file, e);
    bytes_free(&file);
    return rc;
}

struct symbols_options {
    bool helper;
};

static const struct option_entry options[] = {
    FLAG_OPTION(
        0, "gdb-helper", struct symbols_options, helper,
        "print the path of the Python file that gives gdb the command 'ditto': gdb -x \"$(dittovm "
        "symbols "
        "--gdb-helper)\" guest.sym"),
    END_OF_OPTIONS,
};

static int run(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    struct symbols_options o = {false};

    const int first = options_parse(options, &o, argc, argv, e);
    if (first < 0)
        return -1;
    if (first != argc - !o.helper)
        return err_set(e, STATUS_USAGE, "symbols: give %s (see dittovm symbols --help)",
                       o.helper ? "--gdb-helper alone" : "one recording");
    if (o.helper)
        return show_helper(inv, e);
    if (isatty(STDOUT_FILENO))
        return err_set(e, STATUS_USAGE,
                       "symbols: this is a file for gdb, not for a terminal; use: dittovm symbols "
                       "%s > guest.sym",
                       argv[first]);
    return show_symbols(argv[first], e);
}

const struct command command_symbols = {
    .name = "symbols",
    .summary = "write the guest kernel's symbols as a file for gdb",
    .usage = "symbols REC > guest.sym\nsymbols --gdb-helper",
    .about =
        "Writes the symbols of the guest's kernel to standard output, as an ELF file for gdb:\n"
        "'gdb guest.sym', or 'symbol-file guest.sym' in gdb. There are functions and variables, "
        "but no\n"
        "types: gdb wants casts, as in 'print *(unsigned long *)&jiffies'.",
    .options = options,
    .run = run,
};
