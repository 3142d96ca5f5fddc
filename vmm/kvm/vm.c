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

/* Memory slots: low memory in pieces between protected pages, those pages, high memory. */
enum { SLOT_LOW = 0, SLOT_HIGH = 1, /* 2 is the annex */ SLOT_PIECES = 3 };

static int set_slot(struct vm *vm, unsigned slot, uint64_t gpa, uint64_t size, uint8_t *host,
                    unsigned flags, struct err *e)
{
    struct kvm_userspace_memory_region region = {
        .slot = slot,
        .flags = size ? flags : 0,
        .guest_phys_addr = gpa,
        .memory_size = size,
        .userspace_addr = (uintptr_t)host,
    };

    if (ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &region) < 0)
        return err_set(e, STATUS_ERROR, "KVM refuses %llu MiB of guest memory: %s",
                       (unsigned long long)(size >> 20), strerror(errno));
    return 0;
}

static unsigned log_flag(const struct vm *vm)
{
    return vm->logs_writes ? KVM_MEM_LOG_DIRTY_PAGES : 0;
}

/* Low memory, in pieces; a slot that there is cannot change its size. */
static int set_low_slots(struct vm *vm, bool there, struct err *e)
{
    uint8_t *host = vm->mapping;
    uint64_t at = 0;
    int rc = 0;

    for (unsigned i = 0; i <= vm->stretches && rc == 0; i++) {
        const uint64_t end = i < vm->stretches ? vm->stretch[i].gpa : vm->memory.low_size;
        if (end > at)
            rc = set_slot(vm, i ? SLOT_PIECES + 2 * i - 1 : SLOT_LOW, at, there ? end - at : 0,
                          host + at, log_flag(vm), e);
        at = end;
        if (i == vm->stretches || rc < 0)
            break;
        rc = set_slot(vm, SLOT_PIECES + 2 * i, at, there ? vm->stretch[i].size : 0, host + at,
                      KVM_MEM_READONLY, e);
        at += vm->stretch[i].size;
    }
    return rc;
}

static int set_high_slot(struct vm *vm, struct err *e)
{
    const struct guest_memory *m = &vm->memory;

    return m->high_size ? set_slot(vm, SLOT_HIGH, MEMORY_HIGH_BASE, m->high_size,
                                   vm->mapping + m->low_size, log_flag(vm), e)
                        : 0;
}

int vm_log_writes(struct vm *vm, bool on, struct err *e)
{
    vm->logs_writes = on;
    return set_low_slots(vm, true, e) < 0 ? -1 : set_high_slot(vm, e);
}

static bool begins_stretch(const uint64_t *pages, unsigned i)
{
    return i == 0 || pages[i] != pages[i - 1] + PAGE_BYTES;
}

unsigned vm_stretches(const uint64_t *pages, unsigned count)
{
    unsigned stretches = 0;

    for (unsigned i = 0; i < count; i++)
        stretches += begins_stretch(pages, i);
    return stretches;
}

int vm_protect(struct vm *vm, const uint64_t *pages, unsigned count, struct err *e)
{
    assert(vm_stretches(pages, count) <= VM_STRETCHES_MAX);
    if (set_low_slots(vm, false, e) < 0)
        return -1;
    vm->stretches = 0;
    for (unsigned i = 0; i < count; i++) {
        assert(pages[i] < vm->memory.low_size && (!i || pages[i] > pages[i - 1]));
        if (begins_stretch(pages, i))
            vm->stretch[vm->stretches++].gpa = pages[i];
        vm->stretch[vm->stretches - 1].size =
            pages[i] + PAGE_BYTES - vm->stretch[vm->stretches - 1].gpa;
    }
    return set_low_slots(vm, true, e);
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

/* The log of one piece of memory, added to the bitmap of all. */
static int collect_slot(struct vm *vm, unsigned slot, uint64_t at, uint64_t size, bool clear,
                        uint64_t *slot_bitmap, uint64_t *bitmap, struct err *e)
{
    struct kvm_dirty_log log = {.slot = slot, .dirty_bitmap = slot_bitmap};
    const uint64_t first = at / PAGE_BYTES;
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
    uint64_t at = 0;
    int rc = slot_bitmap ? 0 : err_set(e, STATUS_ERROR, "out of memory");

    for (unsigned i = 0; i <= vm->stretches && rc == 0; i++) {
        const uint64_t end = i < vm->stretches ? vm->stretch[i].gpa : m->low_size;
        const unsigned slot = i ? SLOT_PIECES + 2 * i - 1 : SLOT_LOW;
        if (end > at)
            rc = collect_slot(vm, slot, at, end - at, clear, slot_bitmap, bitmap, e);
        at = end + (i < vm->stretches ? vm->stretch[i].size : 0);
    }
    if (rc == 0 && m->high_size)
        rc = collect_slot(vm, SLOT_HIGH, m->low_size, m->high_size, clear, slot_bitmap, bitmap, e);
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
    return set_low_slots(vm, true, e) < 0 ? -1 : set_high_slot(vm, e);
}

/* Of a struct vm that is filled in but for what KVM knows of it. */
static int create(struct vm *vm, struct err *e)
{
    vm->kvm_fd = kvm_open(e);
    if (vm->kvm_fd < 0) {
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
    *vm = (struct vm){.kvm_fd = -1, .fd = -1, .memory = *memory, .mapping = memory->host};
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
        .mapping = ownership ? ownership_mapping(ownership, vcpu) : whole->memory.host,
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
    if (vm->memory.host && !vm->whole)
        guest_memory_destroy(&vm->memory);
    *vm = (struct vm){.kvm_fd = -1, .fd = -1, .memory.fd = -1};
}
