/*
 * Probes: finding the pages that a guest touches.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/doctor/doctor.h"
#include "vmm/kvm/micro_guest.h"
#include "vmm/kvm/views.h"

GUEST_CODE(micro_read, "mov 0x800000, %rax\n" GUEST_DONE);
GUEST_CODE(micro_read_write, "mov 0x800000, %rax\n"
                             "incq 0x800000\n" GUEST_DONE);

#define RING_ENTRIES 1024u

/* Slot 0 as vm_create() made it, and its dirty pages logged. */
static bool log_dirty_pages(const struct micro_guest *g, struct probe_outcome *o)
{
    const struct kvm_userspace_memory_region region = {
        .flags = KVM_MEM_LOG_DIRTY_PAGES,
        .memory_size = g->vm.memory.low_size,
        .userspace_addr = (uintptr_t)g->vm.mapping,
    };

    if (ioctl(g->vm.fd, KVM_SET_USER_MEMORY_REGION, &region) == 0)
        return true;
    probe_says(o, PROBE_MISSING, "KVM_MEM_LOG_DIRTY_PAGES: %s", strerror(errno));
    return false;
}

static void probe_dirty_log(struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_read_write), 0, o) || !log_dirty_pages(&g, o) ||
        !micro_guest_finish(&g, o))
        return;
    const unsigned page = MICRO_DATA / PAGE_BYTES;
    uint8_t *bitmap = calloc(g.vm.memory.low_size / PAGE_BYTES / 64 + 1, 8);
    struct kvm_dirty_log log = {.dirty_bitmap = bitmap};
    if (!bitmap || ioctl(g.vm.fd, KVM_GET_DIRTY_LOG, &log) < 0)
        probe_says(o, PROBE_MISSING, "KVM_GET_DIRTY_LOG: %s", strerror(errno));
    else if (!(bitmap[page / 8] >> page % 8 & 1))
        probe_says(o, PROBE_BROKEN, "the page that was written is not in it");
    else if (bitmap[page / 8] >> (page + 1) % 8 & 1)
        probe_says(o, PROBE_BROKEN, "it shows a page that was not written");
    else
        probe_says(o, PROBE_OK, "shows the page");
    free(bitmap);
}

/* The ring can be had only before the first vCPU. */
static bool enable_ring(const struct micro_guest *g, struct probe_outcome *o)
{
    struct kvm_enable_cap cap = {.args = {RING_ENTRIES * sizeof(struct kvm_dirty_gfn)}};

#ifdef KVM_CAP_DIRTY_LOG_RING_ACQ_REL
    cap.cap = KVM_CAP_DIRTY_LOG_RING_ACQ_REL;
    if (ioctl(g->vm.fd, KVM_ENABLE_CAP, &cap) == 0)
        return true;
#endif
    cap.cap = KVM_CAP_DIRTY_LOG_RING;
    if (ioctl(g->vm.fd, KVM_ENABLE_CAP, &cap) == 0)
        return true;
    probe_says(o, PROBE_MISSING, "KVM_CAP_DIRTY_LOG_RING: %s", strerror(errno));
    return false;
}

static void probe_dirty_ring(struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_create(&g, o) || !enable_ring(&g, o) ||
        !micro_guest_load(&g, PROGRAM(micro_read_write), 0, o))
        return;
    const struct kvm_dirty_gfn *ring =
        mmap(NULL, RING_ENTRIES * sizeof *ring, PROT_READ, MAP_SHARED, g.vcpu.fd,
             (off_t)KVM_DIRTY_LOG_PAGE_OFFSET * PAGE_BYTES);
    if (ring == MAP_FAILED) {
        probe_says(o, PROBE_MISSING, "cannot map it: %s", strerror(errno));
        return;
    }
    if (!log_dirty_pages(&g, o) || !micro_guest_finish(&g, o))
        return;
    for (unsigned i = 0; i < RING_ENTRIES; i++) {
        if ((__atomic_load_n(&ring[i].flags, __ATOMIC_ACQUIRE) & KVM_DIRTY_GFN_F_DIRTY) &&
            ring[i].slot == 0 && ring[i].offset == MICRO_DATA / PAGE_BYTES) {
            probe_says(o, PROBE_OK, "shows the page");
            return;
        }
    }
    probe_says(o, PROBE_BROKEN, "the page that was written is not in it");
}

/* What the thread that serves faults has seen. */
struct fault_server {
    int fd;
    uint64_t page; /* host address */
    bool minor;    /* which kind of fault to resolve */
    bool served;
};

static void *serve_fault(void *arg)
{
    struct fault_server *s = arg;
    struct uffd_msg m;

    if (read(s->fd, &m, sizeof m) != (ssize_t)sizeof m || m.event != UFFD_EVENT_PAGEFAULT)
        return NULL;
    uint64_t flag = s->minor ? UFFD_PAGEFAULT_FLAG_MINOR : UFFD_PAGEFAULT_FLAG_WP;
    bool as_expected = (m.arg.pagefault.flags & flag) &&
                       (m.arg.pagefault.address & ~(uint64_t)(PAGE_BYTES - 1)) == s->page;
    __atomic_store_n(&s->served, as_expected, __ATOMIC_RELEASE);
    struct uffdio_continue go = {.range = {s->page, PAGE_BYTES}};
    struct uffdio_writeprotect allow = {.range = {s->page, PAGE_BYTES}};
    if (s->minor)
        ioctl(s->fd, UFFDIO_CONTINUE, &go);
    else
        ioctl(s->fd, UFFDIO_WRITEPROTECT, &allow);
    return NULL;
}

