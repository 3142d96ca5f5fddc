#include "host/host_look.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "config.h"
#include "host/emulated.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Modules that are compiled into the kernel are listed there too, if they have parameters. */
static void find_modules(struct host_facts *h)
{
    DIR *dir = opendir("/sys/module");
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        if (strncmp(entry->d_name, "kvm", 3) || h->module_count == 8)
            continue;
        snprintf(h->modules[h->module_count++], sizeof h->modules[0], "%.31s", entry->d_name);
    }
    if (dir)
        closedir(dir);
    qsort(h->modules, h->module_count, sizeof h->modules[0], by_name);
}

/* The value of a line "key : value" in /proc/cpuinfo, with a space before and behind it. */
static void cpuinfo_value(const char *key, char *out, size_t size)
{
    char line[8192];
    FILE *f = fopen("/proc/cpuinfo", "r");

    *out = 0;
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)))
            continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(out, size, " %s ", colon + 1 + strspn(colon + 1, " \t"));
        break;
    }
    if (f)
        fclose(f);
}

void host_look(const struct invocation *inv, struct host_facts *h)
{
    struct utsname u;
    char flags[8192], model[120];
    struct err e = {0};

    *h = (struct host_facts){.chosen = inv->host};
    if (uname(&u) == 0)
        snprintf(h->kernel, sizeof h->kernel, "%.64s %.90s", u.sysname, u.release);
    cpuinfo_value("model name", model, sizeof model);
    size_t end = strlen(model);
    while (end > 1 && model[end - 1] == ' ')
        model[--end] = 0;
    snprintf(h->cpu, sizeof h->cpu, "%s", end ? model + 1 : "unknown CPU");
    cpuinfo_value("flags", flags, sizeof flags);
    h->virtualizes = strstr(flags, " vmx ") || strstr(flags, " svm ");
    h->device = access("/dev/kvm", F_OK) == 0;
    find_modules(h);
    h->inside = getenv(EMULATED_INSIDE_VARIABLE) != NULL;
    h->emulated = !h->inside && emulated_available(host_data_dir(inv), &e) == 0;
    snprintf(h->emulated_why, sizeof h->emulated_why, "%.255s",
             h->inside ? "this is one already" : e.text);
}
