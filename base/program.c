#include "base/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool program_find(const char *program, char *file, size_t size)
{
    const char *path = getenv("PATH");
    char *dirs = strdup(path ? path : "/usr/bin:/bin"), *rest = dirs, *dir;
    bool found = false;

    if (strchr(program, '/')) {
        snprintf(file, size, "%s", program);
        found = access(file, X_OK) == 0;
    }
    while (!strchr(program, '/') && !found && (dir = strsep(&rest, ":"))) {
        snprintf(file, size, "%s/%s", *dir ? dir : ".", program);
        found = access(file, X_OK) == 0;
    }
    free(dirs);
    return found;
}
