#include "devices/disk/disk_format.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "devices/disk/disk_tree.h"

/* How files begin: QEMU's docs/interop/qcow2, VMware's "Virtual Disk Format", VirtualBox's VDI
 * core, [MS-VHDX] 2.2.1; a VHD of changing size has a copy of its footer in front. */
static const struct {
    const char *format;
    unsigned at, len;
    const char *bytes;
} signatures[] = {
    {"qcow2", 0, 4, "QFI\xfb"},
    {"vmdk", 0, 4, "KDMV"},
    {"vmdk", 0, 21, "# Disk DescriptorFile"},
    {"vdi", 64, 4, "\x7f\x10\xda\xbe"},
    {"vhdx", 0, 8, "vhdxfile"},
    {"vpc", 0, 8, "conectix"},
};

const char *disk_format_of(const char *head, size_t len)
{
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
        if (len >= signatures[i].at + signatures[i].len &&
            !memcmp(head + signatures[i].at, signatures[i].bytes, signatures[i].len))
            return signatures[i].format;
    return "raw";
}

bool disk_format_known(const char *format)
{
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
        if (!strcmp(signatures[i].format, format))
            return true;
    return !strcmp(format, "raw");
}

const char *disk_image_format(const char *path)
{
    char head[DISK_FORMAT_BYTES];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t got = fd < 0 ? -1 : pread(fd, head, sizeof head, 0);

    if (fd >= 0)
        close(fd);
    return disk_format_of(head, got > 0 ? (size_t)got : 0);
}

/* Its files are never written: where no overlay lies over all disks, it has one of its own. */
static struct disk *open_tree(const char *path, bool writable, struct err *e)
{
    struct disk *tree = disk_tree_open(path, e);

    return tree && writable ? disk_overlay_new(tree, e) : tree;
}

struct disk *disk_image_open(const char *path, const char *format, bool writable, struct err *e)
{
    if (!strcmp(format, DISK_TREE_FORMAT))
        return open_tree(path, writable, e);
    const char *found = format[0] ? format : disk_image_format(path);

    if (strcmp(found, "raw") != 0)
        return disk_nbd_open(path, found, writable, e);
    struct disk *raw = disk_raw_open(path, writable, e);
    if (raw && !format[0])
        disk_raw_stays(raw);
    return raw;
}
