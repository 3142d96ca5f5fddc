#include "vmm/kvm/vm.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mmu/ownership.h"
#include "vmm/kvm/msr.h"

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

/* Memory is two ranges of GPAs, each a slot; 2 is the annex's (vmm/points/annex.c). */
enum { SLOT_LOW = 0, SLOT_HIGH = 1 };

static int set_slot(struct vm *vm, unsigned slot, uint64_t gpa, uint64_t size, uint8_t *host,
                    unsigned flags, struct err *e)
{
    struct kvm_userspace_memory_region region = {
        .slot = slot,
        .flags = flags,
        .guest_phys_addr = gpa,
        .memory_size = size,
        .userspace_addr = (uintptr_t)host,
    };

    if (ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &region) < 0)
        return err_set(e, STATUS_ERROR, "KVM refuses %llu MiB of guest memory: %s",
                       (unsigned long long)(size >> 20), strerror(errno));
    return 0;
}

/* Where memory of the guest lies among all of it, in bytes. */
static uint64_t offset_of(const struct vm *vm, uint64_t gpa)
{
    return gpa < vm->memory.low_size ? gpa : gpa - MEMORY_HIGH_BASE + vm->memory.low_size;
}

static int set_all_slots(struct vm *vm, struct err *e)
{
    const struct guest_memory *m = &vm->memory;
    const unsigned flags = vm->logs_writes ? KVM_MEM_LOG_DIRTY_PAGES : 0;

    if (set_slot(vm, SLOT_LOW, 0, m->low_size, vm->mapping, flags, e) < 0)
        return -1;
    return m->high_size ? set_slot(vm, SLOT_HIGH, MEMORY_HIGH_BASE, m->high_size,
                                   vm->mapping + m->low_size, flags, e)
                        : 0;
}

int vm_log_writes(struct vm *vm, bool on, struct err *e)
{
    vm->logs_writes = on;
    return set_all_slots(vm, e);
}

/* KVM gets the page from our mapping, and gets none to write to: KVM_RUN fails with EFAULT. */
int vm_protect(struct vm *vm, const uint64_t *pages, unsigned count, struct err *e)
{
    /* One call for all: what is writable already costs nothing. */
    int rc = vm->protects ? mprotect(vm->mapping, vm->memory.size, PROT_READ | PROT_WRITE) : 0;

    for (unsigned i = 0; rc == 0 && i < count; i++) {
        assert(guest_memory_any(&vm->memory, pages[i], PAGE_BYTES));
        rc = mprotect(vm->mapping + offset_of(vm, pages[i]), PAGE_BYTES, PROT_READ);
    }
    vm->protects = count > 0;
    return rc < 0 ? err_set(e, STATUS_ERROR, "cannot protect guest memory: %s", strerror(errno))
                  : 0;
}

/* Begin the log of a slot anew where it holds what was read of it. */
static int clear_slot(struct vm *vm, unsigned slot, uint64_t size, uint64_t *slot_bitmap,
                      struct err *e)
{
    struct kvm_clear_dirty_log clear = {
        .slot = slot,
        .num_pages = (uint32_t)(size / PAGE_BYTES),
        .dirty_bitmap = slot_bitmap,
    };

    if (ioctl(vm->fd, KVM_CLEAR_DIRTY_LOG, &clear) < 0)
        return err_set(e, STATUS_ERROR, "KVM does not forget what the guest wrote: %s",
                       strerror(errno));
    return 0;
}

/* The log of a slot, whose first page has this number, added to the bitmap of all. */
static int collect_slot(struct vm *vm, unsigned slot, uint64_t first, uint64_t size, bool clear,
                        uint64_t *slot_bitmap, uint64_t *bitmap, struct err *e)
{
    struct kvm_dirty_log log = {.slot = slot, .dirty_bitmap = slot_bitmap};
    const size_t words = bitmap_words(size / PAGE_BYTES);

    if (ioctl(vm->fd, KVM_GET_DIRTY_LOG, &log) < 0)
        return err_set(e, STATUS_ERROR, "KVM does not say what the guest wrote: %s",
                       strerror(errno));
    if (clear && vm->reads_writes && clear_slot(vm, slot, size, slot_bitmap, e) < 0)
        return -1;
    for (uint64_t page = 0; bitmap_next(slot_bitmap, words, &page); page++)
        bitmap_set(bitmap, first + page);
    return 0;
}

static int collect(struct vm *vm, bool clear, uint64_t *bitmap, struct err *e)
{
    uint64_t *slot_bitmap = calloc(vm_bitmap_words(vm), sizeof *slot_bitmap);
    const struct guest_memory *m = &vm->memory;
    int rc = slot_bitmap ? 0 : err_set(e, STATUS_ERROR, "out of memory");

    if (rc == 0)
        rc = collect_slot(vm, SLOT_LOW, 0, m->low_size, clear, slot_bitmap, bitmap, e);
    if (rc == 0 && m->high_size)
        rc = collect_slot(vm, SLOT_HIGH, m->low_size / PAGE_BYTES, m->high_size, clear, slot_bitmap,
                          bitmap, e);
    free(slot_bitmap);
    return rc;
}

