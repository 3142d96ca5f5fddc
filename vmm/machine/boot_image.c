#include "vmm/machine/boot_image.h"

#include <stdlib.h>
#include <string.h>

static void copy_memory(struct boot_image *image, const struct guest_memory *m)
{
    for (uint64_t start = 0, end; guest_memory_touched(m, &start, &end); start = end) {
        memcpy(image->memory.host + start, m->host + start, end - start);
        for (uint64_t at = start; at < end; at += PAGE_BYTES)
            bitmap_set(image->pages, at / PAGE_BYTES);
    }
}

struct boot_image *boot_image_take(struct vm *vm, const struct kernel_code *code, struct err *e)
{
    struct boot_image *image = calloc(1, sizeof *image);

    if (!image) {
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    image->memory.fd = -1;
    image->kernel_code = *code;
    image->pages = calloc(vm_bitmap_words(vm), sizeof *image->pages);
    int rc = image->pages ? guest_memory_create(&image->memory, vm->memory.size, e)
                          : err_set(e, STATUS_ERROR, "out of memory");
    for (unsigned i = 0; i < MAX_VCPUS && vm->vcpu[i] && rc == 0; i++)
        if (vcpu_state_get(vm->vcpu[i], &image->cpus[i].state, e) < 0 ||
            vcpu_pending_get(vm->vcpu[i], &image->cpus[i].pending, e) < 0)
            rc = -1;
    if (rc < 0) {
        boot_image_free(image);
        return NULL;
    }
    copy_memory(image, &vm->memory);
    return image;
}

void boot_image_free(struct boot_image *image)
{
    if (!image)
        return;
    guest_memory_destroy(&image->memory);
    free(image->pages);
    free(image);
}
