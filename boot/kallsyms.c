#include "boot/kallsyms.h"

#include <assert.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "boot/boot_elf.h"

/*
 * What the table is made of. None of its parts is named in a stripped file, so they are found from
 * each other, starting from the one that can be recognised, the token table:
 *
 *     Linux up to 6.3:  offsets, relative_base, num_syms, names, markers, [seqs_of_names],
 *                       token_table, token_index
 *     Linux 6.4 on:     num_syms, names, markers, token_table, token_index, offsets,
 *                       relative_base, seqs_of_names
 *     Linux 7.x:        the same without relative_base: each offset counts from where it lies
 * itself
 *
 * names:   per symbol, ULEB128 length (one byte before 6.1), then that many token numbers; the
 *          expansion is the type letter followed by the name.
 * markers: offset of every 256th name in names. Each part is aligned to 8 bytes; to 4 where
 *          relative_base, the only part with 8-byte numbers, is gone.
 */
#define TOKENS        256u
#define MARKER_EVERY  256u
#define TOKEN_LEN_MAX 512u
#define SYMBOLS_MIN   16u
#define SYMBOLS_MAX   (4u << 20)
#define NAME_LEN_MAX  512u               /* KSYM_NAME_LEN since 6.1 */
#define NAMES_LEN_MAX ((size_t)64 << 20) /* how far the names may be ahead of the token table */
#define POOL_LEN_MAX  ((size_t)512 << 20)
#define SEARCH_STEPS  (64u << 20) /* tokens and names looked at before the search is given up */
#define KERNEL_HALF   0xffff800000000000ull

struct kallsyms {
    size_t count;
    uint64_t *addresses; /* ascending */
    uint32_t *names;     /* offsets into pool, of the type letter */
    char *pool;
};

struct search {
    struct elf_view elf;
    const uint8_t *bytes;
    size_t len;
    size_t align; /* of each part */
    size_t token_table;
    size_t token_index;
    size_t token_index_end;
    uint16_t token_at[TOKENS];
    size_t num_syms_at;
    uint32_t num_syms;
    size_t names, names_end;
    uint32_t steps;
};

static uint32_t u32_at(const struct search *s, size_t at)
{
    assert(at <= s->len && s->len - at >= 4);

    struct cursor c = cursor_of(s->bytes + at, 4);

    return cursor_u32(&c);
}

static uint64_t u64_at(const struct search *s, size_t at)
{
    assert(at <= s->len && s->len - at >= 8);

    struct cursor c = cursor_of(s->bytes + at, 8);

    return cursor_u64(&c);
}

static size_t align_part(const struct search *s, size_t at)
{
    return (at + s->align - 1) & ~(s->align - 1);
}

/* Is there a token table at `at`, with its index behind it? Fills the search when there is. */
static bool token_table_at(struct search *s, size_t at)
{
    size_t end = at;

    s->steps += TOKENS;
    for (unsigned i = 0; i < TOKENS; i++) {
        const size_t left = s->len - end;
        const uint8_t *nul = memchr(s->bytes + end, 0, left < TOKEN_LEN_MAX ? left : TOKEN_LEN_MAX);

        if (!nul || nul == s->bytes + end || end - at > UINT16_MAX)
            return false;
        s->token_at[i] = (uint16_t)(end - at);
        end = (size_t)(nul - s->bytes) + 1;
    }

    size_t index = align_part(s, end);

    if (index > s->len || s->len - index < TOKENS * 2)
        return false;
    for (unsigned i = 0; i < TOKENS; i++)
        if (s->bytes[index + 2 * i] != (s->token_at[i] & 0xff) ||
            s->bytes[index + 2 * i + 1] != s->token_at[i] >> 8)
            return false;
    s->token_table = at;
    s->token_index = index;
    s->token_index_end = index + TOKENS * 2;
    return true;
}

/*
 * A character that occurs in names has its own code as token number, and digits all occur: look for
 * "0", "1", ... "9" as tokens 48 to 57, then go back 48 strings to the first.
 */
static bool find_token_table(struct search *s)
{
    static const char digits[] = "0\0001\0002\0003\0004\0005\0006\0007\0008\0009";
    const uint8_t *from = s->bytes, *end = s->bytes + s->len;

    while (s->steps < SEARCH_STEPS) {
        const uint8_t *hit = memmem(from, (size_t)(end - from), digits, sizeof(digits));

        if (!hit)
            return false;

        size_t start = (size_t)(hit - s->bytes);
        unsigned back = 0;

        /* start is always the first byte of a string; the byte ahead of it ends another. */
        while (back < '0' - 1 && start > 1 && s->bytes[start - 1] == 0) {
            const size_t behind = --start;
            while (start > 0 && s->bytes[start - 1] != 0 && behind - start < TOKEN_LEN_MAX)
                start--;
            back++;
            s->steps++;
        }
        /* No NUL need come before token 0; but its start is aligned. */
        for (size_t len = 1; back == '0' - 1 && len < TOKEN_LEN_MAX && start > len; len++)
            if ((start - 1 - len) % s->align == 0 && token_table_at(s, start - 1 - len))
                return true;
        from = hit + 1;
    }
    return false;
}

