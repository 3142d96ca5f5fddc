#include "recording/chunks.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
/* Without SSE, which takes the emulated host twice as long, and a CPU half as long. */
#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_SCALAR
#include <xxhash.h>

#include "mmu/digest.h"

#define FIRST_SLOTS 1024u

struct chunk_store {
    struct recording_writer *writer;
    uint64_t seed;
    pthread_mutex_t lock; /* for the rest */
    /* The hash of chunk i is hashes[i - 1]; grown by a quarter, untouched room costs nothing. */
    XXH128_hash_t *hashes;
    uint64_t stored, hashes_cap;
    /*
     * Open addressing with linear probing at a load of at most 3/4: chunk numbers, 0 where empty.
     * slot_count is a power of two.
     */
    uint32_t *slots;
    uint64_t slot_count;
    uint64_t added;
};

struct chunk_store *chunks_create(struct recording_writer *w, struct err *e)
{
    struct chunk_store *s = calloc(1, sizeof *s);

    if (s) {
        pthread_mutex_init(&s->lock, NULL);
        s->slots = calloc(FIRST_SLOTS, sizeof *s->slots);
    }
    if (!s || !s->slots) {
        free(s);
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    /* Up to 256 bytes come whole or not at all. The seed decides nothing that is in the file. */
    if (getrandom(&s->seed, sizeof s->seed, 0) != sizeof s->seed) {
        err_set(e, STATUS_ERROR, "cannot get random bytes from the kernel: %s", strerror(errno));
        chunks_destroy(s);
        return NULL;
    }
    s->slot_count = FIRST_SLOTS;
    s->writer = w;
    return s;
}

void chunks_destroy(struct chunk_store *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    free(s->hashes);
    free(s->slots);
    free(s);
}

/* The slot that holds the chunk with this hash, or the empty one where it belongs. */
static uint32_t *find_slot(const struct chunk_store *s, XXH128_hash_t hash)
{
    uint64_t i = hash.low64 & (s->slot_count - 1);

    while (s->slots[i] && !XXH128_isEqual(s->hashes[s->slots[i] - 1], hash))
        i = (i + 1) & (s->slot_count - 1);
    return &s->slots[i];
}

static void no_memory(void)
{
    fprintf(stderr, "dittovm: out of memory\n");
    abort();
}

static void grow_slots(struct chunk_store *s)
{
    free(s->slots);
    s->slot_count *= 2;
    s->slots = calloc(s->slot_count, sizeof *s->slots);
    if (!s->slots)
        no_memory();
    for (uint64_t i = 0; i < s->stored; i++)
        *find_slot(s, s->hashes[i]) = (uint32_t)(i + 1);
}

static void grow_hashes(struct chunk_store *s)
{
    s->hashes_cap += s->hashes_cap / 4 + 256;
    s->hashes = realloc(s->hashes, s->hashes_cap * sizeof *s->hashes);
    if (!s->hashes)
        no_memory();
}

/* The length is part of what is hashed, so pieces of different lengths do not meet. */
static XXH128_hash_t hash_of(const struct chunk_store *s, const void *data, size_t len)
{
    return XXH3_128bits_withSeed(data, len, s->seed + len);
}

/* The next chunk, whose slot this is. */
static void enter(struct chunk_store *s, uint32_t *slot, XXH128_hash_t hash)
{
    if (s->stored == s->hashes_cap)
        grow_hashes(s);
    s->hashes[s->stored++] = hash;
    *slot = (uint32_t)s->stored;
    if (s->stored > s->slot_count / 4 * 3)
        grow_slots(s);
}

static uint64_t add_hashed(struct chunk_store *s, const void *data, size_t len, XXH128_hash_t hash)
{
    uint32_t *slot = find_slot(s, hash);

    if (*slot)
        return *slot;
    uint64_t id = writer_put_chunk(s->writer, data, len);
    if (!id)
        return CHUNK_ZERO_PAGE;
    assert(id == s->stored + 1);
    enter(s, slot, hash);
    return id;
}

uint64_t chunks_add_piece(struct chunk_store *s, const void *data, size_t len)
{
    const bool zero = len == CHUNK_MAX_BYTES && page_is_zero(data);
    XXH128_hash_t hash = {0};
    uint64_t id = CHUNK_ZERO_PAGE;

    assert(len >= 1 && len <= CHUNK_MAX_BYTES);
    if (!zero)
        hash = hash_of(s, data, len);
    pthread_mutex_lock(&s->lock);
    s->added++;
    if (!zero)
        id = add_hashed(s, data, len, hash);
    pthread_mutex_unlock(&s->lock);
    return id;
}

void chunks_know(struct chunk_store *s, const void *data, size_t len)
{
    const XXH128_hash_t hash = hash_of(s, data, len);

    assert(!s->added && len >= 1 && len <= CHUNK_MAX_BYTES);
    enter(s, find_slot(s, hash), hash);
}

uint64_t chunks_add(struct chunk_store *s, const void *page)
{
    return chunks_add_piece(s, page, CHUNK_MAX_BYTES);
}

uint64_t chunks_added(const struct chunk_store *s)
{
    return s->added;
}

uint64_t chunks_stored(const struct chunk_store *s)
{
    return s->stored;
}
