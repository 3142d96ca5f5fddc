/* Guest memory as the devices of a live machine see it. */
#include <string.h>

#include "recorder/recorder.h"

static int dma_peek(struct dma *dma, uint64_t gpa, void *data, size_t len)
{
    const struct recorded_dma *d = (struct recorded_dma *)dma;
    const void *from = guest_memory_at(d->memory, gpa, len);

    if (!from)
        return -1;
    memcpy(data, from, len);
    return 0;
}

static int dma_read(struct dma *dma, uint64_t gpa, void *data, size_t len)
{
    const struct recorded_dma *d = (struct recorded_dma *)dma;

    if (dma_peek(dma, gpa, data, len) < 0)
        return -1;
    if (d->recorder && len >= DMA_READ_MIN)
        recorder_dma(d->recorder, false, gpa, data, len);
    return 0;
}

static int dma_write(struct dma *dma, uint64_t gpa, const void *data, size_t len)
{
    struct recorded_dma *d = (struct recorded_dma *)dma;
    void *to = guest_memory_at(d->memory, gpa, len);

    if (!to)
        return -1;
    guest_memory_mark(d->memory, to, len);
    memcpy(to, data, len);
    if (d->recorder)
        recorder_dma(d->recorder, true, gpa, data, len);
    return 0;
}

void recorded_dma_init(struct recorded_dma *d, const struct guest_memory *m, struct recorder *r)
{
    *d = (struct recorded_dma){
        .dma = {.read = dma_read, .peek = dma_peek, .write = dma_write},
        .memory = m,
        .recorder = r,
    };
}
