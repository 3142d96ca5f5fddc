/*
 * flip-bits RECORDING FLIPS [SEED]: `dittovm info` on copies of a recording in which one random bit
 * is another one. Each must be refused as damaged; behind the end mark's header a copy may also be
 * taken for what a killed recorder leaves behind. Built with the sanitizers (make asan). Exit
 * status 1: one was taken for something else; it is left in ./flipped.ditto.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/command.h"
#include "recording/format.h"

#define RECORDING_MAX  (1ull << 30)
#define END_MARK_BYTES (BLOCK_HEADER_BYTES + END_RAW_BYTES)

static char flipped[] = "flipped.ditto";

/* The end mark is last: a torn one is what a kill leaves behind. */
static bool taken_rightly(int status, const char *said, size_t at, size_t len)
{
    if (status == STATUS_BAD_RECORDING)
        return true;
    return status == STATUS_OK && at >= len - END_MARK_BYTES &&
           strstr(said, "the recorder was killed");
}

/* Its exit status; what it says on stdout, a file in memory, in said[]. */
static int info(char *said, size_t size)
{
    static char name[] = "info";
    const struct invocation inv = {.self = "/dittovm", .host = HOST_NATIVE};
    char *argv[] = {name, flipped, NULL};
    struct err e = {.status = STATUS_ERROR};
    const int status = command_info.run(&inv, 2, argv, &e);

    fflush(stdout);
    const ssize_t n = pread(STDOUT_FILENO, said, size - 1, 0);
    said[n > 0 ? n : 0] = '\0';
    if (ftruncate(STDOUT_FILENO, 0) != 0 || lseek(STDOUT_FILENO, 0, SEEK_SET) != 0)
        abort();
    return status < 0 ? (int)e.status : status;
}

int main(int argc, char **argv)
{
    static char said[64 << 10];
    uint8_t *data;
    size_t len;
    struct err e = {0};

    if (argc < 3) {
        fprintf(stderr, "usage: flip_bits RECORDING FLIPS [SEED]\n");
        return STATUS_USAGE;
    }
    if (file_read(argv[1], RECORDING_MAX, &data, &len, &e) != 0) {
        fprintf(stderr, "flip-bits: %s\n", e.text);
        return 1;
    }
    const int fd = open(flipped, O_RDWR | O_CREAT | O_TRUNC, 0666);
    const int out = memfd_create("out", 0);
    if (fd < 0 || write(fd, data, len) != (ssize_t)len || dup2(out, STDOUT_FILENO) < 0) {
        perror("flip-bits");
        return 1;
    }
    srandom(argc > 3 ? (unsigned)atoi(argv[3]) : 1);
    for (int left = atoi(argv[2]); left > 0; left--) {
        const size_t bit = (size_t)random() % (len * 8), at = bit / 8;
        const uint8_t byte = data[at] ^ (uint8_t)(1u << bit % 8);
        if (pwrite(fd, &byte, 1, (off_t)at) != 1)
            abort();
        const int status = info(said, sizeof said);
        if (!taken_rightly(status, said, at, len)) {
            fprintf(stderr, "bit %zu of byte %zu of %zu: exit status %d\n%s", bit % 8, at, len,
                    status, said);
            return 1;
        }
        if (pwrite(fd, data + at, 1, (off_t)at) != 1)
            abort();
    }
    free(data);
    unlink(flipped);
    return 0;
}
