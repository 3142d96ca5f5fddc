#include "vmm/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/msr.h"
#include "vmm/annex.h"
#include "vmm/trace.h"

int kvm_open(struct err *e)
{
    int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

    if (fd < 0 && errno == EACCES)
        return err_set(e, STATUS_ERROR,
                       "no permission on /dev/kvm: run as root, join the group kvm, or give "
                       "--host emulated");
    if (fd < 0)
        return err_set(e, STATUS_ERROR, "cannot open /dev/kvm: %s (give --host emulated)",
                       strerror(errno));
    if (ioctl(fd, KVM_GET_API_VERSION, 0) != KVM_API_VERSION) {
        close(fd);
        return err_set(e, STATUS_ERROR, "/dev/kvm does not speak KVM API version %d",
                       KVM_API_VERSION);
    }
    return fd;
}

static int add_slot(struct vm *vm, unsigned slot, uint64_t gpa, uint64_t size, void *host,
                    bool log_writes, struct err *e)
{
    struct kvm_userspace_memory_region region = {
        .slot = slot,
        .flags = log_writes ? KVM_MEM_LOG_DIRTY_PAGES : 0,
        .guest_phys_addr = gpa,
        .memory_size = size,
        .userspace_addr = (uintptr_t)host,
    };

    if (size && ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &region) < 0)
        return err_set(e, STATUS_ERROR, "KVM refuses %llu MiB of guest memory: %s",
                       (unsigned long long)(size >> 20), strerror(errno));
    return 0;
}

static int add_slots(struct vm *vm, bool log_writes, struct err *e)
{
    const struct guest_memory *m = &vm->memory;

    if (add_slot(vm, 0, 0, m->low_size, m->host, log_writes, e) < 0)
        return -1;
    return add_slot(vm, 1, MEMORY_HIGH_BASE, m->high_size, m->host + m->low_size, log_writes, e);
}

static int configure(struct vm *vm, struct err *e)
{
    /* Three pages below 4 GiB that kvm_intel needs when EPT lacks "unrestricted guest". */
    if (ioctl(vm->fd, KVM_SET_TSS_ADDR, 0xfffbd000ul) < 0)
        return err_set(e, STATUS_ERROR, "KVM_SET_TSS_ADDR: %s", strerror(errno));
    if (msr_filter_install(vm->fd, e) < 0)
        return -1;
    return add_slots(vm, false, e);
}

int vm_log_writes(struct vm *vm, bool on, struct err *e)
{
    return add_slots(vm, on, e);
}

int vm_collect_writes(struct vm *vm, uint64_t *bitmap, struct err *e)
{
    const size_t words = vm_bitmap_words(vm), low = vm->memory.low_size / PAGE_BYTES / 64;
    uint64_t *slot_bitmap = calloc(words, sizeof *slot_bitmap);
    int rc = 0;

    if (!slot_bitmap)
        return err_set(e, STATUS_ERROR, "out of memory");
    for (unsigned slot = 0; slot < 2 && rc == 0; slot++) {
        struct kvm_dirty_log log = {.slot = slot, .dirty_bitmap = slot_bitmap + (slot ? low : 0)};
        if ((slot == 0 || vm->memory.high_size) && ioctl(vm->fd, KVM_GET_DIRTY_LOG, &log) < 0)
            rc = err_set(e, STATUS_ERROR, "KVM does not say what the guest wrote: %s",
                         strerror(errno));
    }
    for (size_t i = 0; i < words && rc == 0; i++)
        bitmap[i] |= slot_bitmap[i];
    free(slot_bitmap);
    return rc;
}

int vm_create(struct vm *vm, uint64_t memory_size, struct err *e)
{
    *vm = (struct vm){.kvm_fd = -1, .fd = -1, .memory.fd = -1};
    vm->kvm_fd = kvm_open(e);
    if (vm->kvm_fd < 0)
        return -1;
    vm->run_size = ioctl(vm->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
    vm->fd = ioctl(vm->kvm_fd, KVM_CREATE_VM, 0);
    if (vm->fd < 0 || vm->run_size <= 0) {
        err_set(e, STATUS_ERROR, "KVM cannot create a virtual machine: %s", strerror(errno));
        vm_destroy(vm);
        return -1;
    }
    if (guest_memory_create(&vm->memory, memory_size, e) < 0 || configure(vm, e) < 0) {
        vm_destroy(vm);
        return -1;
    }
    return 0;
}

void vm_destroy(struct vm *vm)
{
    if (vm->fd >= 0)
        close(vm->fd);
    if (vm->kvm_fd >= 0)
        close(vm->kvm_fd);
    trace_free(vm->trace);
    annex_free(vm->annex);
    if (vm->memory.host)
        guest_memory_destroy(&vm->memory);
    *vm = (struct vm){.kvm_fd = -1, .fd = -1, .memory.fd = -1};
}
