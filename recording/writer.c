#include "recording/writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "recording/block_queue.h"

/*
 * What one block holds. Pages are read one by one, and a reader unpacks a whole block to get at one
 * of them.
 */
#define STREAM_FILL (256u << 10)
#define CHUNK_FILL  (64u << 10)

struct recording_writer {
    char *path;
    int fd;
    struct block_queue *queue;
    bool meta_put;

    pthread_mutex_t lock;               /* for what follows but reopened_size */
    struct bytes pending[STREAM_COUNT]; /* less than STREAM_FILL each */
    uint64_t totals[STREAM_COUNT];      /* raw bytes put, pending ones included */
    struct bytes chunk_data, chunk_lengths;
    unsigned chunk_items;
    uint64_t chunks;  /* put, pending ones included */
    bool chunks_full; /* one more was asked for than can be numbered */

    uint64_t epochs;
    uint64_t since_epoch;   /* bytes */
    uint64_t reopened_size; /* of a file that was finished before; 0: a new one */
};

static int system_error(struct err *e, const char *what, const char *path)
{
    return err_set(e, STATUS_ERROR, "cannot %s %s: %s", what, path, strerror(errno));
}

/* Whether an existing file may be overwritten: it is empty or begins as a recording does. */
static int check_overwrite(int fd, const char *path, struct err *e)
{
    char magic[sizeof RECORDING_MAGIC - 1];
    ssize_t n = pread(fd, magic, sizeof magic, 0);

    if (n < 0)
        return system_error(e, "read", path);
    if (n && (n < (ssize_t)sizeof magic || memcmp(magic, RECORDING_MAGIC, sizeof magic)))
        return err_set(e, STATUS_ERROR,
                       "%s exists and is not a dittovm recording; remove it yourself or give "
                       "another -o",
                       path);
    return 0;
}

static int open_file(const char *path, bool overwrite, struct err *e)
{
    /* O_NONBLOCK: a FIFO must not make us wait. Owner only: the file holds the guest's memory. */
    int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | (overwrite ? 0 : O_EXCL);
    int fd = open(path, flags, 0600);
    struct stat st;

    if (fd < 0 && errno == EEXIST)
        return err_set(e, STATUS_ERROR, "%s exists; give --force or another -o", path);
    if (fd < 0)
        return system_error(e, "create", path);
    if (fstat(fd, &st)) {
        system_error(e, "examine", path);
    } else if (!S_ISREG(st.st_mode)) {
        err_set(e, STATUS_ERROR, "%s is not a regular file; give another -o", path);
    } else if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        err_set(e, STATUS_ERROR, "%s is being written by another recorder; give another -o", path);
    } else if (!check_overwrite(fd, path, e)) {
        if (!ftruncate(fd, 0))
            return fd;
        system_error(e, "truncate", path);
    }
    close(fd);
    return -1;
}

static void release(struct recording_writer *w)
{
    block_queue_destroy(w->queue);
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        bytes_free(&w->pending[i]);
    bytes_free(&w->chunk_data);
    bytes_free(&w->chunk_lengths);
    if (w->fd >= 0)
        close(w->fd);
    pthread_mutex_destroy(&w->lock);
    free(w->path);
    free(w);
}

static struct recording_writer *new_writer(const char *path, struct err *e)
{
    struct recording_writer *w = calloc(1, sizeof *w);

    if (w)
        w->path = strdup(path);
    if (w && w->path) {
        pthread_mutex_init(&w->lock, NULL);
        return w;
    }
    free(w);
    err_set(e, STATUS_ERROR, "out of memory");
    return NULL;
}

struct recording_writer *writer_create(const char *path, bool overwrite, struct err *e)
{
    struct recording_writer *w = new_writer(path, e);
    uint8_t header[FILE_HEADER_BYTES];

    if (!w)
        return NULL;
    w->fd = open_file(path, overwrite, e);
    if (w->fd < 0) {
        release(w);
        return NULL;
    }
    file_header_encode(header, RECORDING_VERSION);
    errno = ENOSPC; /* the cause of a short write */
    if (write(w->fd, header, sizeof header) != sizeof header)
        system_error(e, "write", path);
    else
        w->queue = block_queue_start(w->fd, w->path, RECORDING_VERSION, sizeof header, e);
    if (!w->queue) {
        unlink(path);
        release(w);
        return NULL;
    }
    return w;
}

/* ---- a finished recording ---- */

static int not_finished(const char *path, struct err *e)
{
    return err_set(e, STATUS_BAD_RECORDING,
                   "cannot add to %s: it is no recording that was finished", path);
}

/* Take one block that is there into the totals. */
static void resume(struct recording_writer *w, const uint8_t *header, const struct block_header *h)
{
    block_queue_resume(w->queue, header, h);
    if (h->type == BLOCK_STREAM)
        w->totals[h->stream] += h->raw_len;
    else if (h->type == BLOCK_CHUNKS)
        w->chunks += h->items;
    else if (h->type == BLOCK_EPOCH)
        w->epochs++;
}

