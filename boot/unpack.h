#ifndef BOOT_UNPACK_H
#define BOOT_UNPACK_H

#include <stdbool.h>

#include "base/bytes.h"

/*
 * Compressed data of somebody else's, kernels and modules: the first stream, frame or member of
 * in[0, len), appended to *out. What is behind it is ignored. False: it is damaged or cut, gives
 * more than `max` bytes, or wants too much memory (xz: more than 256 MiB); *out is the caller's to
 * free then, too.
 */
bool unpack_gzip(const uint8_t *in, size_t len, size_t max, struct bytes *out);
bool unpack_xz(const uint8_t *in, size_t len, size_t max, struct bytes *out);
bool unpack_zstd(const uint8_t *in, size_t len, size_t max, struct bytes *out);

#endif
