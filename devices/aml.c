#include "devices/aml.h"

#include <assert.h>
#include <string.h>

#define ZERO_OP    0x00
#define ONE_OP     0x01
#define NAME_OP    0x08
#define BYTE_OP    0x0a
#define WORD_OP    0x0b
#define DWORD_OP   0x0c
#define SCOPE_OP   0x10
#define BUFFER_OP  0x11
#define PACKAGE_OP 0x12
#define EXT_OP     0x5b
#define DEVICE_OP  0x82 /* after EXT_OP */

static void insert(struct bytes *out, size_t at, const void *data, size_t len)
{
    bytes_reserve(out, len);
    memmove(out->data + at + len, out->data + at, out->len - at);
    memcpy(out->data + at, data, len);
    out->len += len;
}

/* The length of a term begun at begin, which counts the bytes of the length itself too (20.2.4). */
void aml_end(struct bytes *out, size_t begin)
{
    size_t body = out->len - begin;
    uint8_t encoded[4];

    if (body + 1 <= 0x3f) {
        encoded[0] = (uint8_t)(body + 1);
        insert(out, begin, encoded, 1);
        return;
    }
    unsigned more = 1; /* bytes after the first, which holds the low four bits and their number */
    while ((body + 1 + more) >> (4 + 8 * more))
        more++;
    assert(more <= 3);
    size_t length = body + 1 + more;
    encoded[0] = (uint8_t)(more << 6 | (length & 15));
    for (unsigned i = 0; i < more; i++)
        encoded[1 + i] = (uint8_t)(length >> (4 + 8 * i));
    insert(out, begin, encoded, 1 + more);
}

void aml_name_string(struct bytes *out, const char *name)
{
    size_t len = strlen(name);

    assert(len == 4 || (len == 5 && *name == '\\'));
    bytes_put(out, name, len);
}

void aml_name(struct bytes *out, const char *name)
{
    bytes_put_u8(out, NAME_OP);
    aml_name_string(out, name);
}

void aml_integer(struct bytes *out, uint32_t value)
{
    if (value <= 1) {
        bytes_put_u8(out, value ? ONE_OP : ZERO_OP);
    } else if (value <= UINT8_MAX) {
        bytes_put_u8(out, BYTE_OP);
        bytes_put_u8(out, (uint8_t)value);
    } else if (value <= UINT16_MAX) {
        bytes_put_u8(out, WORD_OP);
        bytes_put_u16(out, (uint16_t)value);
    } else {
        bytes_put_u8(out, DWORD_OP);
        bytes_put_u32(out, value);
    }
}

static uint32_t hex_digit(char c)
{
    assert((c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'));
    return (uint32_t)(c <= '9' ? c - '0' : c - 'A' + 10);
}

/* Five bits a letter and four a digit, the whole stored highest byte first (19.6.36). */
void aml_eisa_id(struct bytes *out, const char *id)
{
    uint32_t value = 0;

    assert(strlen(id) == 7);
    for (unsigned i = 0; i < 3; i++) {
        assert(id[i] >= 'A' && id[i] <= 'Z');
        value = value << 5 | (uint32_t)(id[i] - 'A' + 1);
    }
    for (unsigned i = 3; i < 7; i++)
        value = value << 4 | hex_digit(id[i]);
    bytes_put_u8(out, DWORD_OP);
    bytes_put_u32(out, __builtin_bswap32(value));
}

size_t aml_begin_scope(struct bytes *out, const char *name)
{
    bytes_put_u8(out, SCOPE_OP);
    size_t begin = out->len;
    aml_name_string(out, name);
    return begin;
}

size_t aml_begin_device(struct bytes *out, const char *name)
{
    bytes_put_u8(out, EXT_OP);
    bytes_put_u8(out, DEVICE_OP);
    size_t begin = out->len;
    aml_name_string(out, name);
    return begin;
}

size_t aml_begin_package(struct bytes *out, uint8_t elements)
{
    bytes_put_u8(out, PACKAGE_OP);
    size_t begin = out->len;
    bytes_put_u8(out, elements);
    return begin;
}

size_t aml_begin_resources(struct bytes *out)
{
    bytes_put_u8(out, BUFFER_OP);
    return out->len;
}

void aml_end_resources(struct bytes *out, size_t begin)
{
    bytes_put_u8(out, 0x79); /* end tag */
    bytes_put_u8(out, 0);    /* no checksum */

    struct bytes size = {0};
    aml_integer(&size, (uint32_t)(out->len - begin));
    insert(out, begin, size.data, size.len);
    bytes_free(&size);
    aml_end(out, begin);
}

void aml_io(struct bytes *out, uint16_t base, uint8_t length)
{
    bytes_put_u8(out, 0x47);
    bytes_put_u8(out, 1); /* decodes 16 bits */
    bytes_put_u16(out, base);
    bytes_put_u16(out, base);
    bytes_put_u8(out, 1);
    bytes_put_u8(out, length);
}

/* Resource type 0 is memory, 1 ports, 2 bus numbers. */
static void window_header(struct bytes *out, uint8_t tag, uint16_t body, uint8_t type,
                          uint8_t type_flags)
{
    bytes_put_u8(out, tag);
    bytes_put_u16(out, body);
    bytes_put_u8(out, type);
    bytes_put_u8(out, 0x0c); /* both ends fixed, decoded positively, produced for the bus */
    bytes_put_u8(out, type_flags);
}

static void word_window(struct bytes *out, uint8_t type, uint8_t flags, uint16_t first,
                        uint16_t last)
{
    assert(first <= last && (first || last < UINT16_MAX));
    window_header(out, 0x88, 13, type, flags);
    bytes_put_u16(out, 0); /* granularity */
    bytes_put_u16(out, first);
    bytes_put_u16(out, last);
    bytes_put_u16(out, 0); /* translation */
    bytes_put_u16(out, (uint16_t)(last - first + 1));
}

void aml_bus_window(struct bytes *out, uint16_t first, uint16_t last)
{
    word_window(out, 2, 0, first, last);
}

void aml_io_window(struct bytes *out, uint16_t first, uint16_t last)
{
    word_window(out, 1, 0x03, first, last); /* ISA and other ports */
}

void aml_memory_window(struct bytes *out, uint32_t first, uint32_t last)
{
    assert(first <= last && (first || last < UINT32_MAX));
    window_header(out, 0x87, 23, 0, 0x01); /* read and write, not cacheable */
    bytes_put_u32(out, 0);
    bytes_put_u32(out, first);
    bytes_put_u32(out, last);
    bytes_put_u32(out, 0);
    bytes_put_u32(out, last - first + 1);
}