/* The header at `at`; false when none can be there, or its block is cut off. */
static bool read_header(const struct recording_writer *w, uint64_t at, uint64_t size,
                        uint8_t header[BLOCK_HEADER_BYTES], struct block_header *h)
{
    return size - at >= BLOCK_HEADER_BYTES &&
           pread(w->fd, header, BLOCK_HEADER_BYTES, (off_t)at) == BLOCK_HEADER_BYTES &&
           block_header_decode(h, header) && !block_header_fault(h) &&
           h->stored_len <= size - at - BLOCK_HEADER_BYTES;
}

/* From header to header to the end mark, w->reopened_size. */
static int resume_all(struct recording_writer *w, struct end_record *end, struct err *e)
{
    uint8_t header[BLOCK_HEADER_BYTES], raw[END_RAW_BYTES];
    uint64_t at = FILE_HEADER_BYTES;
    struct block_header h = {0};

    for (uint32_t ordinal = 0; at < w->reopened_size; ordinal++) {
        if (!read_header(w, at, w->reopened_size, header, &h) || h.ordinal != ordinal)
            return not_finished(w->path, e);
        resume(w, header, &h);
        at += BLOCK_HEADER_BYTES + (uint64_t)h.stored_len;
    }
    if (at != w->reopened_size || h.type != BLOCK_END ||
        pread(w->fd, raw, sizeof raw, (off_t)(at - sizeof raw)) != sizeof raw)
        return not_finished(w->path, e);
    end_record_decode(end, raw);
    return 0;
}

/* Cut off what an addition that was interrupted has left behind the last end mark, as readers pass
 * over it. Returns the size then. */
static uint64_t cut_remains(const struct recording_writer *w, uint64_t size)
{
    const uint64_t end_bytes = BLOCK_HEADER_BYTES + END_RAW_BYTES;
    uint8_t header[BLOCK_HEADER_BYTES];
    uint64_t at = FILE_HEADER_BYTES, finished = 0;
    struct block_header h;

    if (size < at + end_bytes ||
        (read_header(w, size - end_bytes, size, header, &h) && h.type == BLOCK_END))
        return size;
    while (read_header(w, at, size, header, &h)) {
        at += BLOCK_HEADER_BYTES + (uint64_t)h.stored_len;
        if (h.type == BLOCK_END)
            finished = at;
    }
    return finished && ftruncate(w->fd, (off_t)finished) == 0 ? finished : size;
}

struct recording_writer *writer_reopen(const char *path, struct end_record *end, struct err *e)
{
    struct recording_writer *w = new_writer(path, e);
    uint8_t header[FILE_HEADER_BYTES];

