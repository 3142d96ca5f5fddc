#ifndef RECORDING_PACK_H
#define RECORDING_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The bytes of a block (recording/format.h) and how they are stored: a zstd frame (RFC 8878), or in
 * files before RECORDING_ZSTD a zlib stream (RFC 1950), which other dittovms than this one read.
 */
struct packer;

/* For one thread at a time. NULL: out of memory. packer_free() may be called with that. */
struct packer *packer_new(uint32_t recording_version);
void packer_free(struct packer *p);

enum pack_effort {
    PACK_FAST, /* for pages: with zlib they gained 4 % from the other, at twice the time */
    PACK_GOOD, /* for events, which gained up to a third */
};

/* Pack raw_len bytes, at least 1, into `out`, which has room for as many. Returns how many it has;
 * 0: not fewer, they are to be stored as they are. */
size_t packer_pack(struct packer *p, enum pack_effort effort, const uint8_t *raw, size_t raw_len,
                   uint8_t *out);

/* The other way round, either kind. False: these bytes are not what raw_len bytes, at least 1, are
 * packed as. */
bool unpack(uint8_t *raw, size_t raw_len, const uint8_t *stored, size_t stored_len);

#endif
