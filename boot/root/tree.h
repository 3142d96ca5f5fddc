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

/* open_inside() of what is on the directory's own file system, as nothing else is in the machine's
 * root: else EXDEV. */
int tree_open_inside(int directory, const char *path, int flags);

#endif
