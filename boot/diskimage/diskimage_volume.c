#include "boot/diskimage/diskimage_volume.h"

#include <stdio.h>

/* False: it is too long to exist. */
static bool path_in_file_system(const struct volume *v, const char *path,
                                char whole[VOLUME_PATH_MAX])
{
    return snprintf(whole, VOLUME_PATH_MAX, "%s%s", v->subvolume, path) < (int)VOLUME_PATH_MAX;
}

bool volume_exists(const struct volume *v, const char *path)
{
    char whole[VOLUME_PATH_MAX];

    return path_in_file_system(v, path, whole) && v->ops->exists(v->fs, whole);
}

int volume_read(const struct volume *v, const char *path, size_t limit, struct bytes *out)
{
    char whole[VOLUME_PATH_MAX];

    return path_in_file_system(v, path, whole) ? v->ops->read(v->fs, whole, limit, out) : -1;
}

void volume_list(const struct volume *v, const char *path,
                 void (*fn)(void *context, const char *name), void *context)
{
    char whole[VOLUME_PATH_MAX];

    if (path_in_file_system(v, path, whole))
        v->ops->list(v->fs, whole, fn, context);
}

void volume_close(struct volume *v)
{
    if (!v->lent)
        v->ops->close(v->fs);
}
