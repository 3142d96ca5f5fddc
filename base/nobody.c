#include "base/nobody.h"

#include <grp.h>
#include <stddef.h>
#include <unistd.h>

#define NOBODY 65534

const char *become_nobody(void)
{
    if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
                           setresuid(NOBODY, NOBODY, NOBODY) < 0))
        return "root may not become nobody here; run dittovm as another user";
    return NULL;
}
