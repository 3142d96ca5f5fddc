#include "boot/root/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/open_beneath.h"

#define NODES_MAX      (8u << 20)
#define ATTRIBUTES_MAX 4096u /* bytes of all of one file: what fits into a block */

/* Files that have several names, by their inode's number. */
struct link_table {
    struct {
        ino_t ino;
        uint32_t node; /* plus 1; 0: free */
    } * slot;
    size_t size, used; /* size: a power of two, or 0 */
};

/* By the mount, as a file of an overlay file system may have another device than its directory; or
 * by the device, as a bind mount is of the same file system. */
static bool is_same_fs(int a, int b)
{
    struct statx x, y;

    if (statx(a, "", AT_EMPTY_PATH, STATX_MNT_ID, &x) < 0 ||
        statx(b, "", AT_EMPTY_PATH, STATX_MNT_ID, &y) < 0)
        return false;
    return (x.stx_mask & y.stx_mask & STATX_MNT_ID && x.stx_mnt_id == y.stx_mnt_id) ||
           (x.stx_dev_major == y.stx_dev_major && x.stx_dev_minor == y.stx_dev_minor);
}

int tree_open_inside(int directory, const char *path, int flags)
{
    const int fd = open_inside(directory, path, flags);

    if (fd < 0 || is_same_fs(fd, directory))
        return fd;
    close(fd);
    errno = EXDEV;
    return -1;
}

static void *must(void *memory)
{
    if (!memory) {
        fprintf(stderr, "dittovm: out of memory\n");
        abort();
    }
    return memory;
}

/* ---- names of the same file ---- */

static size_t slot_of(const struct link_table *t, ino_t ino)
{
    size_t at = (size_t)((uint64_t)ino * 0x9e3779b97f4a7c15ull >> 20) & (t->size - 1);

    while (t->slot[at].node && t->slot[at].ino != ino)
        at = (at + 1) & (t->size - 1);
    return at;
}

static void grow(struct link_table *t)
{
    const struct link_table old = *t;

    t->size = old.size ? 2 * old.size : 1024;
    t->slot = must(calloc(t->size, sizeof *t->slot));
    for (size_t i = 0; i < old.size; i++)
        if (old.slot[i].node)
            t->slot[slot_of(t, old.slot[i].ino)] = old.slot[i];
    free(old.slot);
}

/* The node that had this inode first, which is `node` if none had. */
static uint32_t first_with(struct link_table *t, ino_t ino, uint32_t node)
{
    if (2 * t->used >= t->size)
        grow(t);
    const size_t at = slot_of(t, ino);
    if (t->slot[at].node)
        return t->slot[at].node - 1;
    t->slot[at].ino = ino;
    t->slot[at].node = node + 1;
    t->used++;
    return node;
}

/* ---- the walk ---- */

char *tree_path(const struct tree *tree, uint32_t node)
{
    size_t len = 0;

    if (!node)
        return must(strdup("."));
    for (uint32_t n = node; n; n = tree->node[n].parent)
        len += strlen(tree->node[n].name) + 1;
    char *path = must(malloc(len));
    path[--len] = '\0';
    for (uint32_t n = node; n; n = tree->node[n].parent) {
        const size_t part = strlen(tree->node[n].name);
        memcpy(path + len - part, tree->node[n].name, part);
        len -= part;
        if (len)
            path[--len] = '/';
    }
    return path;
}

/* Capabilities, lists of access rights, labels. What cannot be read is not there. */
static void read_attributes(int fd, const char *name, struct bytes *out)
{
    char path[64 + NAME_MAX], names[ATTRIBUTES_MAX], value[ATTRIBUTES_MAX];

    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", fd, name);
    const ssize_t len = llistxattr(path, names, sizeof names);
    for (ssize_t at = 0; at < len; at += (ssize_t)strlen(names + at) + 1) {
        const ssize_t size = lgetxattr(path, names + at, value, sizeof value);
        if (size < 0)
            continue;
        bytes_put(out, names + at, strlen(names + at) + 1);
        bytes_put_u32(out, (uint32_t)size);
        bytes_put(out, value, (size_t)size);
    }
    if (out->len > ATTRIBUTES_MAX / 2)
        bytes_free(out);
}