/* A descriptor that also gets the faults KVM takes in the kernel, which may need privileges. */
static int open_userfaultfd(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

#ifdef USERFAULTFD_IOC_NEW
    if (fd < 0 && errno == EPERM) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        if (device < 0) {
            errno = EPERM;
            return -1;
        }
        fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC);
        close(device);
    }
#endif
    return fd;
}

static bool watch_page(struct fault_server *s, struct probe_outcome *o)
{
    struct uffdio_api api = {
        .api = UFFD_API,
        .features = s->minor ? UFFD_FEATURE_MINOR_SHMEM : UFFD_FEATURE_PAGEFAULT_FLAG_WP,
    };
    struct uffdio_register range = {
        .range = {s->page, PAGE_BYTES},
        .mode = s->minor ? UFFDIO_REGISTER_MODE_MINOR : UFFDIO_REGISTER_MODE_WP,
    };
    struct uffdio_writeprotect protect = {
        .range = {s->page, PAGE_BYTES},
        .mode = UFFDIO_WRITEPROTECT_MODE_WP,
    };
    const char *failed = NULL;

    s->fd = open_userfaultfd();
    if (s->fd < 0)
        failed = "userfaultfd";
    else if (ioctl(s->fd, UFFDIO_API, &api) < 0)
        failed = "UFFDIO_API";
    else if (ioctl(s->fd, UFFDIO_REGISTER, &range) < 0)
        failed = "UFFDIO_REGISTER";
    else if (!s->minor && ioctl(s->fd, UFFDIO_WRITEPROTECT, &protect) < 0)
        failed = "UFFDIO_WRITEPROTECT";
    if (failed)
        probe_says(o, PROBE_MISSING, "%s: %s", failed, strerror(errno));
    return !failed;
}

static void userfaultfd_probe(bool minor, struct probe_outcome *o)
{
    struct micro_guest g;
    pthread_t thread;
    const uint64_t value = 0x5ca1ab1e;

    bool started = minor ? micro_guest_start(&g, PROGRAM(micro_read), 0, o)
                         : micro_guest_start(&g, PROGRAM(micro_read_write), 0, o);
    if (!started)
        return;
    /* In KVM's mapping: its faults are those of the guest's accesses. */
    uint8_t *page = g.vm.mapping + MICRO_DATA;
    struct fault_server s = {.page = (uintptr_t)page, .minor = minor};
    /* A minor fault is one on a page that exists and is not mapped. */
    if (minor ? pwrite(g.vm.memory.fd, &value, sizeof value, MICRO_DATA) != (ssize_t)sizeof value
              : !memcpy(page, &value, sizeof value)) {
        probe_says(o, PROBE_BROKEN, "cannot write guest memory: %s", strerror(errno));
        return;
    }
    if (!watch_page(&s, o))
        return;
    int rc = pthread_create(&thread, NULL, serve_fault, &s);
    if (rc) {
        probe_says(o, PROBE_BROKEN, "cannot make a thread: %s", strerror(rc));
        return;
    }
    if (!micro_guest_finish(&g, o))
        return;
    if (!__atomic_load_n(&s.served, __ATOMIC_ACQUIRE))
        probe_says(o, PROBE_BROKEN, "the guest's access was not reported");
    else if (g.vcpu.regs->rax != value)
        probe_says(o, PROBE_BROKEN, "the guest reads %#llx and not what is there",
                   (unsigned long long)g.vcpu.regs->rax);
    else
        probe_says(o, PROBE_OK, "reports the guest's access");
}

static void probe_minor(struct probe_outcome *o)
{
    userfaultfd_probe(true, o);
}

static void probe_write_protect(struct probe_outcome *o)
{
    userfaultfd_probe(false, o);
}

/* What --smp crew needs of a host, which is more than the two. */
static void probe_ownership(struct probe_outcome *o)
{
    struct vm vm;
    struct views views;
    struct err e;

    if (vm_create(&vm, MEMORY_MIN, &e) < 0) {
        probe_says(o, PROBE_BROKEN, "%.200s", e.text);
        return;
    }
    if (views_create(&views, &vm, 2, true, &e) < 0) {
        probe_says(o, PROBE_MISSING, "%.200s", e.text);
    } else {
        probe_says(o, PROBE_OK, "a vCPU can be kept from a page of another one's");
        views_destroy(&views);
    }
    vm_destroy(&vm);
}

static const char whole_memory[] = "every page is compared";
static const char one_thread[] = "guests with several CPUs run them in turns on one thread";

const struct probe doctor_memory_probes[] = {
    {"dirty page log", probe_dirty_log, false, whole_memory},
    {"dirty page ring", probe_dirty_ring, false, "the dirty page log does"},
    {"userfaultfd minor faults", probe_minor, false, one_thread},
    {"userfaultfd write protection", probe_write_protect, false, one_thread},
    {"page ownership", probe_ownership, false, one_thread},
    {0},
};
