#ifndef RECORDING_SYMBOL_H
#define RECORDING_SYMBOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

/*
 * The records of STREAM_SYMBOLS (recording/streams.h). A symbol's type is the letter that nm and
 * /proc/kallsyms show: t T text, d D b B r R data, a A absolute (per-CPU variables: their offset),
 * w W v V weak; capitals are global.
 */
#define SYMBOL_NAME_MAX 511u

struct symbol {
    uint64_t address;
    char type;
    char name[SYMBOL_NAME_MAX + 1];
};

/* Whether the letter says that it is a function. */
bool symbol_is_function(char type);

/*
 * Append a record; *last is the address of the one before, at first 0. A symbol that a reader would
 * refuse (no name, a strange character in it, out of order) is left out.
 */
void symbol_encode(struct bytes *out, uint64_t *last, uint64_t address, char type,
                   const char *name);

/* Whether every field, of a record that was read, is one that symbol_encode writes. */
bool symbol_valid(const struct symbol *s, uint64_t last);

#endif
