#ifndef RECORDING_FORMAT_H
#define RECORDING_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The recording file: a container of up to 64 typed byte streams and of deduplicated pages. What
 * the bytes of a stream mean is the event codec's affair. All integers are little-endian.
 *
 * FILE
 *
 *   file header | META block | blocks ... | EPOCH block | ... | INDEX blocks | END block
 *     [ | blocks ... | EPOCH block | INDEX blocks | END block ] ...
 *
 * The file only ever grows. To a finished recording more can be added later (what a replay found
 * out, snapshots): further blocks, again with an INDEX and an END, behind the END there is. The
 * last END counts; blocks behind it, of an addition that was interrupted, do not.
 *
 * A recorder that is killed leaves a file without INDEX and END, and
 * perhaps a torn last block; such a file is good up to its last whole EPOCH. A block is torn when
 * the file ends before the block does, when zeroes fill the file from where its header should be,
 * and when it is an EPOCH or END with a wrong CRC and the last thing in the file. Anything else
 * that is not as it should be, and anything at all in a file with an END, is damage.
 *
 * FILE HEADER
 *
 *   OFFSET  SIZE  DESCRIPTION
 *      0      8   Magic: "DITTOREC"
 *      8      4   Format version, RECORDING_VERSION
 *     12      4   Flags; none is defined, must be 0
 *     16     12   Reserved, must be 0
 *     28      4   CRC-32 of bytes 0 to 27
 *
 * The version is one number for the whole file, the meaning of its streams included. Add one to it
 * whenever a reader of the old number could misread, or would refuse, a file of the new kind: a
 * field moved, a block type or an event added, a limit raised. A reader reads all versions from
 * RECORDING_OLDEST on. Magic, version and their places never change.
 *
 *   12  the oldest that is read
 *   13  accesses to CR4 are sync points, where the description says that CR4.TSD is dittovm's
 *   14  a landmark may list 16,384 pages, where it was 512
 *   15  a landmark may have 14 probes
 *   16  a landmark may say how often the kernel was entered
 *   17  a landmark may have a byte of the digest of each page
 *   18  what a #GP was is read where the vCPU comes to it, not when its turn comes (--smp crew)
 *   19  RDTSC of a program may have prefixes
 *   20  a vCPU's state has MXCSR (before, 0), digests and landmarks have it, too; what its x87 unit
 *       did last is in snapshots and in the state at the beginning
 *   21  not with --smp crew: an instruction of an exit is finished before an interrupt is
 *       injected; a window that opens behind a byte of 0xfb is moved by an instruction only where
 *       that byte may be a STI, and by one that shows nothing of a step
 *   22  blocks are packed by zstd, before by zlib
 *   23  of memory a landmark has digests of pages only, by XXH64
 *   24  frames of NICs are events; what devices read to follow their rings is not
 *   25  requests of disks may be completed behind their doorbell: when is an event
 *   26  marks, and further boots of the machine, are events
 *
 * BLOCK
 *
 *   OFFSET  SIZE  DESCRIPTION
 *      0      1   Type, enum block_type
 *      1      1   Stream number (STREAM), otherwise 0
 *      2      2   Items: chunks in the block (CHUNKS), entries (INDEX), otherwise 0
 *      4      4   Ordinal: 0 for the first block of the file (META), then 1, 2, ...
 *      8      4   Raw length: 1 to 1 MiB
 *     12      4   Stored length: 1 to raw length
 *     16      4   CRC-32 of the stored bytes
 *     20      4   CRC-32 of bytes 0 to 19
 *     24          Stored bytes: raw when both lengths are equal, else packed: a zstd frame,
 *                  before version 22 a zlib stream
 *
 * The header has a CRC of its own so that a block which reaches past the end of the file is known
 * to be torn, not one whose length was damaged. The ordinal makes a lost, doubled or moved block
 * show.
 *
 * BLOCK TYPES, raw bytes
 *
 *   META        JSON text (who recorded, what machine). The first block, and only that.
 *   STREAM      A piece of one stream; the stream is its pieces one after another.
 *   CHUNKS      The bytes of `items` chunks, 1 to 4096 bytes each, then `items` u16 lengths. Chunks
 *               are numbered through the file from 1; number 0 is the page of zeroes, never stored.
 *   EPOCH       All streams end here at the same moment. LEB128 numbers: epoch (1, 2, ...), chunks
 *               so far, n (0 to 64), then n raw lengths so far of streams 0 to n-1; the others are
 *               empty.
 *   CHECKPOINT  Reserved; not in files of this version.
 *   INDEX       One 12-byte entry for each block before the first of these INDEX blocks, earlier
 *               INDEX and END blocks included, in file order:
 *                  0  4  stored length
 *                  4  4  raw length
 *                  8  2  items
 *                 10  1  type
 *                 11  1  stream
 *               Offsets, ordinals and first chunk numbers follow by adding up.
 *   END         The recorder finished by itself. Never compressed, always the last END_RAW_BYTES +
 *               BLOCK_HEADER_BYTES bytes of the file:
 *                  0  4  number of blocks before the first of its INDEX blocks
 *                  4  4  number of its INDEX blocks
 *                  8  8  file offset of the first of its INDEX blocks
 *                 16  8  epochs
 *                 24  8  chunks
 *                 32  4  reason code, the recorder's
 *                 36  4  reserved, 0
 *                 40 16  XXH3-128 (canonical form) of the headers of all blocks before END, which
 *                        names its state: the headers hold the CRCs of everything else
 *                 56 128 reason, text filled up with zeroes
 *               The block before INDEX is an EPOCH.
 */