    if (!w)
        return NULL;
    w->meta_put = true;
    w->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    const bool taken = w->fd >= 0 && (getenv(RECORDING_TAKEN_VARIABLE) ||
                                      (flock(w->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK));
    /* What another one adds is there only when it has let go. */
    off_t size = w->fd < 0 ? -1 : lseek(w->fd, 0, SEEK_END);
    if (size < 0)
        system_error(e, "write to", path);
    else if (taken)
        err_set(e, STATUS_ERROR, "%s is being written by another dittovm", path);
    else if (pread(w->fd, header, sizeof header, 0) != sizeof header || !file_header_valid(header))
        not_finished(path, e);
    else {
        w->reopened_size = cut_remains(w, (uint64_t)size);
        if (lseek(w->fd, (off_t)w->reopened_size, SEEK_SET) >= 0)
            w->queue =
                block_queue_start(w->fd, w->path, file_header_version(header), w->reopened_size, e);
        else
            system_error(e, "write to", path);
    }
    if (!w->queue || resume_all(w, end, e) < 0) {
        release(w);
        return NULL;
    }
    return w;
}

/* Nothing was added after all. */
static void undo_reopening(struct recording_writer *w)
{
    if (w->reopened_size && ftruncate(w->fd, (off_t)w->reopened_size) < 0)
        return; /* readers pass over what is there */
}

int writer_error(struct recording_writer *w, struct err *e)
{
    if (block_queue_error(w->queue, e))
        return -1;
    pthread_mutex_lock(&w->lock);
    const bool full = w->chunks_full;
    pthread_mutex_unlock(&w->lock);
    if (full)
        return err_set(e, STATUS_ERROR,
                       "cannot add to %s: it holds as many different pages as its format allows",
                       w->path);
    return 0;
}

int writer_meta(struct recording_writer *w, const char *json, size_t len, struct err *e)
{
    struct bytes raw = {0};

    assert(!w->meta_put && !w->since_epoch && !w->epochs);
    if (len == 0 || len > BLOCK_MAX_RAW)
        return err_set(e, STATUS_ERROR,
                       "the machine's description has %zu bytes; a recording holds 1 to %u", len,
                       BLOCK_MAX_RAW);
    bytes_put(&raw, json, len);
    w->meta_put = true;
    if (block_queue_put(w->queue, BLOCK_META, 0, 0, &raw))
        return writer_error(w, e);
    return 0;
}

static int seal_stream(struct recording_writer *w, unsigned stream)
{
    if (!w->pending[stream].len)
        return 0;
    return block_queue_put(w->queue, BLOCK_STREAM, stream, 0, &w->pending[stream]);
}

int writer_put(struct recording_writer *w, unsigned stream, const void *data, size_t len)
{
    const uint8_t *at = data;
    int rc = 0;

    assert(w->meta_put && stream < STREAM_COUNT);
    pthread_mutex_lock(&w->lock);
    struct bytes *b = &w->pending[stream];
    w->totals[stream] += len;
    w->since_epoch += len;
    while (len && rc == 0) {
        size_t n = STREAM_FILL - b->len < len ? STREAM_FILL - b->len : len;
        bytes_put(b, at, n);
        at += n;
        len -= n;
        if (b->len == STREAM_FILL)
            rc = seal_stream(w, stream);
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

static int seal_chunks(struct recording_writer *w)
{
    unsigned items = w->chunk_items;

    if (!items)
        return 0;
    bytes_put(&w->chunk_data, w->chunk_lengths.data, w->chunk_lengths.len);
    bytes_clear(&w->chunk_lengths);
    w->chunk_items = 0;
    return block_queue_put(w->queue, BLOCK_CHUNKS, 0, items, &w->chunk_data);
}

static uint64_t put_chunk(struct recording_writer *w, const void *data, size_t len)
{
    if (w->chunks == CHUNK_MAX_ID) {
        w->chunks_full = true;
        return 0;
    }
    bytes_put(&w->chunk_data, data, len);
    bytes_put_u16(&w->chunk_lengths, (uint16_t)len);
    w->chunk_items++;
    w->since_epoch += len;
    uint64_t id = ++w->chunks;
    if (w->chunk_data.len >= CHUNK_FILL || w->chunk_items == BLOCK_MAX_ITEMS)
        seal_chunks(w); /* a failure is remembered */
    return id;
}

uint64_t writer_put_chunk(struct recording_writer *w, const void *data, size_t len)
{
    assert(w->meta_put && len >= 1 && len <= CHUNK_MAX_BYTES);
    pthread_mutex_lock(&w->lock);
    const uint64_t id = put_chunk(w, data, len);
    pthread_mutex_unlock(&w->lock);
    return id;
}

void writer_wait_for_room(struct recording_writer *w)
{
    block_queue_wait_for_room(w->queue);
}

static void put_epoch(struct recording_writer *w)
{
    struct bytes raw = {0};
    unsigned streams = 0;

    /* Chunks first: what a stream refers to then stands before it in the file. */
    seal_chunks(w);
    for (unsigned i = 0; i < STREAM_COUNT; i++) {
        seal_stream(w, i);
        if (w->totals[i])
            streams = i + 1;
    }
    bytes_put_varint(&raw, ++w->epochs);
    bytes_put_varint(&raw, w->chunks);
    bytes_put_varint(&raw, streams);
    for (unsigned i = 0; i < streams; i++)
        bytes_put_varint(&raw, w->totals[i]);
    block_queue_put(w->queue, BLOCK_EPOCH, 0, 0, &raw);
    w->since_epoch = 0;
}

int writer_epoch(struct recording_writer *w, struct err *e)
{
    assert(w->meta_put);
    pthread_mutex_lock(&w->lock);
    if (w->since_epoch || !w->epochs)
        put_epoch(w);
    pthread_mutex_unlock(&w->lock);
    return writer_error(w, e);
}

uint64_t writer_pending(struct recording_writer *w)
{
    pthread_mutex_lock(&w->lock);
    const uint64_t pending = w->since_epoch;
    pthread_mutex_unlock(&w->lock);
    return pending;
}

uint64_t writer_file_size(struct recording_writer *w)
{
    return block_queue_offset(w->queue);
}

uint64_t writer_tell(const struct recording_writer *w, unsigned stream)
{
    assert(stream < STREAM_COUNT);
    return w->totals[stream];
}

uint64_t writer_chunks(const struct recording_writer *w)
{
    return w->chunks;
}

int writer_finish(struct recording_writer *w, uint32_t reason_code, const char *reason,
                  struct err *e)
{
    struct end_record end = {.reason_code = reason_code};

    int rc = writer_epoch(w, e);
    if (!rc) {
        memcpy(end.reason, reason, strnlen(reason, END_REASON_BYTES));
        end.epochs = w->epochs;
        end.chunks = w->chunks;
        rc = block_queue_finish(w->queue, &end, e);
    }
    if (rc)
        undo_reopening(w);
    /* Some network file systems report a full disk only when the file is closed. */
    int closed = close(w->fd);
    w->fd = -1;
    if (!rc && closed)
        rc = err_set(e, STATUS_ERROR, "cannot write %s: %s; check it with dittovm verify", w->path,
                     strerror(errno));
    release(w);
    return rc;
}

void writer_abort(struct recording_writer *w)
{
    if (!w)
        return;
    if (!block_queue_replayable(w->queue))
        unlink(w->path);
    block_queue_destroy(w->queue);
    w->queue = NULL;
    undo_reopening(w);
    release(w);
}
