#include "devices/disk/disk_set.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "devices/disk/disk_format.h"
#include "devices/disk/disk_join.h"

/* NULL with *e: nothing stays open. */
static struct disk *open_whole(const struct disk_wish *wishes, unsigned count, bool write_through,
                               uint64_t sizes[MAX_DISKS], struct err *e)
{
    struct disk *images[MAX_DISKS];

    for (unsigned i = 0; i < count; i++) {
        images[i] = disk_image_open(wishes[i].path, wishes[i].format,
                                    write_through && !wishes[i].read_only, e);
        if (!images[i]) {
            while (i--)
                disk_close(images[i]);
            return NULL;
        }
        sizes[i] = images[i]->size;
        if (wishes[i].size > sizes[i])
            sizes[i] = wishes[i].size / DISK_SECTOR * DISK_SECTOR;
    }
    struct disk *whole = disk_join(images, sizes, count);
    if (!whole)
        err_set(e, STATUS_ERROR, "out of memory");
    return whole && !write_through ? disk_overlay_new(whole, e) : whole;
}

int disk_set_open(struct disk_set *set, const struct disk_wish *wishes, unsigned count,
                  bool write_through, struct err *e)
{
    uint64_t sizes[MAX_DISKS];

    assert(count <= MAX_DISKS);
    *set = (struct disk_set){0};
    if (!count)
        return 0;
    set->whole = open_whole(wishes, count, write_through, sizes, e);
    if (!set->whole)
        return -1;
    for (; set->count < count; set->count++) {
        const unsigned i = set->count;
        set->disk[i] =
            disk_slice(set->whole, disk_join_offset(sizes, i), sizes[i], wishes[i].read_only);
        if (!set->disk[i]) {
            disk_set_close(set);
            return err_set(e, STATUS_ERROR, "out of memory");
        }
        /* The first one is called as the only one always was. */
        if (wishes[i].serial[0])
            memcpy(set->serial[i], wishes[i].serial, sizeof set->serial[i]);
        else
            snprintf(set->serial[i], sizeof set->serial[i], i ? "ditto-%u" : "ditto", i);
    }
    return 0;
}

void disk_set_close(struct disk_set *set)
{
    for (unsigned i = 0; i < set->count; i++)
        disk_close(set->disk[i]);
    disk_close(set->whole);
    *set = (struct disk_set){0};
}
