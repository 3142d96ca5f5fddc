/*
 * Runs a command where dittovm would run a machine: right here, or, where the CPU offers no VMX or
 * SVM, in the emulated host, in which many short runs of dittovm then cost one start. Its current
 * directory can be written there, nothing else.
 *
 * usage: in_host [--memory MIB] COMMAND [ARGUMENT...]
 *
 * MIB: memory of the largest machine that the command runs (default 64).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"

int main(int argc, char **argv)
{
    static char self[4096];
    struct err e = {0};
    uint64_t mebibytes = 64;
    int status = 1;

    /* What is left is run again, inside. */
    if (argc > 3 && strcmp(argv[1], "--memory") == 0) {
        mebibytes = strtoull(argv[2], NULL, 10);
        argv += 2;
        argc -= 2;
    }
    if (argc < 2) {
        fprintf(stderr, "usage: in_host [--memory MIB] COMMAND [ARGUMENT...]\n");
        return STATUS_USAGE;
    }
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) {
        perror("in_host");
        return 1;
    }
    const struct invocation inv = {.self = self, .argv = argv, .host = HOST_AUTO};
    const struct host_needs needs = {.guest_memory = mebibytes << 20};
    if (host_redirect(&inv, &needs, &status, &e)) {
        if (e.text[0])
            fprintf(stderr, "in_host: %s\n", e.text);
        return status;
    }
    execvp(argv[1], argv + 1);
    fprintf(stderr, "in_host: cannot run %s: %s\n", argv[1], strerror(errno));
    return 127;
}
