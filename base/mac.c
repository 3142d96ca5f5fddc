#include "base/mac.h"

#include <stdio.h>
#include <string.h>

bool mac_parse(const char *text, uint8_t mac[MAC_BYTES])
{
    static const char like[] = "52:54:00:12:34:56";
    unsigned byte[MAC_BYTES];
    int used = 0;

    if (strlen(text) != sizeof like - 1 ||
        strspn(text, "0123456789abcdefABCDEF:") != sizeof like - 1 ||
        sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%n", &byte[0], &byte[1], &byte[2], &byte[3], &byte[4],
               &byte[5], &used) != MAC_BYTES ||
        used != sizeof like - 1)
        return false;
    for (unsigned i = 0; i < MAC_BYTES; i++)
        mac[i] = (uint8_t)byte[i];
    return true;
}
