#include "recording/symbol.h"

#include <string.h>

bool symbol_is_function(char type)
{
    /* Weak objects are v and V, so a w is a function: nothing else in the kernel is weak. */
    return type == 't' || type == 'T' || type == 'w' || type == 'W';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '?';
}

static bool is_valid(uint64_t last, uint64_t address, char type, const char *name, size_t len)
{
    if (address < last || !is_letter(type) || len == 0 || len > SYMBOL_NAME_MAX)
        return false;
    /* Names end up on terminals. */
    for (size_t i = 0; i < len; i++)
        if (name[i] <= ' ' || name[i] > '~')
            return false;
    return true;
}

void symbol_encode(struct bytes *out, uint64_t *last, uint64_t address, char type, const char *name)
{
    const size_t len = strlen(name);

    if (!is_valid(*last, address, type, name, len))
        return;
    bytes_put_varint(out, address - *last);
    bytes_put_u8(out, (uint8_t)type);
    bytes_put_varint(out, len);
    bytes_put(out, name, len);
    *last = address;
}

bool symbol_valid(const struct symbol *s, uint64_t last)
{
    return is_valid(last, s->address, s->type, s->name, strlen(s->name));
}