int vm_collect_writes(struct vm *vm, uint64_t *bitmap, struct err *e)
{
    return collect(vm, true, bitmap, e);
}

int vm_read_writes(struct vm *vm, uint64_t *bitmap, struct err *e)
{
    assert(vm->reads_writes);
    return collect(vm, false, bitmap, e);
}

static int configure(struct vm *vm, struct err *e)
{
    /* Three pages below 4 GiB that kvm_intel needs when EPT lacks "unrestricted guest". */
    if (ioctl(vm->fd, KVM_SET_TSS_ADDR, 0xfffbd000ul) < 0)
        return err_set(e, STATUS_ERROR, "KVM_SET_TSS_ADDR: %s", strerror(errno));
    if (msr_filter_install(vm->fd, e) < 0)
        return -1;
    /* Without it, reading the log of writes begins it anew. */
    const struct kvm_enable_cap read_only = {
        .cap = KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
        .args = {KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE},
    };
    vm->reads_writes = ioctl(vm->fd, KVM_ENABLE_CAP, &read_only) == 0;
    /* The model has none, but on AMD RDPMC at CPL0 would read KVM's, and the host's TSC and time
     * since its start by the numbers that VMware gave them. KVM before 5.18 cannot be told, and
     * 6.1 answers on AMD all the same. */
#ifdef KVM_CAP_PMU_CAPABILITY
    const struct kvm_enable_cap no_pmu = {
        .cap = KVM_CAP_PMU_CAPABILITY,
        .args = {KVM_PMU_CAP_DISABLE},
    };
    (void)ioctl(vm->fd, KVM_ENABLE_CAP, &no_pmu);
#endif
    return set_all_slots(vm, e);
}

/* KVM has a mapping of its own, so that we can write where the guest may not. */
static int map_for_guest(struct vm *vm, struct err *e)
{
    const struct guest_memory *m = &vm->memory;

    if (vm->ownership)
        return 0;
    void *at = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, m->fd, 0);
    if (at == MAP_FAILED)
        return err_set(e, STATUS_ERROR, "cannot map guest memory of %llu MiB: %s; give less memory",
                       (unsigned long long)(m->size >> 20), strerror(errno));
    vm->mapping = at;
    vm->mapped = m->size;
    return 0;
}

/* Of a struct vm that is filled in but for what KVM knows of it. */
static int create(struct vm *vm, struct err *e)
{
    vm->kvm_fd = kvm_open(e);
    if (vm->kvm_fd < 0 || map_for_guest(vm, e) < 0) {
        vm_destroy(vm);
        return -1;
    }
    vm->run_size = ioctl(vm->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
    vm->fd = ioctl(vm->kvm_fd, KVM_CREATE_VM, 0);
    if (vm->fd < 0 || vm->run_size <= 0) {
        err_set(e, STATUS_ERROR, "KVM cannot create a virtual machine: %s", strerror(errno));
        vm_destroy(vm);
        return -1;
    }
    if (configure(vm, e) < 0) {
        vm_destroy(vm);
        return -1;
    }
    return 0;
}

int vm_create_around(struct vm *vm, struct guest_memory *memory, struct err *e)
{
    *vm = (struct vm){.kvm_fd = -1, .fd = -1, .memory = *memory};
    *memory = (struct guest_memory){.fd = -1};
    vm->memory.marked = NULL;
    return create(vm, e);
}

int vm_create_view(struct vm *vm, struct vm *whole, struct ownership *ownership, unsigned vcpu,
                   struct err *e)
{
    *vm = (struct vm){
        .kvm_fd = -1,
        .fd = -1,
        .memory = whole->memory,
        .whole = whole,
        .ownership = ownership,
        .mapping = ownership ? ownership_mapping(ownership, vcpu) : NULL,
    };
    vm->memory.readable = ownership ? ownership_table(ownership, vcpu) : NULL;
    return create(vm, e);
}

int vm_create(struct vm *vm, uint64_t memory_size, struct err *e)
{
    struct guest_memory memory;

    if (guest_memory_create(&memory, memory_size, e) < 0) {
        *vm = (struct vm){.kvm_fd = -1, .fd = -1, .memory.fd = -1};
        return -1;
    }
    return vm_create_around(vm, &memory, e);
}

void vm_attach(struct vm *vm, struct vm_part *part)
{
    part->next = vm->parts;
    vm->parts = part;
}

bool vm_make_way(struct vm *vm)
{
    for (struct vm_part *part = vm->parts; part; part = part->next)
        if (part->make_way && part->make_way(vm))
            return true;
    return false;
}

void vm_destroy(struct vm *vm)
{
    if (vm->fd >= 0)
        close(vm->fd);
    if (vm->kvm_fd >= 0)
        close(vm->kvm_fd);
    for (struct vm_part *part = vm->parts, *next; part; part = next) {
        next = part->next;
        part->free(part);
    }
    if (vm->mapped)
        munmap(vm->mapping, vm->mapped);
    if (vm->memory.host && !vm->whole)
        guest_memory_destroy(&vm->memory);
    *vm = (struct vm){.kvm_fd = -1, .fd = -1, .memory.fd = -1};
}
