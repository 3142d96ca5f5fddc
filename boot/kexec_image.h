#ifndef BOOT_KEXEC_IMAGE_H
#define BOOT_KEXEC_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "mmu/memory.h"

/*
 * What Linux's kexec system calls have made of a new kernel (struct kimage): pages that lie
 * anywhere until relocate_kernel() puts them where they belong, by a list of entries. See
 * include/linux/kexec.h of Linux; hostile.
 */
struct kexec_image {
    uint64_t head;  /* the first entry of the list */
    uint64_t start; /* where the new code is entered: purgatory */
};
#define KEXEC_IMAGE_HEAD  0u /* offsets in struct kimage */
#define KEXEC_IMAGE_START 24u

/* Where the pages are now that will be at the GPA `page` and behind it; a page that is not in the
 * list is there already. */
void kexec_image_sources(const struct guest_memory *m, const struct kexec_image *image,
                         uint64_t page, size_t count, uint64_t sources[]);
/* The same of one byte. */
uint64_t kexec_image_source(const struct guest_memory *m, const struct kexec_image *image,
                            uint64_t at);

/*
 * Where purgatory jumps to the kernel: behind loads of the registers, by
 *
 *     jmp *entry(%rip)        FF 25 distance
 */
struct kexec_jump {
    uint64_t at;    /* GPA of the jump */
    uint64_t entry; /* GPA of the quadword that it jumps by */
};
#define KEXEC_LOADS_BYTES 21u /* of loads in front of it, at least */

bool kexec_image_find_jump(const struct guest_memory *m, const struct kexec_image *image,
                           struct kexec_jump *out);

#endif
