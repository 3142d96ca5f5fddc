#include "boot/kexec_image.h"

#include <stdlib.h>
#include <string.h>

/* What an entry of the list says of the page whose address it holds. */
#define IND_DESTINATION 1u /* the next source belongs there */
#define IND_INDIRECTION 2u /* the list goes on there */
#define IND_DONE        4u
#define IND_SOURCE      8u

/* How far around its entry purgatory is looked at; it has some 30 kB. */
#define AROUND_PAGES 32u
#define AROUND_BYTES (AROUND_PAGES * PAGE_BYTES)

/* A load of a register from memory near it: REX.W 8B /r. */
#define LOAD_BYTES 7u
#define JUMP_BYTES 6u

void kexec_image_sources(const struct guest_memory *m, const struct kexec_image *image,
                         uint64_t page, size_t count, uint64_t sources[])
{
    /* A list that does not end is no list: it has an entry a page, and some more. */
    uint64_t left = 2 * (m->size / PAGE_BYTES), entry = image->head, next = 0, destination = 0;

    for (size_t i = 0; i < count; i++)
        sources[i] = page + i * PAGE_BYTES;
    while (entry && !(entry & IND_DONE) && left--) {
        const uint64_t address = entry & ~(uint64_t)(PAGE_BYTES - 1);
        if (entry & IND_INDIRECTION) {
            next = address;
        } else if (entry & IND_DESTINATION) {
            destination = address;
        } else if (entry & IND_SOURCE) {
            if (destination >= page && (destination - page) / PAGE_BYTES < count)
                sources[(destination - page) / PAGE_BYTES] = address;
            destination += PAGE_BYTES;
        }
        const uint64_t *list = guest_memory_at(m, next, sizeof *list);
        if (!next || !list)
            break;
        entry = *list;
        next += sizeof *list;
    }
}

uint64_t kexec_image_source(const struct guest_memory *m, const struct kexec_image *image,
                            uint64_t at)
{
    const uint64_t page = at & ~(uint64_t)(PAGE_BYTES - 1);
    uint64_t source;

    kexec_image_sources(m, image, page, 1, &source);
    return source + (at - page);
}

static bool is_load(const uint8_t *code)
{
    return (code[0] == 0x48 || code[0] == 0x4c) && code[1] == 0x8b && (code[2] & 0xc7) == 5;
}

static bool is_jump(const uint8_t *code)
{
    static const uint8_t jump[] = {0xff, 0x25};

    _Static_assert(KEXEC_LOADS_BYTES == 3 * LOAD_BYTES, "so many are looked at");
    return !memcmp(code, jump, sizeof jump) && is_load(code - LOAD_BYTES) &&
           is_load(code - 2 * LOAD_BYTES) && is_load(code - 3 * LOAD_BYTES);
}

bool kexec_image_find_jump(const struct guest_memory *m, const struct kexec_image *image,
                           struct kexec_jump *out)
{
    const uint64_t page = image->start & ~(uint64_t)(PAGE_BYTES - 1);
    const uint64_t from = page > AROUND_BYTES ? page - AROUND_BYTES : 0;
    const size_t len = (size_t)(page - from) + AROUND_BYTES;
    uint64_t sources[2 * AROUND_PAGES];
    uint8_t *code = calloc(1, len);
    bool found = false;
    int32_t distance;

    kexec_image_sources(m, image, from, len / PAGE_BYTES, sources);
    for (size_t i = 0; code && i < len / PAGE_BYTES; i++) {
        const void *bytes = guest_memory_at(m, sources[i], PAGE_BYTES);
        if (bytes)
            memcpy(code + i * PAGE_BYTES, bytes, PAGE_BYTES);
    }
    for (size_t i = KEXEC_LOADS_BYTES; code && !found && i + JUMP_BYTES <= len; i++) {
        if (!is_jump(code + i))
            continue;
        memcpy(&distance, code + i + 2, sizeof distance);
        *out = (struct kexec_jump){from + i, from + i + JUMP_BYTES + (uint64_t)(int64_t)distance};
        found = true;
    }
    free(code);
    return found;
}
