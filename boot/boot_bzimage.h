#ifndef BOOT_BOOT_BZIMAGE_H
#define BOOT_BOOT_BZIMAGE_H

#include <asm/bootparam.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A compressed kernel has a magic and a size, at least. */
#define BOOT_PAYLOAD_MIN 8u
/* A vmlinux larger than this is refused: real ones are below 100 MiB. */
#define BOOT_VMLINUX_MAX ((size_t)512 << 20)

struct bzimage {
    struct setup_header header;
    const uint8_t *payload; /* inside the image */
    size_t payload_len;
    char version[128];
};

/* Does the file have the "HdrS" signature of a bzImage? */
bool bzimage_detect(const uint8_t *image, size_t len);

/* Check the setup header (boot.rst: 64-bit capable, protocol 2.12 or later) and find the payload.
 */
int bzimage_open(struct bzimage *bz, const uint8_t *image, size_t len, struct err *e);

/*
 * Decompress a bzImage payload (gzip, xz, zstd, lz4 or plain ELF). Its last four bytes are the size
 * of the result, which is allocated and given to the caller to free.
 */
int boot_decompress(const uint8_t *payload, size_t len, uint8_t **out, size_t *out_len,
                    struct err *e);

#endif