/* The length of the name at *at, which is moved to its first token; 0 when it is no name. */
static unsigned name_length(const struct search *s, size_t *at, size_t end)
{
    unsigned len;

    if (*at >= end)
        return 0;
    len = s->bytes[(*at)++];
    if (len & 0x80) {
        if (*at >= end)
            return 0;
        len = (len & 0x7f) | (unsigned)s->bytes[(*at)++] << 7;
    }
    return len <= NAME_LEN_MAX && len <= end - *at ? len : 0;
}

static const char *token(const struct search *s, uint8_t number)
{
    return (const char *)s->bytes + s->token_table + s->token_at[number];
}

/* Are there num_syms names at s->names, and behind them the markers that go with them? */
static bool names_fit(struct search *s)
{
    size_t limit = s->token_table, at = s->names;

    for (uint32_t i = 0; i < s->num_syms; i++) {
        unsigned len = name_length(s, &at, limit);

        if (s->steps++ >= SEARCH_STEPS || len == 0)
            return false;

        char type = *token(s, s->bytes[at]);

        if (!isalpha((unsigned char)type) && type != '?')
            return false;
        at += len;
    }
    s->names_end = at;

    size_t marker = align_part(s, at);

    at = s->names;
    for (uint32_t i = 0; i < s->num_syms; i++) {
        if (i % MARKER_EVERY == 0) {
            if (marker > limit || limit - marker < 4 || u32_at(s, marker) != at - s->names)
                return false;
            marker += 4;
        }

        unsigned len = name_length(s, &at, limit);

        at += len;
    }
    return true;
}

static bool find_names(struct search *s)
{
    size_t lowest =
        s->token_table > NAMES_LEN_MAX ? align_part(s, s->token_table - NAMES_LEN_MAX) : 0;

    for (size_t at = s->token_table; at >= lowest + s->align && s->steps < SEARCH_STEPS;) {
        at -= s->align;
        s->num_syms = u32_at(s, at);
        if (s->num_syms < SYMBOLS_MIN || s->num_syms > SYMBOLS_MAX ||
            (s->align == 8 && u32_at(s, at + 4) != 0))
            continue;
        s->num_syms_at = at;
        s->names = at + s->align;
        if (names_fit(s))
            return true;
    }
    return false;
}

static bool find_table(struct search *s)
{
    for (s->align = 8; s->align >= 4; s->align /= 2)
        if (find_token_table(s) && find_names(s))
            return true;
    return false;
}

/*
 * CONFIG_KALLSYMS_BASE_RELATIVE, and with it (64-bit SMP up to 6.14)
 * CONFIG_KALLSYMS_ABSOLUTE_PERCPU: offsets that are not negative are absolute values, the others
 * count backwards from base - 1.
 */
static bool read_offsets(const struct search *s, size_t offsets, uint64_t base, uint64_t *out)
{
    bool absolute_percpu = false;

    if (base < KERNEL_HALF)
        return false;
    for (uint32_t i = 0; i < s->num_syms && !absolute_percpu; i++)
        absolute_percpu = (int32_t)u32_at(s, offsets + (size_t)i * 4) < 0;
    for (uint32_t i = 0; i < s->num_syms; i++) {
        uint32_t raw = u32_at(s, offsets + (size_t)i * 4);

        if (!absolute_percpu)
            out[i] = base + raw;
        else if ((int32_t)raw >= 0)
            out[i] = raw;
        else
            out[i] = base - 1 - (uint64_t)(int64_t)(int32_t)raw;
        if (i > 0 && out[i] < out[i - 1])
            return false;
    }
    return true;
}

static bool read_absolute(const struct search *s, size_t at, uint64_t *out)
{
    for (uint32_t i = 0; i < s->num_syms; i++) {
        out[i] = u64_at(s, at + (size_t)i * 8);
        if (i > 0 && out[i] < out[i - 1])
            return false;
    }
    return out[s->num_syms - 1] >= KERNEL_HALF;
}

/* Where the byte of the file at `offset` is loaded; 0 when it is not. */
static uint64_t loaded_at(const struct search *s, size_t offset)
{
    for (unsigned i = 0; i < elf_segment_count(&s->elf); i++) {
        Elf64_Phdr p = elf_segment(&s->elf, i);

        if (p.p_type == PT_LOAD && offset >= p.p_offset && offset - p.p_offset < p.p_filesz)
            return p.p_vaddr + (offset - p.p_offset);
    }
    return 0;
}

