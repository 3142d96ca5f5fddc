/*
 * What systemd-boot and others like it boot: entries of the boot loader specification
 * (https://uapi-group.org/specifications/specs/boot_loader_specification/), type 1 (text files) and
 * type 2 (unified kernel images).
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "boot/diskimage/diskimage_loader.h"
#include "boot/diskimage/diskimage_methods.h"
#include "boot/diskimage/diskimage_take.h"
#include "boot/diskimage/diskimage_unified.h"

#define LOADER_CONF_MAX ((size_t)64 << 10)
/* Boot loader entries: how large each is, and how many of a directory are read. */
#define ENTRY_MAX   ((size_t)64 << 10)
#define ENTRIES_MAX 1024u
#define UNIFIED_MAX ((size_t)512 << 20)

/* The entry to boot, while a directory of them is listed: the newest one of those that the loader's
 * configuration names, or of all. */
struct entry_choice {
    const struct volume *volume;
    const char *directory;
    const char *pattern; /* of loader.conf; "": none */
    unsigned entries;    /* that were read */
    bool named;          /* by the pattern */
    char path[LOADER_PATH_MAX];
    char version[LOADER_PATH_MAX];
    struct loader_entry entry;
};

/* A pattern is for the name of an entry's file, with or without what it ends with. */
static bool is_named(const char *pattern, const char *name, size_t suffix)
{
    char stem[LOADER_PATH_MAX];

    snprintf(stem, sizeof(stem), "%.*s", (int)(strlen(name) - suffix), name);
    return pattern[0] && (loader_matches(pattern, name) || loader_matches(pattern, stem));
}

static bool ends_with(const char *name, const char *suffix)
{
    const size_t len = strlen(name), end = strlen(suffix);

    return len > end && strcasecmp(name + len - end, suffix) == 0;
}

/* Whether an entry is better than the one chosen so far, and then its name and version. */
static bool choose(struct entry_choice *c, const char *name, size_t suffix, const char *version)
{
    const bool named = is_named(c->pattern, name, suffix);

    if (c->path[0] && (named != c->named ? c->named : version_compare(version, c->version) <= 0))
        return false;
    c->named = named;
    snprintf(c->path, sizeof(c->path), "%s/%.255s", c->directory, name);
    snprintf(c->version, sizeof(c->version), "%s", version);
    return true;
}

static void consider_entry(void *context, const char *name)
{
    struct entry_choice *c = context;
    char path[LOADER_PATH_MAX], version[LOADER_PATH_MAX];
    struct loader_entry entry;
    struct bytes text = {0};

    if (!ends_with(name, ".conf") || c->entries++ >= ENTRIES_MAX)
        return;
    snprintf(path, sizeof(path), "%s/%.255s", c->directory, name);
    if (volume_read(c->volume, path, ENTRY_MAX, &text) == 0 && text.len > 0 &&
        bls_parse((const char *)text.data, text.len, &entry, version) &&
        choose(c, name, sizeof(".conf") - 1, version[0] ? version : name))
        c->entry = entry;
    bytes_free(&text);
}

static void consider_unified(void *context, const char *name)
{
    if (ends_with(name, ".efi"))
        choose(context, name, sizeof(".efi") - 1, name);
}

/* What loader.conf of the volume has as its default; "" when there is none. */
static void read_default(const struct volume *v, const char *path, char pattern[LOADER_PATH_MAX])
{
    struct bytes text = {0};

    pattern[0] = 0;
    if (volume_read(v, path, LOADER_CONF_MAX, &text) == 0 && text.len > 0)
        loader_conf_default((const char *)text.data, text.len, pattern);
    bytes_free(&text);
}

bool diskimage_try_entries(struct disk_search *d, const struct volume *v)
{
    static const char *const directories[] = {"/boot/loader", "/loader"};

    for (size_t i = 0; i < 2; i++) {
        char directory[32], conf[32], pattern[LOADER_PATH_MAX];

        snprintf(directory, sizeof(directory), "%s/entries", directories[i]);
        snprintf(conf, sizeof(conf), "%s/loader.conf", directories[i]);
        read_default(v, conf, pattern);
        struct entry_choice c = {.volume = v, .directory = directory, .pattern = pattern};

        volume_list(v, c.directory, consider_entry, &c);
        /* Paths there are relative to the file system, whatever they begin with. */
        if (c.path[0]) {
            for (unsigned k = 0; k < c.entry.initrd_count; k++)
                diskimage_absolute(c.entry.initrds[k], "/");
            diskimage_absolute(c.entry.kernel, "/");
            if (diskimage_take(d, v, "boot loader entry", c.path, &c.entry))
                return true;
        }
    }
    return false;
}

/* Take the parts of a unified kernel image. */
static bool take_unified(struct disk_search *d, const struct volume *v, const char *path)
{
    struct disk_boot *const b = d->boot;
    struct bytes file = {0};
    const bool found = volume_read(v, path, UNIFIED_MAX, &file) == 0 && file.len > 0 &&
                       unified_parse(file.data, file.len, b);

    bytes_free(&file);
    if (!found)
        return false;
    snprintf(b->loader, sizeof(b->loader), "unified kernel image");
    snprintf(b->boot_device, sizeof(b->boot_device), "%s", v->device);
    snprintf(b->config_path, sizeof(b->config_path), "%s", path);
    snprintf(b->kernel_path, sizeof(b->kernel_path), "%s", path);
    if (b->initrd)
        snprintf(b->initrd_path, sizeof(b->initrd_path), "%s", path);
    return true;
}

bool diskimage_try_unified(struct disk_search *d, const struct volume *v)
{
    char pattern[LOADER_PATH_MAX];

    read_default(v, "/loader/loader.conf", pattern);
    struct entry_choice c = {.volume = v, .directory = "/EFI/Linux", .pattern = pattern};

    volume_list(v, c.directory, consider_unified, &c);
    /* Or the firmware boots it, without a loader. */
    return (c.path[0] && take_unified(d, v, c.path)) || take_unified(d, v, "/EFI/BOOT/BOOTX64.EFI");
}