#define RECORDING_MAGIC   "DITTOREC"
#define RECORDING_VERSION 26u
#define RECORDING_OLDEST  12u
/* The first with what a reader can do nothing about (18 above), and those that a reader has to
 * tell from the ones before them. */
#define RECORDING_TRAPS_ON_ARRIVAL 18u
#define RECORDING_RDTSC_PREFIXES   19u
#define RECORDING_MXCSR            20u
#define RECORDING_COMPLETES_FIRST  21u
#define RECORDING_ZSTD             22u
#define RECORDING_XXH64            23u /* page digests (mmu/digest.h) */
#define RECORDING_FRAMES           24u /* and devices peek at their rings */
#define RECORDING_DISK_DONE        25u /* before, each request was completed at its doorbell */
#define RECORDING_MARKS            26u /* and boots */
#define RECORDING_PAGES_ALONE      23u /* and no other digests of memory in landmarks */

#define FILE_HEADER_BYTES  32u
#define BLOCK_HEADER_BYTES 24u
#define INDEX_ENTRY_BYTES  12u
#define END_RAW_BYTES      184u
#define END_REASON_OFFSET  56u
#define END_REASON_BYTES   128u
#define DIGEST_BYTES       16u

#define STREAM_COUNT     64u
#define CHUNK_MAX_BYTES  4096u
#define CHUNK_ZERO_PAGE  0u
#define CHUNK_MAX_ID     UINT32_MAX
#define BLOCK_MAX_RAW    (1u << 20)
#define BLOCK_MAX_ITEMS  UINT16_MAX
#define RECORDING_BLOCKS (1u << 24) /* blocks a file may have: what bounds a reader's memory */
#define EPOCH_MAX_RAW    ((3u + STREAM_COUNT) * 10u)

enum block_type {
    BLOCK_META = 1,
    BLOCK_STREAM = 2,
    BLOCK_CHUNKS = 3,
    BLOCK_EPOCH = 4,
    BLOCK_CHECKPOINT = 5,
    BLOCK_INDEX = 6,
    BLOCK_END = 7,
};

struct block_header {
    uint8_t type, stream;
    uint16_t items;
    uint32_t ordinal;
    uint32_t raw_len, stored_len; /* bytes */
    uint32_t stored_crc;
};

struct end_record {
    uint32_t blocks, index_blocks;
    uint64_t index_offset;
    uint64_t epochs, chunks;
    uint32_t reason_code;
    uint8_t digest[DIGEST_BYTES];
    char reason[END_REASON_BYTES + 1];
};

void file_header_encode(uint8_t out[FILE_HEADER_BYTES], uint32_t version);
uint32_t file_header_version(const uint8_t in[FILE_HEADER_BYTES]);
/* Whether it is a whole header, of a version that is read. */
bool file_header_valid(const uint8_t in[FILE_HEADER_BYTES]);

void block_header_encode(uint8_t out[BLOCK_HEADER_BYTES], const struct block_header *h);
/* False when the header's own CRC is wrong; the fields are not checked further. */
bool block_header_decode(struct block_header *h, const uint8_t in[BLOCK_HEADER_BYTES]);
/* NULL when every field of h is one this version may hold, else what is wrong, for an error text.
 */
const char *block_header_fault(const struct block_header *h);

/* Whether a whole CHUNKS block ends in `items` lengths that the bytes before them add up to. */
bool chunk_lengths_valid(const uint8_t *raw, uint32_t raw_len, uint32_t items);

void end_record_encode(uint8_t out[END_RAW_BYTES], const struct end_record *end);
/* reason comes out with a NUL, and with '?' for each byte that is not printable ASCII. */
void end_record_decode(struct end_record *end, const uint8_t in[END_RAW_BYTES]);

uint32_t crc32_of(const void *data, size_t len);

#endif
