#ifndef BASE_BITMAP_H
#define BASE_BITMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bitmaps of 64-bit words, bit 0 the lowest of the first one, as KVM's of pages are. */

static inline size_t bitmap_words(uint64_t bits)
{
    return (bits + 63) / 64;
}

static inline void bitmap_set(uint64_t *bitmap, uint64_t bit)
{
    bitmap[bit / 64] |= 1ull << bit % 64;
}

static inline bool bitmap_has(const uint64_t *bitmap, uint64_t bit)
{
    return bitmap[bit / 64] >> bit % 64 & 1;
}

/* The next bit from *bit on, of so many words, that is set; false: none. */
static inline bool bitmap_next(const uint64_t *bitmap, size_t words, uint64_t *bit)
{
    for (size_t word = *bit / 64; word < words; word++) {
        uint64_t bits = bitmap[word];
        if (word == *bit / 64)
            bits &= ~0ull << *bit % 64;
        if (!bits)
            continue;
        *bit = word * 64 + (unsigned)__builtin_ctzll(bits);
        return true;
    }
    return false;
}

#endif
