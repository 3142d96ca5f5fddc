#include "host/emulated_port.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The kernel makes a port's node some time after the command has begun. */
#define PORT_TRIES 100
#define PORT_MS    50

static bool port_is(const char *port, const char *wanted)
{
    char path[300], name[32] = "";

    snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", port);
    FILE *f = fopen(path, "re");
    bool found = f && fgets(name, sizeof name, f);
    if (f)
        fclose(f);
    name[strcspn(name, "\n")] = '\0';
    return found && !strcmp(name, wanted);
}

static bool look(const char *name, char device[EMULATED_PORT_MAX])
{
    DIR *dir = opendir("/sys/class/virtio-ports");
    struct dirent *entry;
    bool found = false;

    while (dir && !found && (entry = readdir(dir))) {
        found = entry->d_name[0] != '.' && strlen(entry->d_name) < EMULATED_PORT_MAX - 5 &&
                port_is(entry->d_name, name);
        if (found)
            snprintf(device, EMULATED_PORT_MAX, "/dev/%.58s", entry->d_name);
    }
    if (dir)
        closedir(dir);
    return found;
}

bool emulated_port_find(const char *name, char device[EMULATED_PORT_MAX])
{
    for (unsigned i = 0; i < PORT_TRIES; i++) {
        if (look(name, device))
            return true;
        usleep(PORT_MS * 1000);
    }
    return false;
}
