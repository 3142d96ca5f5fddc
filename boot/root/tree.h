#ifndef BOOT_ROOT_TREE_H
#define BOOT_ROOT_TREE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/err.h"

/*
 * What is in a directory that is to be a machine's root, without the contents of its files. The
 * walk stays on the directory's own file system: where another one is mounted there is an empty
 * directory.
 */
struct tree_node {
    uint32_t parent;            /* the root is its own */
    uint32_t first_child, next; /* TREE_NONE: there is none */
    uint32_t same_as;           /* the first name of what has several; itself, if it is that */
    uint32_t links; /* of the first name: how many there are, or of a directory "." and ".." */
    uint32_t ino;   /* of the first name; for who makes a file system of it */
    char *name;     /* "" of the root */
    char *target;   /* of a symbolic link, else NULL */
    struct bytes attributes; /* name, NUL, a u32 of the length, the value, and so on */
    struct stat st;
};
#define TREE_NONE UINT32_MAX

struct tree {
    struct tree_node *node; /* the root first; a directory before what is in it */
    uint32_t count;
    int fd;          /* of the directory */
    uint32_t unread; /* directories that could not be read, and so are empty; the first of them */
    char unread_first[256];
};

/* -1: it is no directory, cannot be read, or has too many files for one file system. */
int tree_walk(struct tree *tree, const char *directory, struct err *e);
void tree_free(struct tree *tree);

/* The path of a node, relative to the directory; "." of the root. The caller frees it. */
char *tree_path(const struct tree *tree, uint32_t node);

/* Open what is beneath a directory without leaving it and without following a link. -1 with errno.
 */
int tree_open(int directory, const char *path, int flags);
/* The same as it would be in a root of its own: links are followed there. It stays on the file
 * system. */
int tree_open_inside(int directory, const char *path, int flags);

#endif
