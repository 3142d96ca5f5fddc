#include "recording/block_queue.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/deaf_thread.h"
#include "recording/pack.h"

#define QUEUE_MAX_BYTES (40u << 20)

/* No event is packed well if the machine would have to wait for it: when more than so many bytes
 * wait they go the fast way. */
#define QUEUE_LATE_BYTES (2u << 20)

struct job {
    struct job *next;
    enum block_type type;
    unsigned stream, items;
    struct bytes raw;
};

struct block_queue {
    const char *path;
    int fd;
    pthread_t thread;
    bool running;

    pthread_mutex_t lock;     /* for the fields up to the next blank line */
    pthread_cond_t changed;   /* any of them */
    struct job *first, *last; /* waiting, oldest first */
    size_t held;              /* bytes in the waiting jobs and the one being written */
    bool stop, discard;
    bool failed;
    struct err failure;
    uint64_t offset; /* end of the last whole block in the file */
    bool replayable;

    /* The thread's own while it runs. */
    struct packer *packer;
    XXH3_state_t *digest;
    struct bytes out;     /* a block as it goes into the file */
    struct bytes entries; /* INDEX entries of all blocks so far */
    uint32_t ordinal;     /* of the next block */
};

/* Remember the first failure. */
static void fail(struct block_queue *q, const char *why)
{
    bool replayable = block_queue_replayable(q);

    pthread_mutex_lock(&q->lock);
    if (!q->failed)
        err_set(&q->failure, STATUS_ERROR, "cannot write %s: %s; %s", q->path, why,
                replayable ? "the recording up to here can be replayed"
                           : "nothing of the recording can be replayed yet");
    q->failed = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

static int write_all(int fd, const uint8_t *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = ENOSPC;
            return -1;
        }
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* The raw bytes as they are to be stored, behind BLOCK_HEADER_BYTES of room in q->out. */
static size_t store_bytes(struct block_queue *q, enum block_type type, const uint8_t *raw,
                          uint32_t raw_len)
{
    pthread_mutex_lock(&q->lock);
    bool late = q->held > QUEUE_LATE_BYTES;
    pthread_mutex_unlock(&q->lock);
    const enum pack_effort effort = type == BLOCK_CHUNKS || late ? PACK_FAST : PACK_GOOD;

    bytes_clear(&q->out);
    bytes_reserve(&q->out, BLOCK_HEADER_BYTES + (size_t)raw_len);
    const size_t packed = type == BLOCK_END ? 0
                                            : packer_pack(q->packer, effort, raw, raw_len,
                                                          q->out.data + BLOCK_HEADER_BYTES);
    if (packed)
        return packed;
    memcpy(q->out.data + BLOCK_HEADER_BYTES, raw, raw_len);
    return raw_len;
}

static void note_entry(struct block_queue *q, const struct block_header *h)
{
    bytes_put_u32(&q->entries, h->stored_len);
    bytes_put_u32(&q->entries, h->raw_len);
    bytes_put_u16(&q->entries, h->items);
    bytes_put_u8(&q->entries, h->type);
    bytes_put_u8(&q->entries, h->stream);
}

static int write_block(struct block_queue *q, enum block_type type, unsigned stream, unsigned items,
                       const uint8_t *raw, size_t raw_len)
{
    assert(raw_len >= 1 && raw_len <= BLOCK_MAX_RAW);
    assert(items <= BLOCK_MAX_ITEMS && stream < STREAM_COUNT);
    if (q->ordinal == RECORDING_BLOCKS && type != BLOCK_INDEX && type != BLOCK_END) {
        fail(q, "the recording has reached the largest size its format allows");
        return -1;
    }
    size_t stored = store_bytes(q, type, raw, (uint32_t)raw_len);
    struct block_header h = {
        .type = (uint8_t)type,
        .stream = (uint8_t)stream,
        .items = (uint16_t)items,
        .ordinal = q->ordinal,
        .raw_len = (uint32_t)raw_len,
        .stored_len = (uint32_t)stored,
        .stored_crc = crc32_of(q->out.data + BLOCK_HEADER_BYTES, stored),
    };
    assert(!block_header_fault(&h));
    block_header_encode(q->out.data, &h);
    if (write_all(q->fd, q->out.data, BLOCK_HEADER_BYTES + stored)) {
        const char *why = strerror(errno);
        /* Should this fail too, the torn block stays at the end, where readers expect one. */
        (void)!ftruncate(q->fd, (off_t)q->offset);
        fail(q, why);
        return -1;
    }
    XXH3_128bits_update(q->digest, q->out.data, BLOCK_HEADER_BYTES);
    q->ordinal++;
    pthread_mutex_lock(&q->lock);
    q->offset += BLOCK_HEADER_BYTES + stored;
    q->replayable |= type == BLOCK_EPOCH;
    pthread_mutex_unlock(&q->lock);
    if (type != BLOCK_INDEX && type != BLOCK_END)
        note_entry(q, &h);
    return 0;
}

/* The oldest job, or NULL when the thread is to end. */
static struct job *next_job(struct block_queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (!q->first && !q->stop)
        pthread_cond_wait(&q->changed, &q->lock);
    struct job *job = q->first;
    if (job) {
        q->first = job->next;
        if (!q->first)
            q->last = NULL;
    }
    pthread_mutex_unlock(&q->lock);
    return job;
}

static void finish_job(struct block_queue *q, struct job *job)
{
    pthread_mutex_lock(&q->lock);
    q->held -= job->raw.cap;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    bytes_free(&job->raw);
    free(job);
}

static void *queue_main(void *arg)
{
    struct block_queue *q = arg;
    struct job *job;

    while ((job = next_job(q))) {
        pthread_mutex_lock(&q->lock);
        bool skip = q->failed || q->discard;
        pthread_mutex_unlock(&q->lock);
        if (!skip)
            write_block(q, job->type, job->stream, job->items, job->raw.data, job->raw.len);
        finish_job(q, job);
    }
    return NULL;
}

struct block_queue *block_queue_start(int fd, const char *path, uint32_t version, uint64_t offset,
                                      struct err *e)
{
    struct block_queue *q = calloc(1, sizeof *q);
    if (!q) {
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    q->fd = fd;
    q->path = path;
    q->offset = offset;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    q->digest = XXH3_createState();
    q->packer = packer_new(version);
    if (!q->digest || !q->packer) {
        block_queue_destroy(q);
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    XXH3_128bits_reset(q->digest);

    /* A blocked SIGXFSZ leaves EFBIG, which says more. */
    int rc = deaf_thread_create(&q->thread, queue_main, q);
    if (rc) {
        block_queue_destroy(q);
        err_set(e, STATUS_ERROR, "cannot start the thread that writes the recording: %s",
                strerror(rc));
        return NULL;
    }
    q->running = true;
    return q;
}

void block_queue_resume(struct block_queue *q, const uint8_t header[BLOCK_HEADER_BYTES],
                        const struct block_header *h)
{
    XXH3_128bits_update(q->digest, header, BLOCK_HEADER_BYTES);
    note_entry(q, h);
    q->ordinal++;
    q->replayable |= h->type == BLOCK_EPOCH;
}

int block_queue_put(struct block_queue *q, enum block_type type, unsigned stream, unsigned items,
                    struct bytes *raw)
{
    struct job *job = malloc(sizeof *job);

    assert(q->running && raw->len >= 1 && raw->len <= BLOCK_MAX_RAW);
    if (!job)
        abort(); /* as bytes_put does */
    *job = (struct job){.type = type, .stream = stream, .items = items, .raw = *raw};
    *raw = (struct bytes){0};

    pthread_mutex_lock(&q->lock);
    while (q->held && q->held + job->raw.cap > QUEUE_MAX_BYTES && !q->failed)
        pthread_cond_wait(&q->changed, &q->lock);
    bool failed = q->failed;
    if (!failed) {
        if (q->last)
            q->last->next = job;
        else
            q->first = job;
        q->last = job;
        q->held += job->raw.cap;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    if (failed) {
        bytes_free(&job->raw);
        free(job);
        return -1;
    }
    return 0;
}

void block_queue_wait_for_room(struct block_queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->held > QUEUE_MAX_BYTES / 2 && !q->failed)
        pthread_cond_wait(&q->changed, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

int block_queue_error(struct block_queue *q, struct err *e)
{
    pthread_mutex_lock(&q->lock);
    bool failed = q->failed;
    if (failed)
        *e = q->failure;
    pthread_mutex_unlock(&q->lock);
    return failed ? -1 : 0;
}

uint64_t block_queue_offset(struct block_queue *q)
{
    pthread_mutex_lock(&q->lock);
    uint64_t offset = q->offset;
    pthread_mutex_unlock(&q->lock);
    return offset;
}

bool block_queue_replayable(struct block_queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool replayable = q->replayable;
    pthread_mutex_unlock(&q->lock);
    return replayable;
}

static void stop_thread(struct block_queue *q, bool discard)
{
    if (!q->running)
        return;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    q->discard = discard;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    q->running = false;
}

static int write_index(struct block_queue *q, struct end_record *end)
{
    const uint8_t *at = q->entries.data;
    uint32_t left = q->ordinal;

    end->blocks = q->ordinal;
    end->index_offset = q->offset;
    end->index_blocks = 0;
    while (left) {
        uint32_t n = left < BLOCK_MAX_ITEMS ? left : BLOCK_MAX_ITEMS;
        if (write_block(q, BLOCK_INDEX, 0, n, at, (size_t)n * INDEX_ENTRY_BYTES))
            return -1;
        at += (size_t)n * INDEX_ENTRY_BYTES;
        left -= n;
        end->index_blocks++;
    }
    return 0;
}

int block_queue_finish(struct block_queue *q, struct end_record *end, struct err *e)
{
    uint8_t raw[END_RAW_BYTES];
    XXH128_canonical_t digest;

    stop_thread(q, false);
    if (block_queue_error(q, e))
        return -1;
    if (write_index(q, end))
        return block_queue_error(q, e);
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(q->digest));
    _Static_assert(sizeof digest.digest == DIGEST_BYTES, "XXH3-128 has 16 bytes");
    memcpy(end->digest, digest.digest, DIGEST_BYTES);
    end_record_encode(raw, end);
    if (write_block(q, BLOCK_END, 0, 0, raw, sizeof raw))
        return block_queue_error(q, e);
    return 0;
}

void block_queue_destroy(struct block_queue *q)
{
    if (!q)
        return;
    stop_thread(q, true);
    assert(!q->first);
    packer_free(q->packer);
    XXH3_freeState(q->digest);
    bytes_free(&q->out);
    bytes_free(&q->entries);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    free(q);
}