static char *read_link(int fd, const char *name, off_t size)
{
    const size_t room = size > 0 && size < PATH_MAX ? (size_t)size : PATH_MAX - 1;
    char *target = must(malloc(room + 1));
    const ssize_t len = readlinkat(fd, name, target, room);

    target[len > 0 ? len : 0] = '\0';
    return target;
}

static struct tree_node *new_node(struct tree *tree, uint32_t parent, const char *name)
{
    if ((tree->count & (tree->count - 1)) == 0) /* it is full at each power of two */
        tree->node =
            must(realloc(tree->node, (tree->count ? 2u * tree->count : 1u) * sizeof *tree->node));
    struct tree_node *node = &tree->node[tree->count];
    *node = (struct tree_node){
        .parent = parent,
        .first_child = TREE_NONE,
        .next = TREE_NONE,
        .same_as = tree->count++,
        .links = 1,
        .name = must(strdup(name)),
    };
    return node;
}

/* One entry of the directory `parent`, which fd is open on. *last: the one before. */
static void add_entry(struct tree *tree, struct link_table *links, uint32_t parent, int fd,
                      const char *name, uint32_t *last)
{
    struct stat st;

    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return; /* it is gone */
    struct tree_node *node = new_node(tree, parent, name);
    const uint32_t self = tree->count - 1;
    node->st = st;
    if (*last == TREE_NONE)
        tree->node[parent].first_child = self;
    else
        tree->node[*last].next = self;
    *last = self;
    if (S_ISDIR(st.st_mode)) {
        node->links = 2;
        tree->node[parent].links++;
    } else if (st.st_nlink > 1 && st.st_dev == tree->node[0].st.st_dev) {
        node->same_as = first_with(links, st.st_ino, self);
    }
    if (node->same_as != self) {
        tree->node[node->same_as].links++;
        return;
    }
    if (S_ISLNK(st.st_mode))
        node->target = read_link(fd, name, st.st_size);
    read_attributes(fd, name, &node->attributes);
}

static void note_unread(struct tree *tree, const char *path)
{
    if (!tree->unread++)
        snprintf(tree->unread_first, sizeof tree->unread_first, "%s", path);
}

static void walk_directory(struct tree *tree, struct link_table *links, uint32_t self)
{
    char *path = tree_path(tree, self);
    const int fd = open_beneath(tree->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    uint32_t last = TREE_NONE;

    if (!dir) {
        note_unread(tree, path);
        if (fd >= 0)
            close(fd);
    }
    for (const struct dirent *d; dir && tree->count <= NODES_MAX && (d = readdir(dir));)
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            add_entry(tree, links, self, fd, d->d_name, &last);
    if (dir)
        closedir(dir);
    free(path);
}

int tree_walk(struct tree *tree, const char *directory, struct err *e)
{
    struct link_table links = {0};
    struct stat st;

    *tree = (struct tree){.fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (tree->fd < 0 || fstat(tree->fd, &st) < 0) {
        err_set(e, STATUS_ERROR, "cannot use %s as a root: %s", directory, strerror(errno));
        tree_free(tree);
        return -1;
    }
    struct tree_node *root = new_node(tree, 0, "");
    root->st = st;
    root->links = 2;
    for (uint32_t i = 0; i < tree->count && tree->count <= NODES_MAX; i++)
        if (S_ISDIR(tree->node[i].st.st_mode) && tree->node[i].st.st_dev == st.st_dev)
            walk_directory(tree, &links, i);
    free(links.slot);
    if (tree->count <= NODES_MAX)
        return 0;
    tree_free(tree);
    return err_set(e, STATUS_ERROR, "%s has more than %u files: give a smaller directory as --root",
                   directory, NODES_MAX);
}

void tree_free(struct tree *tree)
{
    for (uint32_t i = 0; i < tree->count; i++) {
        free(tree->node[i].name);
        free(tree->node[i].target);
        bytes_free(&tree->node[i].attributes);
    }
    free(tree->node);
    if (tree->fd >= 0)
        close(tree->fd);
    *tree = (struct tree){.fd = -1};
}
