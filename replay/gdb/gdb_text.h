#ifndef REPLAY_GDB_GDB_TEXT_H
#define REPLAY_GDB_GDB_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* Hexadecimal text, of which the packets consist. */

int gdb_hex_digit(int c); /* -1: it is none */

/* 1 to 16 digits at *p, which moves behind them; false, and *p is undefined, when there are none or
 * more. */
bool gdb_hex_number(const char **p, uint64_t *value);

/* Bytes as pairs of digits. gdb_unhex(): false when the text is something else. */
void gdb_put_hex(struct bytes *out, const void *data, size_t len);
bool gdb_unhex(struct bytes *out, const char *text);

void gdb_put_text(struct bytes *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* If *p begins with word, move behind it. */
bool gdb_take(const char **p, const char *word);

#endif
