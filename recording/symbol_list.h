#ifndef RECORDING_SYMBOL_LIST_H
#define RECORDING_SYMBOL_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "recording/stream_reader.h"
#include "recording/symbol.h"

/* The symbols of the guest's kernel, out of a recording. */

/* Read the next one; s holds the one before, at first zeroes. 1; 0 at the end of the stream; -1
 * with *e when the stream makes no sense. */
int symbol_read(struct stream_reader *in, struct symbol *s, struct err *e);

/* "name+0x12" for the function that va lies in; "" when the recording does not know. */
void symbolize(const struct recording *r, uint64_t va, char *text, size_t size);

/* All of them, in order of address. */
struct symbol_entry {
    uint64_t address;
    uint32_t name; /* offset in names */
    char type;
};

struct symbol_list {
    struct symbol_entry *at;
    size_t count, capacity;
    struct bytes names; /* each ends in a NUL; the one at offset 0 is empty (as ELF has it) */
};

/* -1 with *e when they make no sense, or are more than any kernel has. A recording may have none.
 */
int symbol_list_load(struct symbol_list *list, const struct recording *r, struct err *e);
/* Append one; -1 when there are too many, or memory is exhausted. */
int symbol_list_add(struct symbol_list *list, const struct symbol *s);
void symbol_list_free(struct symbol_list *list);

#endif
