#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "devices/disk/disk_format.h"
#include "devices/disk/disk_set.h"
#include "host/domain/domain_inside.h"

/* One that is carried over. */
struct found {
    struct disk_wish wish;
    unsigned long order; /* of booting, from 1 on; those without one come after, CD-ROMs last */
};

#define NO_ORDER    100000ul
#define CDROM_ORDER 200000ul

static const char *name_of(const xml_node *disk)
{
    const char *name = xml_attribute(xml_child(disk, "target"), "dev");

    return name ? name : "without a name";
}

static int refuse(const struct domain *d, const xml_node *disk, const char *why, const char *detail,
                  struct err *e)
{
    return err_set(e, STATUS_ERROR, "domain %s: disk %s %s%s", d->name, name_of(disk), why, detail);
}

/* ---- where it is ---- */

/* Whether --disk would take the end of this name for a setting. */
static bool ends_like_setting(const char *path)
{
    static const char *const settings[] = {"ro", "size=", "format=", "serial="};
    const char *comma = strrchr(path, ',');

    for (unsigned i = 0; comma && i < sizeof settings / sizeof *settings; i++)
        if (i ? !strncmp(comma + 1, settings[i], strlen(settings[i])) : !strcmp(comma + 1, "ro"))
            return true;
    return false;
}

static int find_volume(struct domain *d, const xml_node *disk, const xml_node *source,
                       struct disk_wish *wish, const struct domain_around *around, struct err *e)
{
    const char *pool = xml_attribute(source, "pool"), *volume = xml_attribute(source, "volume");
    struct err why;

    if (!around || !pool || !volume)
        return refuse(d, disk, "is a volume of a storage pool, which libvirt has to be asked for: ",
                      "give the domain's name instead of a file", e);
    if (around->find_volume(around->opaque, pool, volume, wish->path, sizeof wish->path, &why) < 0)
        return refuse(d, disk, "cannot be found: ", why.text, e);
    return 0;
}

/* "" in wish->path: there is no medium in it. */
static int find_image(struct domain *d, const xml_node *disk, struct disk_wish *wish,
                      const struct domain_around *around, struct err *e)
{
    const xml_node *source = xml_child(disk, "source");
    const char *type = xml_attribute(disk, "type"), *path = NULL;

    if (!type || !strcmp(type, "file"))
        path = xml_attribute(source, "file");
    else if (!strcmp(type, "block"))
        path = xml_attribute(source, "dev");
    else if (strcmp(type, "volume") != 0)
        return refuse(d, disk, "is neither a file nor a block device of this host but of type ",
                      type, e);
    else if (find_volume(d, disk, source, wish, around, e) < 0)
        return -1;
    if (path && snprintf(wish->path, sizeof wish->path, "%s", path) >= (int)sizeof wish->path)
        return refuse(d, disk, "has too long a name", "", e);
    if (ends_like_setting(wish->path))
        return refuse(d, disk, "has a name that ends as a setting of --disk does: ", wish->path, e);
    if (xml_child(disk, "encryption") || xml_child(source, "encryption"))
        return refuse(d, disk, "is encrypted", "", e);
    if (xml_child(source, "slices"))
        return refuse(d, disk, "is a slice of its image", "", e);
    return 0;
}

/* A medium that a domain starts without, and that is not there. */
static bool may_be_missing(const xml_node *disk, const char *path)
{
    return xml_attribute_is(xml_child(disk, "source"), "startupPolicy", "optional") &&
           access(path, F_OK) != 0;
}

/* ---- what it is ---- */

/* libvirt takes an image for raw that is not said to be something else. */
static int read_format(struct domain *d, const xml_node *disk, struct disk_wish *wish,
                       struct err *e)
{
    const char *type = xml_attribute(xml_child(disk, "driver"), "type");

    if (!type || !strcmp(type, "iso"))
        type = "raw";
    if (!strcmp(type, "vhd"))
        type = "vpc";
    if (!disk_format_known(type))
        return refuse(d, disk, "is of a format that dittovm cannot read: ", type, e);
    snprintf(wish->format, sizeof wish->format, "%s", type);
    return 0;
}

