/*
 * What grub-fstest says of devices, one line each:
 *   Device lvm/system-root: Filesystem type xfs, UUID 743bbb7b-... - Sector size 512B - ...
 *     Partition loop0,gpt1: Filesystem type fat - Label `EFI', UUID 2CB6-D8B9 - ...
 * Labels, names and UUIDs are the image's.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "boot/diskimage/diskimage_fstest.h"
#include "boot/diskimage/diskimage_loader.h"

static bool starts_with(const char *text, const char *what)
{
    return !strncmp(text, what, strlen(what));
}

/* The decimal number behind a text that begins so, and nothing behind that; or -1. */
static int number_behind(const char *text, const char *what)
{
    int number, end = -1;

    if (!starts_with(text, what) || !isdigit((unsigned char)text[strlen(what)]) ||
        sscanf(text + strlen(what), "%4d%n", &number, &end) != 1 ||
        text[strlen(what) + (size_t)end])
        return -1;
    return number;
}

/* Device mapper and md give names as GRUB does, but for a RAID's that is only a number. */
static bool name_for_linux(const char *grub, char *device, size_t size)
{
    static const char *const tables[] = {"loop0,gpt", "loop0,msdos"};
    int n = -1, number;

    for (size_t i = 0; i < 2; i++)
        if ((number = number_behind(grub, tables[i])) > 0)
            n = snprintf(device, size, "vda%d", number);
    if (!strcmp(grub, "loop0"))
        n = snprintf(device, size, "vda");
    else if ((number = number_behind(grub, "md/")) >= 0)
        n = snprintf(device, size, "md%d", number);
    else if (starts_with(grub, "md/") && !strchr(grub, ','))
        n = snprintf(device, size, "%s", grub);
    else if (starts_with(grub, "lvm/"))
        n = snprintf(device, size, "mapper/%s", grub + 4);
    return n > 0 && (size_t)n < size;
}

/* A name of such letters only, which are all that end up in paths and command lines. */
static bool is_plain(const char *name)
{
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && !strchr("/,.+-_:", *name))
            return false;
    return true;
}

bool fstest_parse_device(const char *line, size_t len, struct fstest_device *out)
{
    static const char is_of[] = ": Filesystem type ", has_uuid[] = ", UUID ";
    char text[1024];
    char *at = text, *found;

    *out = (struct fstest_device){0};
    if (len >= sizeof text || memchr(line, 0, len))
        return false;
    memcpy(text, line, len);
    text[len] = '\0';
    at += strspn(at, " \t");
    if (starts_with(at, "Device "))
        at += 7;
    else if (starts_with(at, "Partition "))
        at += 10;
    else
        return false;
    if (!(found = strstr(at, is_of)) || (size_t)(found - at) >= sizeof out->grub)
        return false;
    memcpy(out->grub, at, (size_t)(found - at));
    at = found + sizeof is_of - 1;
    /* A label stands before it, and may look like one. */
    for (found = NULL; (at = strstr(at, has_uuid)); at += sizeof has_uuid - 1)
        found = at + sizeof has_uuid - 1;
    const size_t digits = found ? strspn(found, "0123456789abcdefABCDEF-") : 0;
    if (digits < sizeof out->uuid && digits && found[digits] == ' ')
        memcpy(out->uuid, found, digits);
    return is_plain(out->grub) && name_for_linux(out->grub, out->device, sizeof out->device);
}
