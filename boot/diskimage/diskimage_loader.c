#include "boot/diskimage/diskimage_loader.h"

#include <ctype.h>
#include <string.h>

bool loader_set(char *to, size_t size, struct text_span text)
{
    if (text.len == 0 || text.len >= size || memchr(text.at, 0, text.len))
        return false;
    memcpy(to, text.at, text.len);
    to[text.len] = 0;
    return true;
}

bool loader_add_initrd(struct loader_entry *entry, struct text_span path)
{
    return entry->initrd_count < LOADER_INITRDS_MAX &&
           loader_set(entry->initrds[entry->initrd_count], LOADER_PATH_MAX, path) &&
           ++entry->initrd_count;
}

bool loader_add_argument(struct loader_entry *entry, struct text_span word)
{
    size_t used = strlen(entry->command_line);
    bool quote = memchr(word.at, ' ', word.len) || memchr(word.at, '\t', word.len);
    char *to = entry->command_line + used;

    if (word.len == 0)
        return true;
    if (memchr(word.at, 0, word.len) || word.len + 4 > sizeof(entry->command_line) - used)
        return false;
    if (used > 0)
        *to++ = ' ';
    if (quote)
        *to++ = '"';
    memcpy(to, word.at, word.len);
    to += word.len;
    if (quote)
        *to++ = '"';
    *to = 0;
    return true;
}

bool loader_next_line(struct text_span *rest, struct text_span *line)
{
    if (rest->len == 0)
        return false;

    const char *newline = memchr(rest->at, '\n', rest->len);

    line->at = rest->at;
    line->len = newline ? (size_t)(newline - rest->at) : rest->len;

    size_t used = line->len + (newline ? 1 : 0);

    rest->at += used;
    rest->len -= used;
    if (line->len > 0 && line->at[line->len - 1] == '\r')
        line->len--;
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

bool loader_next_word(struct text_span *rest, struct text_span *word)
{
    while (rest->len > 0 && is_blank(*rest->at)) {
        rest->at++;
        rest->len--;
    }
    *word = (struct text_span){.at = rest->at};
    while (rest->len > 0 && !is_blank(*rest->at)) {
        rest->at++;
        rest->len--;
        word->len++;
    }
    return word->len > 0;
}

/* The rank of a character outside a number; the end of the string ranks as 0. */
static int rank(char c)
{
    if (c == '~')
        return -1;
    if (c == 0 || isdigit((unsigned char)c))
        return 0;
    return isalpha((unsigned char)c) ? (unsigned char)c : (unsigned char)c + 256;
}

int version_compare(const char *a, const char *b)
{
    while (*a || *b) {
        while ((*a && !isdigit((unsigned char)*a)) || (*b && !isdigit((unsigned char)*b))) {
            int difference = rank(*a) - rank(*b);

            if (difference)
                return difference;
            a++;
            b++;
        }
        while (*a == '0')
            a++;
        while (*b == '0')
            b++;

        int first = 0;

        while (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            if (!first)
                first = *a - *b;
            a++;
            b++;
        }
        if (isdigit((unsigned char)*a))
            return 1;
        if (isdigit((unsigned char)*b))
            return -1;
        if (first)
            return first;
    }
    return 0;
}

bool loader_matches(const char *pattern, const char *name)
{
    const char *star = NULL, *behind = NULL; /* the last star, and how far it has come */

    while (*name) {
        if (*pattern == '*') {
            star = ++pattern;
            behind = name;
        } else if (*pattern && (*pattern == '?' || tolower((unsigned char)*pattern) ==
                                                       tolower((unsigned char)*name))) {
            pattern++;
            name++;
        } else if (star) { /* it takes a character more */
            pattern = star;
            name = ++behind;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}
