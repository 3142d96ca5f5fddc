#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Read a whole regular file of at most `max` bytes into *data (the caller frees it; never NULL on
 * success). -1 with a one-line error that names the file. */
int file_read(const char *path, uint64_t max, uint8_t **data, size_t *len, struct err *e);
/* The same of what was opened, with O_NONBLOCK, as fd; -1, with errno: it could not be. fd is
 * closed whatever comes of it. */
int file_read_open(int fd, const char *path, uint64_t max, uint8_t **data, size_t *len,
                   struct err *e);

/* "256M", "1G", "1073741824": a size in bytes with an optional suffix K, M or G (powers of 1024).
 * -1 when the text is something else or overflows. */
int parse_size(const char *text, uint64_t *bytes);

/* An unsigned decimal number up to `max`; -1 when the text is something else. */
int parse_number(const char *text, uint64_t max, uint64_t *value);

#endif
