#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "boot/diskimage/diskimage_ext.h"
#include "boot/diskimage/diskimage_loader.h"
#include "boot/diskimage/diskimage_methods.h"

#define KERNEL_MAX ((size_t)256 << 20)
#define INITRD_MAX ((size_t)1 << 30)
#define CONFIG_MAX ((size_t)1 << 20)
/* Boot loader entries: how large each is, and how many of a directory are read. */
#define ENTRY_MAX    ((size_t)64 << 10)
#define ENTRIES_MAX  1024u
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
        if (ext_fs_read(v->fs, path, limit, out) == 0 ||
            ext_fs_read(v->fs, inside_boot, limit, out) == 0 ||
            (strncmp(path, "/boot/", 6) == 0 && ext_fs_read(v->fs, path + 5, limit, out) == 0))
            return 0;
    }
    return -1;
}

/* Make a path absolute that is relative to the directory of the configuration file. */
static void absolute_path(char path[LOADER_PATH_MAX], const char *config)
{
    char whole[2 * LOADER_PATH_MAX];
    const char *slash = strrchr(config, '/');

    if (path[0] == '/')
        return;
    snprintf(whole, sizeof(whole), "%.*s/%s", slash ? (int)(slash - config) : 0, config, path);
    whole[LOADER_PATH_MAX - 1] = 0;
    memcpy(path, whole, LOADER_PATH_MAX);
}

