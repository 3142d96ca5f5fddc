#include "recording/order/order.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#define PIECE_BYTES (256u << 10)
#define ZLIB_LEVEL  6

const struct order_encoder *const order_encoders[ORDER_ENCODERS] = {
    &order_ditto, &order_leap, &order_jarec, &order_global, &order_levels,
};

static _Noreturn void no_memory(void)
{
    fprintf(stderr, "dittovm: out of memory\n");
    abort();
}

void *order_allocate(size_t size)
{
    void *memory = calloc(1, size);

    if (!memory)
        no_memory();
    return memory;
}

void order_log_init(struct order_log *log, unsigned vcpus)
{
    assert(vcpus >= 1 && vcpus <= MAX_VCPUS);
    *log = (struct order_log){.vcpus = vcpus, .prune = ORDER_PRUNE_ALL};
}

void order_log_free(struct order_log *log)
{
    for (unsigned i = 0; i < MAX_VCPUS; i++)
        bytes_free(&log->part[i]);
}

uint64_t order_log_bytes(const struct order_log *log)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < MAX_VCPUS; i++)
        sum += log->part[i].len;
    return sum;
}

uint64_t order_log_compressed(const struct order_log *log)
{
    const uLong room = compressBound(PIECE_BYTES);
    uint8_t *out = order_allocate(room);
    uint64_t sum = 0;

    for (unsigned i = 0; i < MAX_VCPUS; i++) {
        const struct bytes *part = &log->part[i];
        for (size_t at = 0; at < part->len; at += PIECE_BYTES) {
            const size_t len = part->len - at < PIECE_BYTES ? part->len - at : PIECE_BYTES;
            uLongf packed = room;
            if (compress2(out, &packed, part->data + at, len, ZLIB_LEVEL) != Z_OK)
                no_memory();
            /* A block that does not shrink is stored raw (recording/format.h). */
            sum += packed < len ? packed : len;
        }
    }
    free(out);
    return sum;
}

void order_record(const struct order_encoder *encoder, const struct access_list *list,
                  struct order_log *log)
{
    void *recording = encoder->record(log);

    assert(log->vcpus == list->vcpus);
    for (size_t i = 0; i < list->count; i++)
        encoder->access(recording, &list->at[i]);
    encoder->finish(recording);
}
