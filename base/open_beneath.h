#ifndef BASE_OPEN_BENEATH_H
#define BASE_OPEN_BENEATH_H

/*
 * Open what is beneath a directory that somebody else has filled: nothing outside of it is opened,
 * whatever its links say. `flags` as of open(2), with O_CLOEXEC. -1 with errno.
 */

/* Without following a link. */
int open_beneath(int directory, const char *path, int flags);
/* As it would be in a root of its own: links, also absolute ones, are followed there. */
int open_inside(int directory, const char *path, int flags);

#endif
