#ifndef BASE_MAC_H
#define BASE_MAC_H

#include <stdbool.h>
#include <stdint.h>

/* A NIC's address, as text six numbers of two hexadecimal digits, with colons between. */
#define MAC_BYTES 6u

/* False: the text is no such address, and mac is left alone. */
bool mac_parse(const char *text, uint8_t mac[MAC_BYTES]);

#endif
