#ifndef MMU_DMA_H
#define MMU_DMA_H

#include <stddef.h>
#include <stdint.h>

/*
 * How a device touches guest memory: the only way. The recorder stands behind it in a recording
 * (what is written becomes an event, what is read is folded into the digest of outputs), so a
 * device must never keep a pointer into guest memory.
 *
 * peek() is read() of what is no output: a device that follows its rings shows what it finds there
 * in what it then does. All return 0, or -1 when [gpa, gpa + len) is not wholly RAM: then nothing
 * was transferred.
 */
struct dma {
    int (*read)(struct dma *dma, uint64_t gpa, void *data, size_t len);
    int (*peek)(struct dma *dma, uint64_t gpa, void *data, size_t len);
    int (*write)(struct dma *dma, uint64_t gpa, const void *data, size_t len);
};

#endif
