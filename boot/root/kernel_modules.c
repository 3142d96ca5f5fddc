#include "boot/root/kernel_modules.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boot/boot_bzimage.h"
#include "boot/boot_elf.h"
#include "boot/root/module_directory.h"
#include "boot/root/module_file.h"

#define LIST_MAX  (64u << 20)
#define DEPTH_MAX 16u /* of modules that need others */

/* What has to be there, be it built in; and what is loaded if it is. ext4 of before 6.12 asks for
 * crc32c by the name of an algorithm, which modules.dep does not know. */
static const struct wanted {
    const char *name;
    bool must, network;
} wanted[] = {
    {"virtio_pci", true, false}, {"virtio_blk", true, false},  {"crc32c_generic", false, false},
    {"ext4", true, false},       {"virtio_rng", false, false}, {"virtio_net", false, true},
};

/* ---- the release ---- */

static void take_word(char release[KERNEL_RELEASE_MAX], const char *text, size_t len)
{
    size_t n = 0;

    while (n < len && n < KERNEL_RELEASE_MAX - 1 && text[n] > ' ' && text[n] < 0x7f &&
           text[n] != '/')
        n++;
    memcpy(release, text, n);
    release[n] = '\0';
}

int kernel_release(const uint8_t *kernel, size_t len, char release[KERNEL_RELEASE_MAX],
                   struct err *e)
{
    static const char banner[] = "Linux version ";
    struct bzimage bz;
    struct elf_view elf;

    release[0] = '\0';
    if (len >= 4 && !memcmp(kernel, "\177ELF", 4)) {
        const uint8_t *at = memmem(kernel, len, banner, sizeof banner - 1);
        if (elf_open(&elf, kernel, len, "kernel", e) < 0)
            return -1;
        if (at)
            take_word(release, (const char *)at + sizeof banner - 1,
                      (size_t)(kernel + len - at) - (sizeof banner - 1));
        return 0;
    }
    if (bzimage_open(&bz, kernel, len, e) < 0)
        return -1;
    take_word(release, bz.version, strlen(bz.version));
    return 0;
}

/* ---- the lists ---- */

/* A list as one text; "" where it is not there. The caller frees it. */
static char *read_list(const struct module_directory *directory, const char *name)
{
    uint8_t *data;
    size_t len;
    struct err ignored;

    if (module_directory_read(directory, name, LIST_MAX, &data, &len, &ignored) < 0)
        return strdup("");
    char *text = strndup((char *)data, len);
    free(data);
    return text;
}

/* Whether a path is that of a module. Both have '-' or '_' as they like. */
static bool is_module(const char *path, size_t len, const char *name)
{
    const char *slash = memrchr(path, '/', len);
    const char *base = slash ? slash + 1 : path;
    const size_t left = (size_t)(path + len - base), wanted_len = strlen(name);

    if (left < wanted_len + 3 || memcmp(base + wanted_len, ".ko", 3) != 0)
        return false;
    for (size_t i = 0; i < wanted_len; i++)
        if ((base[i] == '-' ? '_' : base[i]) != (name[i] == '-' ? '_' : name[i]))
            return false;
    return true;
}

static bool is_built_in(const char *list, const char *name)
{
    for (const char *line = list; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (is_module(line, strcspn(line, "\n"), name))
            return true;
    return false;
}

/* Its path in modules.dep, "path: ...", or in modules.order, a path in each line. */
static const char *find_path(const char *list, const char *name, size_t *len)
{
    for (const char *line = list; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        *len = strcspn(line, ":\n");
        if (is_module(line, *len, name))
            return line;
    }
    return NULL;
}

/* ---- loading ---- */

static char *file_name(const char *path, size_t len)
{
    const char *slash = memrchr(path, '/', len);
    const char *base = slash ? slash + 1 : path;
    const char *end = memmem(base, (size_t)(path + len - base), ".ko", 3);

    return strndup(base, end ? (size_t)(end + 3 - base) : (size_t)(path + len - base));
}

/* Names, with commas between them, of those that it needs: "depends=" of its .modinfo. */
static const char *depends_of(const struct bytes *module)
{
    static const char key[] = "\0depends=";
    const char *at = memmem(module->data, module->len, key, sizeof key - 1);

    if (!at ||
        !memchr(at + 1, '\0', module->len - (size_t)((const uint8_t *)at + 1 - module->data)))
        return "";
    return at + sizeof key - 1;
}

struct loading {
    const struct module_directory *directory;
    char *builtin, *paths;
    struct kernel_modules *modules;
};

static bool is_loaded(const struct kernel_modules *m, const char *name)
{
    for (unsigned i = 0; i < m->count; i++)
        if (is_module(m->at[i].name, strlen(m->at[i].name), name))
            return true;
    return false;
}

/* modules.order has names as they were before they were compressed. */
static int read_module(const struct module_directory *directory, const char *path, size_t len,
                       struct bytes *out, struct err *e)
{
    static const char *const suffixes[] = {"", ".xz", ".zst", ".gz"};
    char whole[PATH_MAX];

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        if (snprintf(whole, sizeof whole, "%.*s%s", (int)len, path, suffixes[i]) <
                (int)sizeof whole &&
            module_directory_has(directory, whole))
            return module_file_read(directory, whole, out, e);
    }
    return err_set(e, STATUS_ERROR, "cannot read the kernel module %.*s", (int)len, path);
}

