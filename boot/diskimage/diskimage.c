#include "boot/diskimage/diskimage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boot/diskimage/diskimage_ext.h"
#include "boot/diskimage/diskimage_fstest.h"
#include "boot/diskimage/diskimage_kind.h"
#include "boot/diskimage/diskimage_methods.h"
#include "boot/diskimage/diskimage_table.h"
#include "boot/diskimage/diskimage_volume.h"

#define PARTITIONS_MAX     128u
#define FSTEST_VOLUMES_MAX 64u

/* What a disk has, and who reads it. */
struct layout {
    struct disk *disk;
    const char *path;
    struct disk_partition parts[PARTITIONS_MAX];
    size_t part_count; /* 0: no partition table */
    size_t ext_count;  /* of the volumes */
    uint32_t ext_reads_left;
    struct fstest *fstest; /* or NULL */
    struct disk_search search;
};

typedef bool (*boot_method)(struct disk_search *, const struct volume *);

static void find_root(struct disk_search *d)
{
    static const char *const signs[] = {"/etc/os-release", "/sbin/init", "/bin/sh"};
    struct disk_boot *const b = d->boot;

    for (size_t sign = 0; sign < 3; sign++)
        for (size_t i = 0; i < d->count; i++) {
            const struct volume *const v = &d->volumes[i];
            if (!volume_exists(v, signs[sign]))
                continue;
            snprintf(b->root_device, sizeof(b->root_device), "%s", v->device);
            memcpy(b->root_uuid, v->uuid, sizeof(b->root_uuid));
            if (v->subvolume[0])
                snprintf(b->root_flags, sizeof(b->root_flags), "subvol=%s", v->subvolume + 1);
            return;
        }
}

static bool try_methods(struct disk_search *d, const boot_method *methods, size_t count)
{
    for (size_t m = 0; m < count; m++)
        for (size_t i = 0; i < d->count; i++)
            if (methods[m](d, &d->volumes[i]))
                return true;
    return false;
}

static void open_ext(struct layout *l)
{
    struct disk_search *const d = &l->search;
    const struct disk_partition whole = {.device = "vda", .size = l->disk->size};

    if (ext_volume_open(l->disk, &whole, &l->ext_reads_left, &d->volumes[0])) {
        d->count = l->ext_count = 1;
        return;
    }
    l->part_count = disk_partitions(l->disk, l->parts, PARTITIONS_MAX);
    for (size_t i = 0; i < l->part_count; i++)
        d->count +=
            ext_volume_open(l->disk, &l->parts[i], &l->ext_reads_left, &d->volumes[d->count]);
    l->ext_count = d->count;
}

/* What is on a partition, or on a disk without any. */
static const char *kind_at(const struct layout *l, const char *device, uint64_t offset)
{
    for (size_t i = 0; i < l->ext_count; i++)
        if (strcmp(l->search.volumes[i].device, device) == 0)
            return "ext4";
    return disk_kind(l->disk, offset);
}

/* Whether grub-fstest may find more than ext file systems. */
static bool has_others(const struct layout *l)
{
    bool found = false;

    for (size_t i = 0; i < l->part_count; i++)
        found |= disk_kind_is_foreign(kind_at(l, l->parts[i].device, l->parts[i].offset));
    return found || (l->part_count == 0 && disk_kind_is_foreign(kind_at(l, "vda", 0)));
}

/* Subvolumes of btrfs that distributions have their root in. */
static void add_subvolumes(struct disk_search *d, size_t first)
{
    static const char *const names[] = {"/@rootfs", "/@", "/root"};

    const size_t end = d->count;

    for (size_t i = first; i < end; i++)
        for (size_t n = 0; n < sizeof(names) / sizeof(*names) && d->count < VOLUMES_MAX; n++) {
            char etc[VOLUME_SUBVOLUME_MAX + 8];
            struct volume v = d->volumes[i];

            snprintf(etc, sizeof(etc), "%s/etc", names[n]);
            if (!volume_exists(&v, etc))
                continue;
            snprintf(v.subvolume, sizeof(v.subvolume), "%s", names[n]);
            v.lent = true;
            d->volumes[d->count++] = v;
        }
}

