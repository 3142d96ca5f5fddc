#ifndef RECORDING_BLOCK_TABLE_H
#define RECORDING_BLOCK_TABLE_H

#include "recording/reader.h"

/*
 * Inside of recording/reader.c: finding the blocks of a recording when it is opened.
 */

/* What the blocks up to some place add up to; an EPOCH block says the same. */
struct block_totals {
    uint64_t streams[STREAM_COUNT];
    uint64_t chunks, epochs;
};

struct recording {
    char *path;
    int fd;
    uint64_t size; /* of the file, when it was opened */
    uint32_t version;
    bool complete, in_progress;
    struct end_record end;
    char *meta;

    struct recording_block *blocks;
    uint32_t count, cap;
    struct block_totals totals;
    struct block_list streams[STREAM_COUNT], chunks;
};

/*
 * Fill blocks, totals, complete and end from the file. On return the last block is an EPOCH.
 */
int block_table_build(struct recording *r, struct err *e);

/* Take one more block into the totals; its start is where it begins in them. */
void block_totals_add(struct block_totals *t, struct recording_block *b);

/* Whether the raw bytes of an EPOCH block say what *t does. */
bool block_totals_match(const struct block_totals *t, const uint8_t *raw, size_t len);

/* pread of exactly len bytes. */
int recording_pread(const struct recording *r, uint64_t offset, void *out, size_t len,
                    struct err *e);

enum load_result {
    LOAD_OK,
    LOAD_DAMAGED, /* the CRC or the compressed data is wrong */
    LOAD_ERROR,   /* cannot be read; or out of memory */
};

/* Read the stored bytes that belong to *h, check and unpack them into raw. Fills *e if not LOAD_OK.
 */
enum load_result recording_load_stored(const struct recording *r, uint64_t offset,
                                       const struct block_header *h, uint8_t *raw, struct err *e);

#endif