/* Offsets that count from where they lie. */
static bool read_place_relative(const struct search *s, size_t offsets, uint64_t *out)
{
    const uint64_t va = loaded_at(s, offsets);

    for (uint32_t i = 0; va && i < s->num_syms; i++) {
        const size_t at = (size_t)i * 4;

        out[i] = va + at + (uint64_t)(int64_t)(int32_t)u32_at(s, offsets + at);
        if (out[i] < (i > 0 ? out[i - 1] : KERNEL_HALF))
            return false;
    }
    return va != 0;
}

static bool read_addresses(const struct search *s, uint64_t *out)
{
    size_t size = align_part(s, (size_t)s->num_syms * 4);
    size_t behind = align_part(s, s->token_index_end);

    if (s->align == 4)
        return behind <= s->len && s->len - behind >= size && read_place_relative(s, behind, out);
    if (behind <= s->len && s->len - behind >= size + 8 &&
        read_offsets(s, behind, u64_at(s, behind + size), out))
        return true;
    if (s->num_syms_at >= size + 8 &&
        read_offsets(s, s->num_syms_at - 8 - size, u64_at(s, s->num_syms_at - 8), out))
        return true;
    size = (size_t)s->num_syms * 8;
    return s->num_syms_at >= size && read_absolute(s, s->num_syms_at - size, out);
}

/* Expand all names into one pool of strings. */
static bool read_names(const struct search *s, struct kallsyms *k)
{
    struct bytes pool = {0};
    size_t at = s->names;

    for (uint32_t i = 0; i < s->num_syms; i++) {
        unsigned len = name_length(s, &at, s->token_table);

        k->names[i] = (uint32_t)pool.len;
        for (unsigned j = 0; j < len; j++) {
            const char *text = token(s, s->bytes[at + j]);

            bytes_put(&pool, text, strlen(text));
        }
        bytes_put_u8(&pool, 0);
        at += len;
        if (pool.len > POOL_LEN_MAX) {
            bytes_free(&pool);
            return false;
        }
    }
    k->pool = (char *)pool.data;
    return true;
}

struct kallsyms *kallsyms_from_elf(const void *vmlinux, size_t len, struct err *e)
{
    struct search s = {.bytes = vmlinux, .len = len};

    if (elf_open(&s.elf, vmlinux, len, "no kernel symbols", e) < 0)
        return NULL;
    if (!find_table(&s)) {
        err_set(e, STATUS_ERROR,
                "no kernel symbols: the kernel has no kallsyms table of a known layout "
                "(CONFIG_KALLSYMS, Linux 5.0 to 7.2)");
        return NULL;
    }

    struct kallsyms *k = calloc(1, sizeof(*k));

    if (k) {
        k->count = s.num_syms;
        k->addresses = malloc(k->count * sizeof(*k->addresses));
        k->names = malloc(k->count * sizeof(*k->names));
    }
    if (!k || !k->addresses || !k->names) {
        err_set(e, STATUS_ERROR, "out of memory for kernel symbols");
        kallsyms_free(k);
        return NULL;
    }
    if (!read_addresses(&s, k->addresses) || !read_names(&s, k)) {
        err_set(e, STATUS_ERROR, "no kernel symbols: the kallsyms table's addresses make no sense");
        kallsyms_free(k);
        return NULL;
    }
    return k;
}

void kallsyms_free(struct kallsyms *k)
{
    if (!k)
        return;
    free(k->addresses);
    free(k->names);
    free(k->pool);
    free(k);
}

uint64_t kallsyms_address(const struct kallsyms *k, const char *name)
{
    for (size_t i = 0; i < k->count; i++)
        if (strcmp(k->pool + k->names[i] + 1, name) == 0)
            return k->addresses[i];
    return 0;
}

const char *kallsyms_name(const struct kallsyms *k, uint64_t addr, uint64_t *offset)
{
    size_t low = 0, high = k->count;

    /* The last symbol marks the end of the image; per-CPU symbols are not addresses. */
    if (addr < KERNEL_HALF || addr > k->addresses[k->count - 1])
        return NULL;
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (k->addresses[middle] <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || k->addresses[low - 1] < KERNEL_HALF)
        return NULL;
    low--;
    /* Of aliases, the first is the one the kernel's own traces show. */
    while (low > 0 && k->addresses[low - 1] == k->addresses[low])
        low--;
    if (offset)
        *offset = addr - k->addresses[low];
    return k->pool + k->names[low] + 1;
}

size_t kallsyms_count(const struct kallsyms *k)
{
    return k->count;
}

const char *kallsyms_symbol(const struct kallsyms *k, size_t i, uint64_t *address, char *type)
{
    assert(i < k->count);
    if (address)
        *address = k->addresses[i];
    if (type)
        *type = k->pool[k->names[i]];
    return k->pool + k->names[i] + 1;
}
