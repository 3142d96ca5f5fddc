#include "boot/boot_bzimage.h"

#include <string.h>

#define SECTOR          512u
#define SETUP_HEADER_AT 0x1f1u
#define SETUP_JUMP_AT   0x201u /* displacement of the jump at 0x200: the header ends there */
#define BOOT_FLAG       0xaa55u
#define HEADER_MAGIC    0x53726448u /* "HdrS" */
#define PROTOCOL_2_12   0x020cu
#define DEFAULT_SETUP   4u /* sectors, when setup_sects is 0 */

bool bzimage_detect(const uint8_t *image, size_t len)
{
    return len >= SETUP_HEADER_AT + sizeof(struct setup_header) &&
           memcmp(image + SETUP_HEADER_AT + offsetof(struct setup_header, header), "HdrS", 4) == 0;
}

/* The kernel_version field points, 0x200 short, at a NUL-terminated string in the setup part. */
static void read_version(struct bzimage *bz, const uint8_t *image, size_t setup_len)
{
    size_t at = (size_t)bz->header.kernel_version + 0x200;
    size_t n = 0;

    if (bz->header.kernel_version == 0)
        return;
    while (at + n < setup_len && n < sizeof(bz->version) - 1 && image[at + n] >= ' ' &&
           image[at + n] < 0x7f) {
        bz->version[n] = (char)image[at + n];
        n++;
    }
}

int bzimage_open(struct bzimage *bz, const uint8_t *image, size_t len, struct err *e)
{
    memset(bz, 0, sizeof(*bz));
    if (!bzimage_detect(image, len))
        return err_set(e, STATUS_ERROR, "not a Linux kernel: neither a bzImage nor an ELF vmlinux");

    /* Older kernels have a shorter header; what follows it in the file is code. */
    size_t header_len = SETUP_JUMP_AT + 1u + image[SETUP_JUMP_AT] - SETUP_HEADER_AT;

    if (header_len > sizeof(bz->header))
        header_len = sizeof(bz->header);
    memcpy(&bz->header, image + SETUP_HEADER_AT, header_len);

    const struct setup_header *h = &bz->header;

    if (h->boot_flag != BOOT_FLAG || h->header != HEADER_MAGIC)
        return err_set(e, STATUS_ERROR, "not a Linux kernel: the setup header has no boot flag");
    if (h->version < PROTOCOL_2_12 || !(h->xloadflags & XLF_KERNEL_64))
        return err_set(e, STATUS_ERROR,
                       "the kernel has no 64-bit entry (boot protocol %u.%02u); give a 64-bit x86 "
                       "kernel of version 3.8 or later",
                       h->version >> 8, h->version & 0xff);
    if (!(h->loadflags & LOADED_HIGH))
        return err_set(e, STATUS_ERROR, "the kernel is a zImage; give a bzImage or a vmlinux");

    if (!h->payload_length) /* as memtest86+, which looks like one for boot loaders */
        return err_set(e, STATUS_ERROR,
                       "not a Linux kernel: the bzImage holds no compressed kernel");

    size_t setup_len = ((h->setup_sects ? h->setup_sects : DEFAULT_SETUP) + 1u) * SECTOR;

    if (setup_len > len || h->payload_offset > len - setup_len ||
        h->payload_length > len - setup_len - h->payload_offset ||
        h->payload_length < BOOT_PAYLOAD_MIN)
        return err_set(e, STATUS_ERROR, "the bzImage is cut short: its payload is not in the file");
    bz->payload = image + setup_len + h->payload_offset;
    bz->payload_len = h->payload_length;
    read_version(bz, image, setup_len);
    return 0;
}
