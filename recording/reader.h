#ifndef RECORDING_READER_H
#define RECORDING_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "recording/format.h"

/*
 * Reads a recording file (recording/format.h), which may be anything: every length, number and CRC
 * is checked, and memory stays bounded: 32 to 48 bytes for each block of the file and what the
 * readers below hold.
 *
 * Opening finds the blocks, by the index or by walking from header to header, and checks META,
 * INDEX, END and EPOCHs; the rest is checked when it is read. A file whose recorder was killed, or
 * is still at work, opens as one that ends at its last whole epoch.
 *
 * After recording_open a recording does not change: several threads may use it.
 */
struct recording;

/*
 * NULL with STATUS_BAD_RECORDING when the file is no recording, one of another version, damaged, or
 * without an epoch; with STATUS_ERROR when it cannot be read at all.
 */
struct recording *recording_open(const char *path, struct err *e);
void recording_close(struct recording *r);

const char *recording_path(const struct recording *r);
/* Its format's version (recording/format.h). */
uint32_t recording_version(const struct recording *r);
/* Bytes of the whole file. */
uint64_t recording_file_size(const struct recording *r);

/* Whether the recorder finished by itself, and if so what it said; else NULL. */
bool recording_complete(const struct recording *r);
const struct end_record *recording_end(const struct recording *r);
/* Whether it is not complete because its recorder was still at work when it was opened, which holds
 * the file's lock. The emulated KVM host does not see locks; who starts it says so in this
 * variable. */
bool recording_in_progress(const struct recording *r);
#define RECORDING_IN_PROGRESS_VARIABLE "DITTO_IN_PROGRESS"

uint64_t recording_epochs(const struct recording *r);
/* Chunks are numbered 1 to this; 0 is the page of zeroes. */
uint64_t recording_chunks(const struct recording *r);
/* Raw bytes of a stream (below STREAM_COUNT). */
uint64_t recording_stream_length(const struct recording *r, unsigned stream);
/* What the blocks of a type, and stream if it is BLOCK_STREAM, take in the file, headers included.
 */
uint64_t recording_stored_bytes(const struct recording *r, enum block_type type, unsigned stream);

/* The META text: *len bytes and a NUL. It belongs to r and was not looked into. */
const char *recording_meta(const struct recording *r, size_t *len);

/* Read and check every byte. */
int recording_verify_all(const struct recording *r, struct err *e);

/*
 * For stream_reader.h and chunk_source.h: the blocks.
 */
struct recording_block {
    uint64_t offset; /* in the file */
    uint64_t start;  /* raw offset in its stream, or number of its first chunk */
    uint32_t raw_len, stored_len;
    uint16_t items;
    uint8_t type, stream;
};

/* The blocks of one stream or of the chunks, in order. */
struct block_list {
    uint32_t *ordinals;
    uint32_t count;
};

const struct block_list *recording_stream_blocks(const struct recording *r, unsigned stream);
const struct block_list *recording_chunk_blocks(const struct recording *r);
const struct recording_block *recording_block(const struct recording *r, uint32_t ordinal);

/* The place in the list of the block that `position` is in; the list must reach that far. */
uint32_t recording_find(const struct recording *r, const struct block_list *list,
                        uint64_t position);

/* Read, check and unpack one block into `raw` (its raw_len bytes). */
int recording_load(const struct recording *r, uint32_t ordinal, uint8_t *raw, struct err *e);

/* Fill *e with: the file is damaged at this offset, in this way. Returns -1. */
int recording_damaged(const struct recording *r, uint64_t offset, const char *what, struct err *e);

#endif
