#include "mmu/ownership.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/deaf_thread.h"

/* What an instruction can need at once that it does not own, generously. */
#define LOANS_MAX 16u
/* Tables that it walks, the same: with code, source and destination across two pages each, and an
 * exception on top, some 40. With fewer than it needs it would never get on. */
#define TABLES_MAX 48u
#define NO_PAGE    UINT64_MAX

struct owner {
    uint8_t *mapping;
    uint8_t *table; /* enum page_access by page; changed by who calls us */
    /* The rest is shared with the thread that serves faults, under this lock. */
    pthread_mutex_t lock;
    pid_t thread; /* that is in KVM_RUN; 0: none is */
    bool faulted, lost;
    struct page_fault fault;
    uint64_t loan[LOANS_MAX]; /* pages it can write without owning them */
    unsigned loans;
    uint64_t lent[TABLES_MAX]; /* by ownership_lend_table(), the oldest first */
    unsigned lents;
    uint64_t stale; /* the page of a fault that may be none any more, or NO_PAGE */
};

struct ownership {
    const struct guest_memory *memory;
    unsigned vcpus;
    int faults, stop; /* userfaultfd; an eventfd that ends the thread */
    pthread_t thread;
    bool serving;
    struct owner owner[MAX_VCPUS];
};

/* ---- pages ---- */

static uint64_t address(const struct owner *owner, uint64_t page)
{
    return (uintptr_t)owner->mapping + page * PAGE_BYTES;
}

/* An ioctl on the userfaultfd that cannot fail but for a moment, or as allowed. */
static void control(const struct ownership *o, unsigned long request, void *argument, int allowed)
{
    int rc;

    do
        rc = ioctl(o->faults, request, argument);
    while (rc < 0 && (errno == EAGAIN || errno == EINTR));
    assert(rc == 0 || errno == allowed);
}

/* Make the page be there, and let nobody wake up for it. */
static void map(const struct ownership *o, const struct owner *owner, uint64_t page)
{
    struct uffdio_continue go = {
        .range = {address(owner, page), PAGE_BYTES},
        .mode = UFFDIO_CONTINUE_MODE_DONTWAKE,
    };

    /* There must be memory first, which a read of it brings about. */
    (void)*(volatile const uint8_t *)(o->memory->host + page * PAGE_BYTES);
    control(o, UFFDIO_CONTINUE, &go, EEXIST);
}

static void protect(const struct ownership *o, const struct owner *owner, uint64_t page, bool on)
{
    struct uffdio_writeprotect protection = {
        .range = {address(owner, page), PAGE_BYTES},
        .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : UFFDIO_WRITEPROTECT_MODE_DONTWAKE,
    };

    control(o, UFFDIO_WRITEPROTECT, &protection, 0);
}

/* Have the mapping allow this much of the page, whatever it allows now. */
static void allow(const struct ownership *o, const struct owner *owner, uint64_t page,
                  enum page_access access)
{
    if (access == ACCESS_NONE) {
        int rc = madvise((void *)address(owner, page), PAGE_BYTES, MADV_DONTNEED);
        assert(rc == 0);
        return;
    }
    map(o, owner, page);
    protect(o, owner, page, access == ACCESS_READ);
}

/* What the mapping is to allow. */
static enum page_access granted(const struct owner *owner, uint64_t page)
{
    for (unsigned i = 0; i < owner->lents; i++)
        if (owner->lent[i] == page)
            return ACCESS_WRITE;
    return owner->table[page];
}

/* A loan of that page is no longer one. */
static void forget_loan(struct owner *owner, uint64_t page)
{
    for (unsigned i = 0; i < owner->loans; i++)
        if (owner->loan[i] == page)
            owner->loan[i--] = owner->loan[--owner->loans];
}

static void wake(const struct ownership *o, const struct owner *owner, uint64_t page)
{
    struct uffdio_range range = {address(owner, page), PAGE_BYTES};

    control(o, UFFDIO_WAKE, &range, 0);
}

