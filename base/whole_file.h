#ifndef BASE_WHOLE_FILE_H
#define BASE_WHOLE_FILE_H

#include <stdbool.h>

#include "base/err.h"

/* A file that has its name only once it is whole: whatever fails before leaves what was there. */
struct whole_file {
    const char *path; /* the caller's */
    char part[4096 + 8];
    int fd; /* to write to */
};

/* -1 with *e where whole_file_begin() cannot make `path`, as far as can be known. overwrite: also
 * where there is a file of this name. */
int whole_file_check(const char *path, bool overwrite, struct err *e);
int whole_file_begin(struct whole_file *f, const char *path, struct err *e);
/* Give the file its name; or, where that fails or keep is false, take it away. */
int whole_file_end(struct whole_file *f, bool keep, struct err *e);

#endif
