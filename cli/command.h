#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdbool.h>

#include "cli/options.h"
#include "base/err.h"
#include "host/host.h"

/*
 * The subcommands of dittovm. Each lives in cli/cmd_<name>.c with its help text and is entered into
 * the table in main.c.
 */
struct command {
    const char *name;
    const char *summary;                /* one line for the list of commands */
    const char *usage;                  /* its forms, without "usage: ", a line each */
    const char *about;                  /* what help says of it; NULL: nothing */
    const struct option_entry *options; /* NULL: none */
    /* argv[0] is the command's name. Returns the exit status; on an error *e is set and shown. */
    int (*run)(const struct invocation *inv, int argc, char **argv, struct err *e);
};

extern const struct command command_run, command_replay, command_verify, command_info, command_dump,
    command_snapshot, command_disk, command_core, command_domain, command_pcap, command_symbols,
    command_order, command_doctor, command_ctl, command_version;

/* True when --help was given: it has been shown. */
bool command_wants_help(const struct command *command, int argc, char **argv);

#endif