/* Add what grub-fstest reads, and we do not. */
static int open_others(struct layout *l, struct err *e)
{
    struct disk_search *const d = &l->search;
    struct volume others[FSTEST_VOLUMES_MAX];

    l->fstest = fstest_new(l->disk, e);
    const size_t count = l->fstest ? fstest_volumes(l->fstest, others, FSTEST_VOLUMES_MAX, e) : 0;

    for (size_t i = 0; i < count; i++) {
        bool ours = d->count == VOLUMES_MAX;

        for (size_t k = 0; k < l->ext_count; k++)
            ours |= strcmp(d->volumes[k].device, others[i].device) == 0;
        if (ours)
            volume_close(&others[i]);
        else
            d->volumes[d->count++] = others[i];
    }
    add_subvolumes(d, l->ext_count);
    return d->count > l->ext_count ? 0 : -1;
}

#define NAMED_MAX 8u /* partitions in a message */

/* Nothing was found that boots, because of `why` if that says something. */
static int refuse(const struct layout *l, const struct err *why, struct err *e)
{
    char list[NAMED_MAX * 64] = "";
    size_t len = 0;

    if (l->part_count == 0 && strcmp(kind_at(l, "vda", 0), "unknown") == 0)
        return err_set(e, STATUS_ERROR,
                       "%s has neither a partition table nor a file system that is known: there is "
                       "no kernel in it; give --kernel",
                       l->path);
    for (size_t i = 0; i < l->part_count && i < NAMED_MAX; i++)
        len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s %s", i ? ", " : "",
                                l->parts[i].device,
                                kind_at(l, l->parts[i].device, l->parts[i].offset));
    if (l->part_count == 0)
        snprintf(list, sizeof(list), "%s", kind_at(l, "vda", 0));
    if (l->part_count > NAMED_MAX)
        len += (size_t)snprintf(list + len, sizeof(list) - len, ", ...");
    if (why->text[0])
        return err_set(e, STATUS_ERROR,
                       "no Linux kernel found in %s (%s): %s; or give --kernel, and --initrd and "
                       "--append root=...",
                       l->path, list, why->text);
    if (l->search.count == 0)
        return err_set(e, STATUS_ERROR,
                       "no Linux kernel found in %s: it has no file system that can be read (%s); "
                       "give --kernel, and --initrd and --append root=...",
                       l->path, list);
    return err_set(
        e, STATUS_ERROR,
        "no Linux kernel found in %s (%s): looked for grub.cfg, extlinux.conf, "
        "loader/entries/*.conf, EFI/Linux/*.efi and vmlinuz-* in /boot and / of %zu file "
        "system%s; give --kernel",
        l->path, list, l->search.count, l->search.count == 1 ? "" : "s");
}

static int search(struct layout *l, struct err *e)
{
    /* The last one is a guess, when no boot loader is known. */
    static const boot_method methods[] = {diskimage_try_grub, diskimage_try_extlinux,
                                          diskimage_try_entries, diskimage_try_unified,
                                          diskimage_try_newest};
    static const size_t count = sizeof(methods) / sizeof(*methods);
    struct disk_search *const d = &l->search;
    struct err why = {0};

    open_ext(l);
    bool found = try_methods(d, methods, count - 1);

    if (!found && has_others(l) && open_others(l, &why) == 0) {
        d->boot->asked = true;
        found = try_methods(d, methods, count - 1);
    }
    if (!found && !try_methods(d, methods + count - 1, 1))
        return refuse(l, &why, e);
    find_root(d);
    return 0;
}

int diskimage_find_boot(struct disk *disk, const char *path, struct disk_boot *out, struct err *e)
{
    struct layout *l = calloc(1, sizeof(*l));

    memset(out, 0, sizeof(*out));
    if (!l)
        return err_set(e, STATUS_ERROR, "out of memory for reading %s", path);
    l->disk = disk;
    l->path = path;
    l->ext_reads_left = EXT_READS_MAX;
    l->search.boot = out;

    const int rc = search(l, e);

    for (size_t i = 0; i < l->search.count; i++)
        volume_close(&l->search.volumes[i]);
    fstest_free(l->fstest);
    free(l);
    if (rc < 0)
        disk_boot_free(out);
    return rc;
}