/* ---- faults ---- */

/* The signal first, so that the vCPU cannot come to its instruction while it has the loan. */
static void lend(const struct ownership *o, struct owner *owner, uint64_t page,
                 enum page_access access)
{
    if (owner->thread)
        syscall(SYS_tgkill, getpid(), owner->thread, OWNERSHIP_SIGNAL);
    owner->lost |= !owner->thread || owner->loans == LOANS_MAX;
    if (!owner->faulted)
        owner->fault = (struct page_fault){page, access};
    owner->faulted = true;
    if (owner->loans < LOANS_MAX)
        owner->loan[owner->loans++] = page;
    allow(o, owner, page, ACCESS_WRITE);
}

static void serve(struct ownership *o, const struct uffd_msg *message)
{
    const uint64_t at = message->arg.pagefault.address, size = o->memory->size;
    const bool write =
        message->arg.pagefault.flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP);
    const enum page_access wanted = write ? ACCESS_WRITE : ACCESS_READ;

    for (unsigned i = 0; i < o->vcpus; i++) {
        struct owner *owner = &o->owner[i];
        const uint64_t page = (at - (uintptr_t)owner->mapping) / PAGE_BYTES;
        if (at - (uintptr_t)owner->mapping >= size)
            continue;
        pthread_mutex_lock(&owner->lock);
        if (granted(owner, page) >= wanted) /* the host had taken it out of the mapping */
            allow(o, owner, page, granted(owner, page));
        else if (!owner->thread && owner->stale != page)
            owner->stale = page; /* a kick may have ended the wait: if not, it comes again */
        else
            lend(o, owner, page, wanted);
        wake(o, owner, page);
        pthread_mutex_unlock(&owner->lock);
    }
}

static void *serve_faults(void *arg)
{
    struct ownership *o = arg;
    struct pollfd wait[] = {{.fd = o->faults, .events = POLLIN}, {.fd = o->stop, .events = POLLIN}};
    struct uffd_msg message;

    while (!wait[1].revents) {
        if (poll(wait, 2, -1) < 0)
            continue;
        while (read(o->faults, &message, sizeof message) == (ssize_t)sizeof message)
            if (message.event == UFFD_EVENT_PAGEFAULT)
                serve(o, &message);
    }
    return NULL;
}

static void on_fault_signal(int signal)
{
    (void)signal;
}

void ownership_enter(struct ownership *o, unsigned vcpu)
{
    static __thread pid_t self;
    struct owner *owner = &o->owner[vcpu];

    if (!self)
        self = (pid_t)syscall(SYS_gettid);
    pthread_mutex_lock(&owner->lock);
    for (unsigned i = 0; i < owner->loans; i++)
        allow(o, owner, owner->loan[i], granted(owner, owner->loan[i]));
    owner->loans = 0;
    owner->lost |= owner->faulted;
    owner->faulted = false;
    owner->thread = self;
    owner->stale = NO_PAGE;
    pthread_mutex_unlock(&owner->lock);
}

enum ownership_stop ownership_leave(struct ownership *o, unsigned vcpu, struct page_fault *fault)
{
    struct owner *owner = &o->owner[vcpu];
    enum ownership_stop stop = OWNERSHIP_NOTHING;

    pthread_mutex_lock(&owner->lock);
    owner->thread = 0;
    if (owner->lost)
        stop = OWNERSHIP_LOST;
    else if (owner->faulted)
        stop = OWNERSHIP_FAULT;
    *fault = owner->fault;
    owner->faulted = false;
    pthread_mutex_unlock(&owner->lock);
    return stop;
}

/* ---- permissions ---- */

enum page_access ownership_set(struct ownership *o, unsigned vcpu, uint64_t page,
                               enum page_access access)
{
    struct owner *owner = &o->owner[vcpu];
    const enum page_access before = owner->table[page];