static int load(const struct loading *l, const char *name, unsigned depth, bool *found,
                struct err *e);

static int load_dependencies(const struct loading *l, const char *names, unsigned depth,
                             struct err *e)
{
    char name[NAME_MAX + 1];
    bool found;

    while (*names) {
        const size_t len = strcspn(names, ",");
        if (len && len < sizeof name) {
            memcpy(name, names, len);
            name[len] = '\0';
            if (load(l, name, depth + 1, &found, e) < 0)
                return -1;
        }
        names += len;
        names += *names == ',';
    }
    return 0;
}

/* A module behind those that it needs. *found: it is there, or built in. */
static int load(const struct loading *l, const char *name, unsigned depth, bool *found,
                struct err *e)
{
    struct bytes data = {0};
    size_t len;

    *found = is_built_in(l->builtin, name) || is_loaded(l->modules, name);
    const char *path = *found || depth > DEPTH_MAX ? NULL : find_path(l->paths, name, &len);
    if (!path)
        return 0;
    *found = true;
    if (read_module(l->directory, path, len, &data, e) < 0 ||
        load_dependencies(l, depends_of(&data), depth, e) < 0) {
        bytes_free(&data);
        return -1;
    }
    struct kernel_modules *m = l->modules;
    if (is_loaded(m, name)) { /* by one that it needs, and that needs it */
        bytes_free(&data);
        return 0;
    }
    struct kernel_module *at = realloc(m->at, (m->count + 1) * sizeof *at);
    char *file = file_name(path, len);
    if (!at || !file)
        abort();
    m->at = at;
    m->at[m->count++] = (struct kernel_module){file, data.data, data.len};
    return 0;
}

static int load_all(const struct loading *l, const struct kernel_modules_place *place, bool network,
                    struct err *e)
{
    bool found;

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (wanted[i].network && !network)
            continue;
        if (load(l, wanted[i].name, 0, &found, e) < 0)
            return -1;
        if (!found && wanted[i].must)
            return err_set(
                e, STATUS_ERROR,
                "the modules of Linux %s have no %s, which its root disk needs; give a kernel "
                "with it, or its modules with --modules",
                place->release, wanted[i].name);
    }
    return 0;
}

int kernel_modules_load(const struct kernel_modules_place *place, bool network,
                        struct kernel_modules *modules, struct err *e)
{
    struct module_directory directory;
    const bool has = module_directory_find(&directory, place);

    *modules = (struct kernel_modules){0};
    if (!has && place->named)
        return err_set(e, STATUS_ERROR,
                       "%s has no modules of Linux %s (neither modules.dep nor modules.order)",
                       place->named, place->release);
    if (!has)
        return 0;
    struct loading l = {
        .directory = &directory,
        .builtin = read_list(&directory, "modules.builtin"),
        .paths = read_list(&directory, "modules.dep"),
        .modules = modules,
    };
    if (l.paths && !l.paths[0]) { /* depmod has not been there */
        free(l.paths);
        l.paths = read_list(&directory, "modules.order");
    }
    const int rc = l.builtin && l.paths ? load_all(&l, place, network, e)
                                        : err_set(e, STATUS_ERROR, "out of memory");
    free(l.builtin);
    free(l.paths);
    module_directory_close(&directory);
    if (rc < 0)
        kernel_modules_free(modules);
    return rc;
}

void kernel_modules_free(struct kernel_modules *modules)
{
    for (unsigned i = 0; i < modules->count; i++) {
        free(modules->at[i].name);
        free(modules->at[i].data);
    }
    free(modules->at);
    *modules = (struct kernel_modules){0};
}
