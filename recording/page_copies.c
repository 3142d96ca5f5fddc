#include "recording/page_copies.h"

#include <stdio.h>
#include <stdlib.h>

/* What is kept for the next time, once all are stored. */
#define KEPT_PAGES 4096u

static void *grow(void *old, size_t bytes)
{
    void *p = realloc(old, bytes);

    if (!p) {
        fprintf(stderr, "dittovm: out of memory\n");
        abort();
    }
    return p;
}

uint8_t *page_copies_add(struct page_copies *c, uint32_t *to)
{
    if (c->count == c->capacity) {
        c->capacity += c->capacity / 2 + 256;
        c->data = grow(c->data, c->capacity * CHUNK_MAX_BYTES);
        c->to = grow(c->to, c->capacity * sizeof(uint32_t *));
    }
    c->to[c->count] = to;
    return c->data + c->count++ * CHUNK_MAX_BYTES;
}

size_t page_copies_store(struct page_copies *c, struct chunk_store *chunks, size_t most)
{
    for (; most && c->stored < c->count; most--, c->stored++)
        *c->to[c->stored] = (uint32_t)chunks_add(chunks, c->data + c->stored * CHUNK_MAX_BYTES);
    if (c->stored < c->count)
        return c->count - c->stored;
    if (c->capacity > KEPT_PAGES)
        page_copies_free(c);
    c->count = c->stored = 0;
    return 0;
}

void page_copies_free(struct page_copies *c)
{
    free(c->data);
    free(c->to);
    *c = (struct page_copies){0};
}
