#include "boot/diskimage/diskimage_take.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

#define KERNEL_MAX   ((size_t)256 << 20)
#define INITRD_MAX   ((size_t)1 << 30)
#define INITRD_ALIGN 4u

static void copy_text(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text);
}

/*
 * A path of a boot loader's configuration is relative to the file system the loader found it on, or
 * as seen from the root file system with /boot mounted: try both, there and on the other volumes.
 */
static int read_path(const struct disk_search *d, const struct volume *home, const char *path,
                     size_t limit, struct bytes *out)
{
    char inside_boot[LOADER_PATH_MAX + 8];

    snprintf(inside_boot, sizeof(inside_boot), "/boot%s", path);
    for (size_t i = 0; i <= d->count; i++) {
        const struct volume *v = i == 0 ? home : &d->volumes[i - 1];

        if (i > 0 && v == home)
            continue;
        if (volume_read(v, path, limit, out) == 0 || volume_read(v, inside_boot, limit, out) == 0 ||
            (strncmp(path, "/boot/", 6) == 0 && volume_read(v, path + 5, limit, out) == 0))
            return 0;
    }
    return -1;
}

void diskimage_absolute(char path[LOADER_PATH_MAX], const char *config)
{
    char whole[2 * LOADER_PATH_MAX];
    const char *slash = strrchr(config, '/');

    if (path[0] == '/')
        return;
    snprintf(whole, sizeof(whole), "%.*s/%s", slash ? (int)(slash - config) : 0, config, path);
    whole[LOADER_PATH_MAX - 1] = 0;
    memcpy(path, whole, LOADER_PATH_MAX);
}

bool diskimage_take(struct disk_search *d, const struct volume *v, const char *loader,
                    const char *config, struct loader_entry *entry)
{
    struct bytes kernel = {0}, initrd = {0};

    diskimage_absolute(entry->kernel, config);
    if (read_path(d, v, entry->kernel, KERNEL_MAX, &kernel) < 0 || kernel.len == 0)
        goto fail;
    for (unsigned i = 0; i < entry->initrd_count; i++) {
        while (initrd.len % INITRD_ALIGN)
            bytes_put_u8(&initrd, 0);
        diskimage_absolute(entry->initrds[i], config);
        if (read_path(d, v, entry->initrds[i], INITRD_MAX - initrd.len, &initrd) < 0)
            goto fail;
    }

    struct disk_boot *b = d->boot;

    b->kernel = kernel.data;
    b->kernel_len = kernel.len;
    b->initrd = initrd.data;
    b->initrd_len = initrd.len;
    copy_text(b->command_line, sizeof(b->command_line), entry->command_line);
    copy_text(b->loader, sizeof(b->loader), loader);
    copy_text(b->boot_device, sizeof(b->boot_device), v->device);
    snprintf(b->config_path, sizeof(b->config_path), "%s%s", config[0] ? v->subvolume : "", config);
    copy_text(b->kernel_path, sizeof(b->kernel_path), entry->kernel);
    if (entry->initrd_count > 0)
        copy_text(b->initrd_path, sizeof(b->initrd_path), entry->initrds[0]);
    return true;
fail:
    bytes_free(&kernel);
    bytes_free(&initrd);
    return false;
}
