#include "boot/diskimage/diskimage_handed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

/* The struct as it is, which only this very program reads, then kernel and initrd. */
int diskimage_hand(const struct disk_boot *boot, char path[DISKIMAGE_HANDED_MAX], struct err *e)
{
    snprintf(path, DISKIMAGE_HANDED_MAX, "/tmp/ditto-boot.XXXXXX");
    const int fd = mkstemp(path);
    FILE *const f = fd < 0 ? NULL : fdopen(fd, "w");

    if (!f) {
        err_set(e, STATUS_ERROR, "cannot make %s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
            unlink(path);
        }
        path[0] = '\0';
        return -1;
    }
    const bool whole =
        fwrite(boot, sizeof *boot, 1, f) == 1 &&
        fwrite(boot->kernel, 1, boot->kernel_len, f) == boot->kernel_len &&
        (!boot->initrd || fwrite(boot->initrd, 1, boot->initrd_len, f) == boot->initrd_len);
    if (fclose(f) == 0 && whole)
        return 0;
    err_set(e, STATUS_ERROR, "cannot write %s: %s", path, strerror(errno));
    unlink(path);
    path[0] = '\0';
    return -1;
}

int diskimage_take_handed(const char *path, struct disk_boot *out, struct err *e)
{
    uint8_t *data;
    size_t len;

    memset(out, 0, sizeof *out);
    if (file_read(path, 2ull << 30, &data, &len, e) < 0)
        return -1;
    if (len < sizeof *out)
        goto cut;
    memcpy(out, data, sizeof *out);
    out->initrd = NULL;
    out->kernel = NULL;
    if (len - sizeof *out < out->kernel_len ||
        len - sizeof *out - out->kernel_len != out->initrd_len)
        goto cut;
    out->kernel = malloc(out->kernel_len);
    out->initrd = out->initrd_len ? malloc(out->initrd_len) : NULL;
    if (!out->kernel || (out->initrd_len && !out->initrd))
        goto cut;
    memcpy(out->kernel, data + sizeof *out, out->kernel_len);
    if (out->initrd)
        memcpy(out->initrd, data + sizeof *out + out->kernel_len, out->initrd_len);
    free(data);
    return 0;
cut:
    free(data);
    disk_boot_free(out);
    return err_set(e, STATUS_ERROR, "cannot use %s", path);
}
