#ifndef BASE_PROGRAM_H
#define BASE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

/* The file that execvp() would execute for a program: one in PATH, or a path itself. Whether there
 * is one; file has `size` bytes and is cut to them. */
bool program_find(const char *program, char *file, size_t size);

#endif