    pthread_mutex_lock(&owner->lock);
    assert(!owner->thread);
    forget_loan(owner, page);
    owner->table[page] = (uint8_t)access;
    allow(o, owner, page, granted(owner, page));
    pthread_mutex_unlock(&owner->lock);
    return before;
}

bool ownership_conflict(const struct ownership *o, unsigned other, const struct page_fault *wanted)
{
    const enum page_access has = o->owner[other].table[wanted->page];

    return wanted->access == ACCESS_WRITE ? has != ACCESS_NONE : has == ACCESS_WRITE;
}

void ownership_transfer(struct ownership *o, unsigned vcpu, const struct page_fault *wanted)
{
    if (o->owner[vcpu].table[wanted->page] >= wanted->access)
        return; /* it is shared now */
    for (unsigned i = 0; i < o->vcpus; i++)
        if (i != vcpu && ownership_conflict(o, i, wanted))
            ownership_set(o, i, wanted->page,
                          wanted->access == ACCESS_WRITE ? ACCESS_NONE : ACCESS_READ);
    ownership_set(o, vcpu, wanted->page, wanted->access);
}

void ownership_share(struct ownership *o, uint64_t page)
{
    for (unsigned i = 0; i < o->vcpus; i++)
        ownership_set(o, i, page, ACCESS_WRITE);
}

void ownership_disown(struct ownership *o, uint64_t page)
{
    for (unsigned i = 0; i < o->vcpus; i++)
        ownership_set(o, i, page, ACCESS_NONE);
}

/* Its lock is held. */
static void take_back(struct ownership *o, struct owner *owner, unsigned i)
{
    const uint64_t page = owner->lent[i];

    memmove(&owner->lent[i], &owner->lent[i + 1], (--owner->lents - i) * sizeof page);
    allow(o, owner, page, granted(owner, page));
}

void ownership_lend_table(struct ownership *o, unsigned vcpu, uint64_t page)
{
    struct owner *owner = &o->owner[vcpu];

    pthread_mutex_lock(&owner->lock);
    forget_loan(owner, page);
    if (granted(owner, page) < ACCESS_WRITE) {
        if (owner->lents == TABLES_MAX)
            take_back(o, owner, 0);
        owner->lent[owner->lents++] = page;
    }
    allow(o, owner, page, ACCESS_WRITE);
    pthread_mutex_unlock(&owner->lock);
}

bool ownership_has_tables(const struct ownership *o, unsigned vcpu)
{
    return o->owner[vcpu].lents > 0;
}

void ownership_return_tables(struct ownership *o, unsigned vcpu, uint64_t but)
{
    struct owner *owner = &o->owner[vcpu];

    pthread_mutex_lock(&owner->lock);
    for (unsigned i = owner->lents; i-- > 0;)
        if (owner->lent[i] != but)
            take_back(o, owner, i);
    pthread_mutex_unlock(&owner->lock);
}

bool ownership_lacked_only(const struct ownership *o, unsigned vcpu, uint64_t page)
{
    const struct owner *owner = &o->owner[vcpu];

    return owner->loans == 1 && owner->loan[0] == page;
}

bool ownership_is_shared(const struct ownership *o, uint64_t page)
{
    for (unsigned i = 0; i < o->vcpus; i++)
        if (ownership_table(o, i)[page] != ACCESS_WRITE)
            return false;
    return o->vcpus > 1;
}

/* ---- making it ---- */

uint8_t *ownership_mapping(const struct ownership *o, unsigned vcpu)
{
    return o->owner[vcpu].mapping;
}

const uint8_t *ownership_table(const struct ownership *o, unsigned vcpu)
{
    return o->owner[vcpu].table;
}

/* A descriptor that also gets the faults KVM takes in the kernel, which may need privileges. */
static int open_faults(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

#ifdef USERFAULTFD_IOC_NEW
    if (fd < 0 && errno == EPERM) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        if (device >= 0) {
            fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
            close(device);
        }
    }
#endif
    return fd;
}

