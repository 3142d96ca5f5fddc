/*
 * Runs a command where dittovm would run a machine: right here, or, where the CPU offers no VMX or
 * SVM, in the emulated host, in which many short runs of dittovm then cost one start. Its current
 * directory can be written there, nothing else.
 *
 * usage: in_host COMMAND [ARGUMENT...]
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "vmm/command.h"

#define GUEST_MEMORY (64ull << 20) /* of the machines that are run */

int main(int argc, char **argv)
{
    static char self[4096];
    struct err e = {0};
    int status = 1;

    if (argc < 2) {
        fprintf(stderr, "usage: in_host COMMAND [ARGUMENT...]\n");
        return STATUS_USAGE;
    }
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) {
        perror("in_host");
        return 1;
    }
    const struct invocation inv = {.self = self, .argv = argv, .host = HOST_AUTO};
    const struct host_needs needs = {.guest_memory = GUEST_MEMORY};
    if (host_redirect(&inv, &needs, &status, &e)) {
        if (e.text[0])
            fprintf(stderr, "in_host: %s\n", e.text);
        return status;
    }
    execvp(argv[1], argv + 1);
    fprintf(stderr, "in_host: cannot run %s: %s\n", argv[1], strerror(errno));
    return 127;
}
