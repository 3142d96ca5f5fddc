#include "boot/root/module_file.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "boot/unpack.h"

#define MODULE_MAX (256u << 20)

static bool has_suffix(const char *path, const char *suffix)
{
    const size_t len = strlen(path), end = strlen(suffix);

    return len > end && !strcmp(path + len - end, suffix);
}

int module_file_read(const struct module_directory *directory, const char *path, struct bytes *out,
                     struct err *e)
{
    struct bytes packed = {0};
    bool ok = true;

    *out = (struct bytes){0};
    if (module_directory_read(directory, path, MODULE_MAX, &packed.data, &packed.len, e) < 0)
        return -1;
    if (has_suffix(path, ".xz"))
        ok = unpack_xz(packed.data, packed.len, MODULE_MAX, out);
    else if (has_suffix(path, ".zst"))
        ok = unpack_zstd(packed.data, packed.len, MODULE_MAX, out);
    else if (has_suffix(path, ".gz"))
        ok = unpack_gzip(packed.data, packed.len, MODULE_MAX, out);
    else
        bytes_put(out, packed.data, packed.len);
    free(packed.data);
    if (ok && out->len)
        return 0;
    bytes_free(out);
    return err_set(e, STATUS_ERROR, "the kernel module %s is damaged", path);
}