/* Read the files an entry names; false when one of them is not there. */
static bool take_entry(struct disk_search *d, const struct volume *v, const char *loader,
                       const char *config, struct loader_entry *entry)
{
    struct bytes kernel = {0}, initrd = {0};

    absolute_path(entry->kernel, config);
    if (read_path(d, v, entry->kernel, KERNEL_MAX, &kernel) < 0 || kernel.len == 0)
        goto fail;
    for (unsigned i = 0; i < entry->initrd_count; i++) {
        while (initrd.len % INITRD_ALIGN)
            bytes_put_u8(&initrd, 0);
        absolute_path(entry->initrds[i], config);
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
    copy_text(b->boot_device, sizeof(b->boot_device), v->part.device);
    copy_text(b->config_path, sizeof(b->config_path), config);
    copy_text(b->kernel_path, sizeof(b->kernel_path), entry->kernel);
    if (entry->initrd_count > 0)
        copy_text(b->initrd_path, sizeof(b->initrd_path), entry->initrds[0]);
    return true;
fail:
    bytes_free(&kernel);
    bytes_free(&initrd);
    return false;
}

typedef bool (*config_parser)(const char *text, size_t len, struct loader_entry *out);

static bool try_configs(struct disk_search *d, const struct volume *v, const char *loader,
                        const char *const paths[], config_parser parse)
{
    for (size_t i = 0; paths[i]; i++) {
        struct bytes text = {0};
        struct loader_entry entry = {0};
        bool parsed = ext_fs_read(v->fs, paths[i], CONFIG_MAX, &text) == 0 && text.len > 0 &&
                      parse((const char *)text.data, text.len, &entry);

        bytes_free(&text);
        if (parsed && take_entry(d, v, loader, paths[i], &entry))
            return true;
    }
    return false;
}

bool diskimage_try_grub(struct disk_search *d, const struct volume *v)
{
    static const char *const paths[] = {"/boot/grub/grub.cfg", "/grub/grub.cfg",
                                        "/boot/grub2/grub.cfg", "/grub2/grub.cfg", NULL};

    return try_configs(d, v, "GRUB", paths, grub_parse);
}

bool diskimage_try_extlinux(struct disk_search *d, const struct volume *v)
{
    static const char *const paths[] = {"/boot/extlinux/extlinux.conf",
                                        "/extlinux/extlinux.conf",
                                        "/boot/extlinux.conf",
                                        "/extlinux.conf",
                                        "/boot/syslinux/extlinux.conf",
                                        "/syslinux/extlinux.conf",
                                        "/boot/syslinux/syslinux.cfg",
                                        "/syslinux/syslinux.cfg",
                                        "/syslinux.cfg",
                                        NULL};

    return try_configs(d, v, "extlinux", paths, extlinux_parse);
}

/* The newest entry of a directory, while its files are listed. */
struct newest {
    const struct volume *volume;
    const char *directory;
    const char *prefix; /* of kernel files */
    unsigned entries;   /* that were read */
    char name[LOADER_PATH_MAX];
    char version[LOADER_PATH_MAX];
    struct loader_entry entry;
};

static void consider_bls(void *context, const char *name)
{
    struct newest *n = context;
    char path[LOADER_PATH_MAX], version[LOADER_PATH_MAX];
    struct loader_entry entry;
    struct bytes text = {0};
    size_t len = strlen(name);

    if (len <= 5 || strcmp(name + len - 5, ".conf") != 0 || n->entries++ >= ENTRIES_MAX)
        return;
    snprintf(path, sizeof(path), "%s/%.255s", n->directory, name);
    if (ext_fs_read(n->volume->fs, path, ENTRY_MAX, &text) == 0 && text.len > 0 &&
        bls_parse((const char *)text.data, text.len, &entry, version)) {
        if (version[0] == 0)
            copy_text(version, sizeof(version), name);
        if (n->name[0] == 0 || version_compare(version, n->version) > 0) {
            copy_text(n->name, sizeof(n->name), path);
            copy_text(n->version, sizeof(n->version), version);
            n->entry = entry;
        }
    }
    bytes_free(&text);
}

bool diskimage_try_entries(struct disk_search *d, const struct volume *v)
{
    static const char *const directories[] = {"/boot/loader/entries", "/loader/entries"};

    for (size_t i = 0; i < 2; i++) {
        struct newest n = {.volume = v, .directory = directories[i]};

        ext_fs_list(v->fs, n.directory, consider_bls, &n);
        /* Paths there are relative to the file system, whatever they begin with. */
        if (n.name[0]) {
            for (unsigned k = 0; k < n.entry.initrd_count; k++)
                absolute_path(n.entry.initrds[k], "/");
            absolute_path(n.entry.kernel, "/");
            if (take_entry(d, v, "boot loader entry", n.name, &n.entry))
                return true;
        }
    }
    return false;
}

static void consider_kernel(void *context, const char *name)
{
    struct newest *n = context;
    size_t prefix = strlen(n->prefix);

    if (strncmp(name, n->prefix, prefix) != 0 || name[prefix] == 0)
        return;
    if (n->name[0] && version_compare(name + prefix, n->version) <= 0)
        return;
    copy_text(n->name, sizeof(n->name), name);
    copy_text(n->version, sizeof(n->version), name + prefix);
}

/* Name the initrd that belongs to a kernel, as distributions do; none is fine. */
static void find_initrd(const struct volume *v, const char *directory, const char *version,
                        struct loader_entry *entry)
{
    static const char *const forms[] = {"initrd.img-%s", "initramfs-%s.img", "initramfs-%s",
                                        "initrd-%s",     "initrd-%s.img",    NULL};
    static const char *const plain[] = {"initrd.img", "initrd", "initramfs.img", NULL};

    for (size_t i = 0; version ? forms[i] != NULL : plain[i] != NULL; i++) {
        const char *form = version ? forms[i] : plain[i];
        const char *percent = strstr(form, "%s");
        char path[2 * LOADER_PATH_MAX];

        if (percent)
            snprintf(path, sizeof(path), "%s/%.*s%s%s", directory, (int)(percent - form), form,
                     version, percent + 2);
        else
            snprintf(path, sizeof(path), "%s/%s", directory, form);
        if (ext_fs_exists(v->fs, path) &&
            loader_add_initrd(entry, (struct text_span){path, strlen(path)}))
            return;
    }
}

bool diskimage_try_newest(struct disk_search *d, const struct volume *v)
{
    static const char *const directories[] = {"/boot", ""};
    static const char *const prefixes[] = {"vmlinuz-", "vmlinux-", "bzImage-"};
    static const char *const plain[] = {"vmlinuz", "vmlinux", "bzImage"};

    for (size_t i = 0; i < 6; i++) {
        struct newest n = {.volume = v, .directory = directories[i / 3], .prefix = prefixes[i % 3]};
        struct loader_entry entry = {0};

        ext_fs_list(v->fs, n.directory[0] ? n.directory : "/", consider_kernel, &n);
        if (n.name[0] == 0)
            continue;
        snprintf(entry.kernel, sizeof(entry.kernel), "%s/%.255s", n.directory, n.name);
        find_initrd(v, n.directory, n.version, &entry);
        if (take_entry(d, v, "newest kernel", "", &entry))
            return true;
    }
    for (size_t i = 0; i < 6; i++) {
        struct loader_entry entry = {0};

        snprintf(entry.kernel, sizeof(entry.kernel), "%s/%s", directories[i / 3], plain[i % 3]);
        find_initrd(v, directories[i / 3], NULL, &entry);
        if (take_entry(d, v, "newest kernel", "", &entry))
            return true;
    }
    return false;
}