/* As QEMU cuts it. */
static void read_serial(struct domain *d, const xml_node *disk, struct disk_wish *wish)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+- ";
    const char *serial = xml_child_text(disk, "serial");

    if (serial[strspn(serial, allowed)])
        domain_note(d->left, "disk %s: its serial", name_of(disk));
    else
        snprintf(wish->serial, sizeof wish->serial, "%.*s", (int)DISK_SERIAL_BYTES, serial);
}

static void note_rest(struct domain *d, const xml_node *disk)
{
    static const char *const known[] = {"source",       "target",    "driver",    "alias",
                                        "address",      "boot",      "readonly",  "serial",
                                        "backingStore", "shareable", "transient", NULL};
    const char *bus = xml_attribute(xml_child(disk, "target"), "bus"), *other;
    const xml_node *at = NULL;

    if (!bus || strcmp(bus, "virtio") != 0)
        domain_note(d->nearest, "disk %s of %s: virtio", name_of(disk), bus ? bus : "some bus");
    while ((other = domain_other_child(disk, known, &at)))
        domain_note(d->left, "disk %s: its %s", name_of(disk), other);
}

static int read_disk(struct domain *d, const xml_node *disk, struct found *found,
                     const struct domain_around *around, struct err *e)
{
    const char *device = xml_attribute(disk, "device");
    const char *order = xml_attribute(xml_child(disk, "boot"), "order");
    const bool cdrom = device && !strcmp(device, "cdrom");
    struct disk_wish *const wish = &found->wish;

    *found = (struct found){.order = cdrom ? CDROM_ORDER : NO_ORDER};
    if (device && !cdrom && strcmp(device, "disk") != 0 && strcmp(device, "lun") != 0) {
        domain_note(d->left, "%s %s", device, name_of(disk));
        return 0;
    }
    if (find_image(d, disk, wish, around, e) < 0)
        return -1;
    if (!wish->path[0] || may_be_missing(disk, wish->path)) {
        domain_note(d->left, "%s %s, which is empty", cdrom ? "CD-ROM" : "disk", name_of(disk));
        wish->path[0] = 0;
        return 0;
    }
    if (read_format(d, disk, wish, e) < 0)
        return -1;
    wish->read_only = cdrom || xml_child(disk, "readonly");
    if (!cdrom && order && strtoul(order, NULL, 10) < NO_ORDER)
        found->order = strtoul(order, NULL, 10);
    read_serial(d, disk, wish);
    note_rest(d, disk);
    return 0;
}

/* ---- all of them ---- */

static void put_option(struct domain *d, const struct disk_wish *wish)
{
    char *text;

    if (asprintf(&text, "%s%s,format=%s%s%s", wish->path, wish->read_only ? ",ro" : "",
                 wish->format, wish->serial[0] ? ",serial=" : "", wish->serial) < 0)
        abort();
    domain_option(d, "--disk", text);
    free(text);
}

/* The first of them boots: so those that are said to, then as they stand. */
int domain_read_disks(struct domain *d, const xml_node *devices, const struct domain_around *around,
                      struct err *e)
{
    struct found disks[MAX_DISKS], found;
    unsigned count = 0, at;

    for (const xml_node *disk = xml_child(devices, "disk"); disk; disk = xml_next(disk, "disk")) {
        if (read_disk(d, disk, &found, around, e) < 0)
            return -1;
        if (!found.wish.path[0])
            continue;
        if (count == MAX_DISKS)
            return err_set(e, STATUS_ERROR, "domain %s has more than %u disks", d->name, MAX_DISKS);
        for (at = count++; at && disks[at - 1].order > found.order; at--)
            disks[at] = disks[at - 1];
        disks[at] = found;
    }
    for (unsigned i = 0; i < count; i++)
        put_option(d, &disks[i].wish);
    return 0;
}
