#include <stdio.h>

#include "base/version.h"
#include "cli/command.h"
#include "recording/format.h"

static int run(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    (void)inv;
    (void)argv;
    if (argc > 1)
        return err_set(e, STATUS_USAGE, "version takes no arguments");
    printf("dittovm %s (recording format %u)\n", DITTO_VERSION, RECORDING_VERSION);
    return STATUS_OK;
}

const struct command command_version = {
    .name = "version",
    .summary = "show the version of dittovm and of its recordings",
    .usage = "version",
    .run = run,
};
