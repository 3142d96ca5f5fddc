#ifndef TESTS_TOOLS_TOOL_HOST_H
#define TESTS_TOOLS_TOOL_HOST_H

#include <stdio.h>
#include <unistd.h>

#include "cli/command.h"

/* Runs this program again where dittovm would run such a machine, if that is not right here. True:
 * it did, or could not and said why, and the program ends with *status. */
static inline bool tool_ran_in_host(const char *name, char **argv, const struct host_needs *needs,
                                    int *status)
{
    static char self[4096];
    struct err e = {0};

    setvbuf(stdout, NULL, _IOLBF, 0);
    *status = STATUS_ERROR;
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return true;
    const struct invocation inv = {.self = self, .argv = argv, .host = HOST_AUTO};
    if (!host_redirect(&inv, needs, status, &e))
        return false;
    if (e.text[0])
        fprintf(stderr, "%s: %s\n", name, e.text);
    return true;
}

#endif
