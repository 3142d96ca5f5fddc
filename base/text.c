#include "base/text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The length of a whole UTF-8 character of several bytes, which comes out in *code; 0: it is none.
 */
static unsigned decode(const unsigned char *s, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;

    if (s[0] < 0xc0 || s[0] > 0xf7)
        return 0;
    *code = s[0] & (0x7fu >> len);
    for (unsigned i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80) /* a NUL is none either */
            return 0;
        *code = *code << 6 | (s[i] & 0x3f);
    }
    if (*code < least[len] || *code > 0x10ffff || (*code >= 0xd800 && *code <= 0xdfff))
        return 0;
    return len;
}

/* C1, and what makes text look like another one: marks, embeddings and isolates of direction, line
 * and paragraph separators, the byte order mark. */
static bool misleads(uint32_t code)
{
    return code < 0xa0 || code == 0x61c || (code >= 0x200b && code <= 0x200f) ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) ||
           code == 0xfeff || (code >= 0xfff9 && code <= 0xfffb);
}

void text_clean(char *text)
{
    for (unsigned char *s = (unsigned char *)text; *s;) {
        uint32_t code = *s;
        const unsigned many = *s < 0x80 ? 0 : decode(s, &code), len = many ? many : 1;
        const bool good = many ? !misleads(code) : *s >= ' ' && *s < 0x7f;
        if (!good)
            memset(s, '?', len);
        s += len;
    }
}

int text_fitting(const char *text, unsigned most)
{
    size_t len = strnlen(text, (size_t)most + 1);

    if (len > most)
        for (len = most; len && ((unsigned char)text[len] & 0xc0) == 0x80; len--)
            continue;
    return (int)len;
}

void text_print(FILE *out, const char *format, ...)
{
    va_list args;
    char *text;

    va_start(args, format);
    const int len = vasprintf(&text, format, args);
    va_end(args);
    if (len < 0)
        return;
    size_t end = (size_t)len;
    while (end && text[end - 1] == '\n')
        end--;
    const size_t ends = (size_t)len - end;
    text[end] = 0;
    text_clean(text);
    fputs(text, out);
    for (size_t i = 0; i < ends; i++)
        fputc('\n', out);
    free(text);
}
