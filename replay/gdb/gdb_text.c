#include "replay/gdb/gdb_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int gdb_hex_digit(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool gdb_hex_number(const char **p, uint64_t *value)
{
    unsigned digits = 0;

    for (*value = 0; gdb_hex_digit(**p) >= 0; (*p)++) {
        if (digits++ == 16)
            return false;
        *value = *value << 4 | (uint64_t)gdb_hex_digit(**p);
    }
    return digits > 0;
}

void gdb_put_hex(struct bytes *out, const void *data, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *p = data;

    bytes_reserve(out, 2 * len);
    for (size_t i = 0; i < len; i++) {
        bytes_put_u8(out, (uint8_t)digits[p[i] >> 4]);
        bytes_put_u8(out, (uint8_t)digits[p[i] & 15]);
    }
}

bool gdb_unhex(struct bytes *out, const char *text)
{
    for (; *text; text += 2) {
        int high = gdb_hex_digit(text[0]), low = gdb_hex_digit(text[1]);
        if (high < 0 || low < 0)
            return false;
        bytes_put_u8(out, (uint8_t)(high << 4 | low));
    }
    return true;
}

void gdb_put_text(struct bytes *out, const char *format, ...)
{
    char text[1200];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n > 0)
        bytes_put(out, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

bool gdb_take(const char **p, const char *word)
{
    size_t len = strlen(word);

    if (strncmp(*p, word, len))
        return false;
    *p += len;
    return true;
}
