#include "boot/root/ram_disk.h"

#include <stdio.h>
#include <string.h>

static void pad(struct bytes *out)
{
    while (out->len % 4)
        bytes_put_u8(out, 0);
}

static void put(struct bytes *out, const char *path, unsigned mode, unsigned links,
                const void *data, size_t len)
{
    const unsigned name_len = (unsigned)strlen(path) + 1;
    char head[112];

    /* magic, then ino, mode, uid, gid, nlink, mtime, filesize, device and rdev in two parts each,
     * the name's length, and a sum that this format does not have */
    const int n =
        snprintf(head, sizeof head, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
                 (unsigned)(out->len / 4 + 1), mode, 0u, 0u, links, 0u, (unsigned)len, 0u, 0u, 0u,
                 0u, name_len, 0u);
    bytes_put(out, head, (size_t)n);
    bytes_put(out, path, name_len);
    pad(out);
    if (len)
        bytes_put(out, data, len);
    pad(out);
}

void ram_disk_put(struct bytes *out, const char *path, unsigned mode, const void *data, size_t len)
{
    put(out, path, mode, 1, data, len);
}

void ram_disk_end(struct bytes *out)
{
    put(out, "TRAILER!!!", 0, 1, NULL, 0);
}

/* COMMAND_INIT: the file, by the Makefile. */
__asm__(".section .rodata\n"
        ".balign 16\n"
        ".globl command_init, command_init_end\n"
        "command_init: .incbin \"" COMMAND_INIT "\"\n"
        "command_init_end: .byte 0\n"
        ".previous\n");
