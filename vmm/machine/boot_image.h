#ifndef VMM_MACHINE_BOOT_IMAGE_H
#define VMM_MACHINE_BOOT_IMAGE_H

#include "boot/kernel_code.h"
#include "recorder/recorder.h"

/* What a machine is before its first instruction, its kernel loaded: it boots from that again. */
struct boot_image {
    struct guest_memory memory; /* touched only where that of the machine was */
    uint64_t *pages;            /* one bit each: those */
    struct initial_vcpu cpus[MAX_VCPUS];
    struct kernel_code kernel_code;
};

/* Remember it; NULL, with *e: there is no memory. */
struct boot_image *boot_image_take(struct vm *vm, const struct kernel_code *code, struct err *e);
void boot_image_free(struct boot_image *image);

#endif
