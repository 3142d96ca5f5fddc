#include "boot/diskimage/diskimage_boot.h"

#include <stdlib.h>
#include <string.h>

void disk_boot_free(struct disk_boot *b)
{
    free(b->kernel);
    free(b->initrd);
    memset(b, 0, sizeof(*b));
}
