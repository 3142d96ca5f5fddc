#include "boot/diskimage/diskimage_kind.h"

#include <stddef.h>
#include <string.h>

struct signature {
    const char *kind;
    uint32_t at; /* bytes from the beginning of the partition */
    uint8_t len;
    char bytes[9];
};

/* In this order: an XFS or ext file system inside LVM or LUKS begins later than these do. */
static const struct signature signatures[] = {
    {"LUKS", 0, 6, "LUKS\xba\xbe"},
    {"LVM", 512, 8, "LABELONE"},
    {"md RAID", 4096, 4, "\xfc\x4e\x2b\xa9"},
    {"md RAID", 0, 4, "\xfc\x4e\x2b\xa9"},
    {"btrfs", 0x10040, 8, "_BHRfS_M"},
    {"XFS", 0, 4, "XFSB"},
    {"F2FS", 1024, 4, "\x10\x20\xf5\xf2"},
    {"swap", 4086, 8, "SWAPSPAC"},
    {"squashfs", 0, 4, "hsqs"},
    {"erofs", 1024, 4, "\xe2\xe1\xf5\xe0"},
    {"ISO 9660", 0x8001, 5, "CD001"},
    {"NTFS", 3, 8, "NTFS    "},
    {"FAT", 82, 5, "FAT32"},
    {"FAT", 54, 4, "FAT1"},
    {"ext4 that libext2fs cannot read", 1080, 2, "\x53\xef"},
};

const char *disk_kind(struct disk *disk, uint64_t offset)
{
    for (size_t i = 0; i < sizeof(signatures) / sizeof(*signatures); i++) {
        const struct signature *s = &signatures[i];
        char found[sizeof(s->bytes)];

        if (disk_read(disk, offset + s->at, found, s->len) == 0 &&
            memcmp(found, s->bytes, s->len) == 0)
            return s->kind;
    }
    return "unknown";
}

bool disk_kind_is_foreign(const char *kind)
{
    static const char *const others[] = {"unknown", "ext4", "swap", "LUKS", "erofs"};

    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (strcmp(kind, others[i]) == 0)
            return false;
    return true;
}
