#include "boot/root/root.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/command_protocol.h"
#include "base/file.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "boot/root/kernel_modules.h"
#include "boot/root/ram_disk.h"
#include "boot/root/tree.h"
#include "boot/root/tree_image.h"
#include "devices/disk/disk_tree.h"

#define KERNEL_MAX (256ull << 20)

/* ---- the initial ram disk ---- */

static void put_text(struct bytes *out, const char *text)
{
    bytes_put(out, text, strlen(text) + 1);
}

static void put_number(struct bytes *out, unsigned number)
{
    char text[16];

    snprintf(text, sizeof text, "%u", number);
    put_text(out, text);
}

/* What guest-tools/command/init.c reads: texts, each with a NUL. */
static void describe(const struct root_request *r, struct bytes *out)
{
    const char *term = getenv("TERM");
    char *cwd = getcwd(NULL, 0);

    put_number(out, r->terminal);
    put_number(out, r->rows);
    put_number(out, r->columns);
    put_number(out, r->user_net);
    put_text(out, cwd ? cwd : "/");
    put_text(out, r->terminal && term ? term : "dumb");
    for (char *const *word = r->command; *word; word++)
        put_text(out, *word);
    free(cwd);
}

static void make_ram_disk(const struct root_request *r, const struct kernel_modules *modules,
                          struct bytes *out)
{
    static const char *const directories[] = {"dev", "proc", "sys", "root", "ditto", "modules"};
    struct bytes text = {0};
    char path[NAME_MAX + 16];

    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
        ram_disk_put(out, directories[i], S_IFDIR | 0755, NULL, 0);
    ram_disk_put(out, "init", S_IFREG | 0755, command_init,
                 (size_t)(command_init_end - command_init));
    describe(r, &text);
    ram_disk_put(out, COMMAND_FILE + 1, S_IFREG | 0644, text.data, text.len);
    bytes_clear(&text);
    for (unsigned i = 0; i < modules->count; i++) {
        snprintf(path, sizeof path, "modules/%s", modules->at[i].name);
        ram_disk_put(out, path, S_IFREG | 0644, modules->at[i].data, modules->at[i].len);
        put_text(&text, path);
    }
    ram_disk_put(out, COMMAND_MODULES_FILE + 1, S_IFREG | 0644, text.data, text.len);
    ram_disk_end(out);
    bytes_free(&text);
}

/* ---- the files ---- */

static int write_file(const char *made, const char *name, const struct bytes *data, struct err *e)
{
    char path[ROOT_MADE_MAX + 16];

    snprintf(path, sizeof path, "%s/%s", made, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    size_t done = 0;
    while (fd >= 0 && done < data->len) {
        const ssize_t n = write(fd, data->data + done, data->len - done);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    const bool ok = fd >= 0 && done == data->len;
    if (!ok)
        err_set(e, STATUS_ERROR, "cannot write %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return ok ? 0 : -1;
}

static void say_what_is_missing(const struct tree *tree, const char *directory, uint32_t left_empty)
{
    if (tree->unread)
        text_print(stderr,
                   "dittovm: %u director%s of %s cannot be read, and so nothing is in there for "
                   "the guest: %s%s\n",
                   tree->unread, tree->unread == 1 ? "y" : "ies", directory, tree->unread_first,
                   tree->unread == 1 ? "" : ", ...");
    if (left_empty)
        text_print(stderr, "dittovm: %u file%s of %s too large, and so empty for the guest\n",
                   left_empty, left_empty == 1 ? " is" : "s are", directory);
}

static int make_disk(const char *directory, const char *made, bool quiet, struct tree *tree,
                     struct err *e)
{
    struct bytes table = {0};
    char path[ROOT_MADE_MAX + 16], absolute[PATH_MAX];
    uint32_t left_empty;

    if (!realpath(directory, absolute))
        return err_set(e, STATUS_ERROR, "cannot use %s as a root: %s", directory, strerror(errno));
    snprintf(path, sizeof path, "%s/" DISK_TREE_IMAGE, made);
    int rc = tree_image_make(tree, absolute, path, &table, &left_empty, e);
    if (rc == 0)
        rc = write_file(made, DISK_TREE_TABLE, &table, e);
    bytes_free(&table);
    if (rc == 0 && !quiet)
        say_what_is_missing(tree, directory, left_empty);
    return rc;
}

static int load_modules(const struct root_request *r, int root, struct kernel_modules *modules,
                        struct err *e)
{
    char release[KERNEL_RELEASE_MAX];
    uint8_t *kernel;
    size_t len;

    if (file_read(r->kernel, KERNEL_MAX, &kernel, &len, e) < 0)
        return -1;
    const int rc = kernel_release(kernel, len, release, e);
    free(kernel);
    const struct kernel_modules_place place = {release, r->modules, root, r->kernel};
    return rc < 0 ? -1 : kernel_modules_load(&place, r->network, modules, e);
}

int root_make(const struct root_request *r, char made[ROOT_MADE_MAX], struct err *e)
{
    struct kernel_modules modules = {0};
    struct bytes ram_disk = {0};
    struct tree tree;

    made[0] = '\0';
    if (tree_walk(&tree, r->directory, e) < 0)
        return -1;
    int rc = load_modules(r, tree.fd, &modules, e);
    if (rc == 0) {
        stop_signals_block();
        snprintf(made, ROOT_MADE_MAX, "/tmp/ditto-root.XXXXXX");
        if (!mkdtemp(made)) {
            made[0] = '\0';
            rc = err_set(e, STATUS_ERROR, "cannot make a directory in /tmp: %s", strerror(errno));
        }
    }
    if (rc == 0)
        rc = make_disk(r->directory, made, r->quiet, &tree, e);
    if (rc == 0) {
        make_ram_disk(r, &modules, &ram_disk);
        rc = write_file(made, ROOT_RAM_DISK, &ram_disk, e);
    }
    bytes_free(&ram_disk);
    kernel_modules_free(&modules);
    tree_free(&tree);
    if (rc < 0)
        root_remove(made);
    return rc;
}

void root_remove(const char *made)
{
    static const char *const names[] = {DISK_TREE_IMAGE, DISK_TREE_TABLE, ROOT_RAM_DISK};
    char path[ROOT_MADE_MAX + 16];

    if (!made[0])
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", made, names[i]);
        unlink(path);
    }
    rmdir(made);
}
