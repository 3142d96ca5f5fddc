#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "boot/diskimage/diskimage_loader.h"
#include "boot/diskimage/diskimage_methods.h"
#include "boot/diskimage/diskimage_take.h"

#define CONFIG_MAX ((size_t)1 << 20)

static void copy_text(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text);
}

typedef bool (*config_parser)(const char *text, size_t len, struct loader_entry *out);

static bool try_configs(struct disk_search *d, const struct volume *v, const char *loader,
                        const char *const paths[], config_parser parse)
{
    for (size_t i = 0; paths[i]; i++) {
        struct bytes text = {0};
        struct loader_entry entry = {0};
        bool parsed = volume_read(v, paths[i], CONFIG_MAX, &text) == 0 && text.len > 0 &&
                      parse((const char *)text.data, text.len, &entry);

        bytes_free(&text);
        if (parsed && diskimage_take(d, v, loader, paths[i], &entry))
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

/* The newest kernel of a directory, while its files are listed. */
struct newest_kernel {
    const char *prefix; /* of kernel files */
    char name[LOADER_PATH_MAX];
    char version[LOADER_PATH_MAX];
};

static void consider_kernel(void *context, const char *name)
{
    struct newest_kernel *n = context;
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
        if (volume_exists(v, path) &&
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
        const char *const directory = directories[i / 3];
        struct newest_kernel n = {.prefix = prefixes[i % 3]};
        struct loader_entry entry = {0};

        volume_list(v, directory[0] ? directory : "/", consider_kernel, &n);
        if (n.name[0] == 0)
            continue;
        snprintf(entry.kernel, sizeof(entry.kernel), "%s/%.255s", directory, n.name);
        find_initrd(v, directory, n.version, &entry);
        if (diskimage_take(d, v, "newest kernel", "", &entry))
            return true;
    }
    for (size_t i = 0; i < 6; i++) {
        struct loader_entry entry = {0};

        snprintf(entry.kernel, sizeof(entry.kernel), "%s/%s", directories[i / 3], plain[i % 3]);
        find_initrd(v, directories[i / 3], NULL, &entry);
        if (diskimage_take(d, v, "newest kernel", "", &entry))
            return true;
    }
    return false;
}
