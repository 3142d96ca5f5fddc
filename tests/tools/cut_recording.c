/*
 * cut-recording IN OUT EPOCH: copies a recording as a recorder that was killed could have left it,
 * up to this epoch (from 1 on) and with it. Exit status 2: it has fewer; then there is no OUT.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "recording/format.h"

#define RECORDING_MAX (1ull << 30)

static _Noreturn void die(int status, const char *what)
{
    fprintf(stderr, "cut-recording: %s\n", what);
    exit(status);
}

/* Where the epoch ends in the file; 0: it has fewer. */
static size_t end_of_epoch(const uint8_t *data, size_t len, uint64_t epoch)
{
    size_t at = FILE_HEADER_BYTES;
    struct block_header h;

    while (len >= at + BLOCK_HEADER_BYTES) {
        if (!block_header_decode(&h, data + at) || h.stored_len > len - at - BLOCK_HEADER_BYTES)
            die(STATUS_BAD_RECORDING, "a block is damaged");
        at += BLOCK_HEADER_BYTES + h.stored_len;
        if (h.type == BLOCK_END)
            break;
        if (h.type == BLOCK_EPOCH && --epoch == 0)
            return at;
    }
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t epoch;
    uint8_t *data;
    size_t len;
    struct err e;

    if (argc != 4 || parse_number(argv[3], UINT32_MAX, &epoch) < 0 || !epoch)
        die(STATUS_USAGE, "usage: cut-recording IN OUT EPOCH");
    if (file_read(argv[1], RECORDING_MAX, &data, &len, &e) < 0)
        die(e.status, e.text);
    const size_t end = end_of_epoch(data, len, epoch);
    if (!end)
        die(STATUS_USAGE, "it has fewer epochs");
    FILE *out = fopen(argv[2], "wb");
    if (!out || fwrite(data, 1, end, out) != end || fclose(out) != 0)
        die(STATUS_ERROR, "the copy cannot be written");
    free(data);
    return 0;
}