static int open_userfaultfd(struct ownership *o, struct err *e)
{
    struct uffdio_api api = {
        .api = UFFD_API,
        .features = UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_PAGEFAULT_FLAG_WP |
                    UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
    };

    o->faults = open_faults();
    if (o->faults < 0 && (errno == EPERM || errno == EACCES))
        return err_set(e, STATUS_ERROR,
                       "no permission to use userfaultfd for faults in the kernel, which --smp "
                       "crew and its replays need: run as root, or record with --smp uni");
    if (o->faults < 0 || ioctl(o->faults, UFFDIO_API, &api) < 0)
        return err_set(e, STATUS_ERROR,
                       "this host's userfaultfd cannot hold back accesses to shared memory (%s), "
                       "which --smp crew and its replays need: Linux 5.19 or later; or record "
                       "with --smp uni",
                       strerror(errno));
    return 0;
}

static int open_owner(struct ownership *o, struct owner *owner, struct err *e)
{
    const uint64_t size = o->memory->size;
    struct uffdio_register range = {
        .mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP,
    };

    void *at =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, o->memory->fd, 0);
    owner->table = calloc(size / PAGE_BYTES, 1);
    if (at == MAP_FAILED || !owner->table)
        return err_set(e, STATUS_ERROR, "cannot map guest memory once more; give less memory");
    owner->mapping = at;
    range.range.start = (uintptr_t)at;
    range.range.len = size;
    if (ioctl(o->faults, UFFDIO_REGISTER, &range) < 0)
        return err_set(e, STATUS_ERROR,
                       "this host's userfaultfd cannot watch guest memory (%s), which --smp crew "
                       "needs; give --smp uni",
                       strerror(errno));
    return 0;
}

static int start_serving(struct ownership *o, struct err *e)
{
    const struct sigaction action = {.sa_handler = on_fault_signal};
    o->stop = eventfd(0, EFD_CLOEXEC);
    if (o->stop < 0 || sigaction(OWNERSHIP_SIGNAL, &action, NULL) < 0)
        return err_set(e, STATUS_ERROR, "cannot serve page faults: %s", strerror(errno));
    int rc = deaf_thread_create(&o->thread, serve_faults, o);
    o->serving = rc == 0;
    return rc ? err_set(e, STATUS_ERROR, "cannot make a thread: %s", strerror(rc)) : 0;
}

struct ownership *ownership_create(const struct guest_memory *memory, unsigned vcpus, struct err *e)
{
    struct ownership *o = calloc(1, sizeof *o);

    assert(vcpus >= 1 && vcpus <= MAX_VCPUS);
    if (!o) {
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    o->memory = memory;
    o->vcpus = vcpus;
    o->faults = o->stop = -1;
    for (unsigned i = 0; i < vcpus; i++) {
        pthread_mutex_init(&o->owner[i].lock, NULL);
        o->owner[i].stale = NO_PAGE;
    }
    int rc = open_userfaultfd(o, e);
    for (unsigned i = 0; i < vcpus && rc == 0; i++)
        rc = open_owner(o, &o->owner[i], e);
    if (rc == 0)
        rc = start_serving(o, e);
    if (rc == 0)
        return o;
    ownership_destroy(o);
    return NULL;
}

void ownership_destroy(struct ownership *o)
{
    const uint64_t one = 1;

    if (!o)
        return;
    if (o->serving) {
        ssize_t n = write(o->stop, &one, sizeof one);
        assert(n == (ssize_t)sizeof one);
        pthread_join(o->thread, NULL);
    }
    for (unsigned i = 0; i < o->vcpus; i++) {
        if (o->owner[i].mapping)
            munmap(o->owner[i].mapping, o->memory->size);
        free(o->owner[i].table);
        pthread_mutex_destroy(&o->owner[i].lock);
    }
    if (o->faults >= 0)
        close(o->faults);
    if (o->stop >= 0)
        close(o->stop);
    free(o);
}
