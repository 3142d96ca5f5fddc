/* passt, a program of its own: NAT without rights, with the host's own addresses inside. */
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/program.h"
#include "host/net/backend_child.h"
#include "host/net/net_backend.h"

static char path[PATH_MAX];

static const char *prepare(const struct net_spec *spec, int wire)
{
    (void)spec;
    (void)wire;
    return program_find("passt", path, sizeof path)
               ? NULL
               : "passt is not in PATH; run 'apt-get install passt', or give --net user";
}

static void serve(const struct net_spec *spec, int wire)
{
    char number[16];

    (void)spec;
    snprintf(number, sizeof number, "%d", wire);
    execl(path, "passt", "--foreground", "--quiet", "--fd", number, (char *)NULL);
}

static int open_passt(const struct net_spec *spec, struct err *e)
{
    static const struct backend_child child = {prepare, serve};

    return backend_child_start(&child, spec, e);
}

const struct net_backend net_backend_passt = {.open = open_passt};
