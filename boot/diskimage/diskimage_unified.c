#include "boot/diskimage/diskimage_unified.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "boot/diskimage/diskimage_loader.h"

/* The PE format (Microsoft's "PE Format"): where headers are and how long. */
#define PE_HEADER_AT_AT 0x3cu
#define PE_MACHINE_X64  0x8664u
#define SECTION_NAME    8u

struct pe {
    const uint8_t *file;
    size_t len;
    size_t sections_at;
    unsigned sections;
};

/* A cursor over what is at an offset of the file, or over nothing. */
static struct cursor cursor_at(const uint8_t *file, size_t len, size_t at)
{
    return at <= len ? cursor_of(file + at, len - at) : cursor_of(file, 0);
}

static bool pe_open(struct pe *pe, const uint8_t *file, size_t len)
{
    if (len < PE_HEADER_AT_AT + 4 || memcmp(file, "MZ", 2) != 0)
        return false;

    struct cursor c = cursor_at(file, len, PE_HEADER_AT_AT);
    const size_t header_at = cursor_u32(&c);
    char signature[4] = {0};

    c = cursor_at(file, len, header_at);
    cursor_get(&c, signature, sizeof(signature));
    const unsigned machine = cursor_u16(&c);
    const unsigned sections = cursor_u16(&c);
    cursor_take(&c, 12);
    const unsigned optional_len = cursor_u16(&c);
    cursor_take(&c, 2);
    if (c.bad || memcmp(signature, "PE\0\0", 4) != 0 || machine != PE_MACHINE_X64)
        return false;
    *pe = (struct pe){file, len, header_at + 24 + optional_len, sections};
    return true;
}

/* The first section of that name; what is behind `.profile` is for other ways to boot. */
static bool pe_section(const struct pe *pe, const char *name, struct text_span *out)
{
    struct cursor c = cursor_at(pe->file, pe->len, pe->sections_at);

    for (unsigned i = 0; i < pe->sections; i++) {
        char found[SECTION_NAME + 1] = {0};

        cursor_get(&c, found, SECTION_NAME);
        const uint32_t len = cursor_u32(&c);
        cursor_take(&c, 4);
        const uint32_t len_in_file = cursor_u32(&c), at = cursor_u32(&c);
        cursor_take(&c, 16);
        if (c.bad || strcmp(found, ".profile") == 0)
            return false;
        if (strcmp(found, name) != 0)
            continue;
        /* A section ends with zeroes in the file, or where it is longer in memory. */
        out->len = len < len_in_file ? len : len_in_file;
        if (at > pe->len || out->len > pe->len - at)
            return false;
        out->at = (const char *)pe->file + at;
        return true;
    }
    return false;
}

/* A line of text: without what ends it, and nothing but characters that are seen in it. */
static bool copy_command_line(char *to, size_t size, struct text_span text)
{
    const char *const end = memchr(text.at, 0, text.len);

    if (end)
        text.len = (size_t)(end - text.at);
    while (text.len && (unsigned char)text.at[text.len - 1] <= ' ')
        text.len--;
    if (text.len >= size)
        return false;
    for (size_t i = 0; i < text.len; i++)
        to[i] = (char)((unsigned char)text.at[i] < ' ' ? ' ' : text.at[i]);
    to[text.len] = 0;
    return true;
}

bool unified_parse(const uint8_t *file, size_t len, struct disk_boot *out)
{
    struct pe pe;
    struct text_span kernel, part;
    char command_line[sizeof(out->command_line)] = "";
    struct bytes copies[2] = {{0}, {0}};

    if (!pe_open(&pe, file, len) || !pe_section(&pe, ".linux", &kernel) || kernel.len == 0)
        return false;
    if (pe_section(&pe, ".cmdline", &part) &&
        !copy_command_line(command_line, sizeof(command_line), part))
        return false;
    bytes_put(&copies[0], kernel.at, kernel.len);
    if (pe_section(&pe, ".initrd", &part) && part.len > 0)
        bytes_put(&copies[1], part.at, part.len);
    memcpy(out->command_line, command_line, sizeof(command_line));
    out->kernel = copies[0].data;
    out->kernel_len = copies[0].len;
    out->initrd = copies[1].data;
    out->initrd_len = copies[1].len;
    return true;
}
