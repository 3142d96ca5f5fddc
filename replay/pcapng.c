#include "replay/pcapng.h"

#include <string.h>

#include "base/bytes.h"

/* Blocks (section 4) and options (section 3.5): types. */
#define BLOCK_SECTION   0x0a0d0d0au
#define BLOCK_INTERFACE 1u
#define BLOCK_FRAME     6u
#define BYTE_ORDER_MARK 0x1a2b3c4du
#define ANY_LENGTH      UINT64_MAX
#define OPTION_END      0u
#define SECTION_APPL    4u
#define INTERFACE_NAME  2u
#define INTERFACE_MAC   6u
#define INTERFACE_RESOL 9u
#define FRAME_FLAGS     2u
#define FLAGS_IN        1u
#define FLAGS_OUT       2u
#define LINK_ETHERNET   1u
#define NANOSECONDS     9u /* 10 to the power of minus so many seconds */
#define BLOCK_AROUND    12u

static void pad(struct bytes *b)
{
    while (b->len % 4)
        bytes_put_u8(b, 0);
}

static void put_option(struct bytes *b, unsigned type, const void *value, size_t len)
{
    bytes_put_u16(b, (uint16_t)type);
    bytes_put_u16(b, (uint16_t)len);
    bytes_put(b, value, len);
    pad(b);
}

/* A block of these contents, whose last option is the end of them; they are freed. */
static void write_block(FILE *out, uint32_t type, struct bytes *contents)
{
    struct bytes block = {0};

    put_option(contents, OPTION_END, NULL, 0);
    const uint32_t len = (uint32_t)contents->len + BLOCK_AROUND;
    bytes_put_u32(&block, type);
    bytes_put_u32(&block, len);
    bytes_put(&block, contents->data, contents->len);
    bytes_put_u32(&block, len);
    fwrite(block.data, 1, block.len, out);
    bytes_free(&block);
    bytes_free(contents);
}

void pcapng_put_head(FILE *out, const char *application)
{
    struct bytes b = {0};

    bytes_put_u32(&b, BYTE_ORDER_MARK);
    bytes_put_u16(&b, 1); /* version 1.0 */
    bytes_put_u16(&b, 0);
    bytes_put_u64(&b, ANY_LENGTH);
    put_option(&b, SECTION_APPL, application, strlen(application));
    write_block(out, BLOCK_SECTION, &b);
}

void pcapng_put_interface(FILE *out, const char *name, const uint8_t mac[6])
{
    const uint8_t resolution = NANOSECONDS;
    struct bytes b = {0};

    bytes_put_u16(&b, LINK_ETHERNET);
    bytes_put_u16(&b, 0);
    bytes_put_u32(&b, 0); /* frames are whole */
    put_option(&b, INTERFACE_NAME, name, strlen(name));
    put_option(&b, INTERFACE_MAC, mac, 6);
    put_option(&b, INTERFACE_RESOL, &resolution, sizeof resolution);
    write_block(out, BLOCK_INTERFACE, &b);
}

void pcapng_put_frame(FILE *out, unsigned interface, uint64_t time_ns, bool is_sent,
                      const uint8_t *frame, size_t len)
{
    const uint8_t flags[4] = {is_sent ? FLAGS_OUT : FLAGS_IN};
    struct bytes b = {0};

    bytes_put_u32(&b, interface);
    bytes_put_u32(&b, (uint32_t)(time_ns >> 32));
    bytes_put_u32(&b, (uint32_t)time_ns);
    bytes_put_u32(&b, (uint32_t)len);
    bytes_put_u32(&b, (uint32_t)len);
    bytes_put(&b, frame, len);
    pad(&b);
    put_option(&b, FRAME_FLAGS, flags, sizeof flags);
    write_block(out, BLOCK_FRAME, &b);
}
