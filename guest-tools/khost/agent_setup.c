/* The machine around the command: modules, network, clock, random seed, file systems. */
#include "guest-tools/khost/agent.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <linux/kvm.h>
#include <fcntl.h>
#include <linux/random.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void must_mount(const char *what, const char *where, const char *type, unsigned long flags,
                       const char *options)
{
    if (mount(what, where, type, flags, options) != 0)
        agent_fail("cannot mount %s on %s: %s", type, where, strerror(errno));
}

void setup_early_mounts(void)
{
    must_mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    int console = open("/dev/console", O_RDWR);
    for (int fd = 0; console >= 0 && fd < 3; fd++)
        dup2(console, fd);
    if (console > 2)
        close(console);
    must_mount("proc", "/proc", "proc", 0, NULL);
    must_mount("sysfs", "/sys", "sysfs", 0, NULL);
}

void setup_modules(void)
{
    FILE *order = fopen("/lib/order", "re");
    char name[64], path[96];
    while (order && fscanf(order, "%63s", name) == 1) {
        snprintf(path, sizeof path, "/lib/%s.ko", name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        /* One that is missed shows itself later, in what needs it. */
        if (fd < 0 || syscall(SYS_finit_module, fd, "", 0) != 0)
            fprintf(stderr, "khost: module %s: %s\n", name, strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    if (order)
        fclose(order);
}

static void set_address(struct sockaddr *a, const char *text)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    inet_aton(text, &in.sin_addr);
    memcpy(a, &in, sizeof in);
}

/* QEMU's user network: we are 10.0.2.15/24, the way out is 10.0.2.2. */
void setup_network(void)
{
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    struct ifreq eth = {.ifr_name = "eth0"};
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};

    ioctl(s, SIOCSIFFLAGS, &lo);
    set_address(&eth.ifr_addr, "10.0.2.15");
    bool ok = ioctl(s, SIOCSIFADDR, &eth) == 0;
    set_address(&eth.ifr_addr, "255.255.255.0");
    ok = ok && ioctl(s, SIOCSIFNETMASK, &eth) == 0;
    eth.ifr_flags = IFF_UP | IFF_RUNNING;
    ok = ok && ioctl(s, SIOCSIFFLAGS, &eth) == 0;
    set_address(&route.rt_dst, "0.0.0.0");
    set_address(&route.rt_genmask, "0.0.0.0");
    set_address(&route.rt_gateway, "10.0.2.2");
    ok = ok && ioctl(s, SIOCADDRT, &route) == 0;
    if (!ok)
        fprintf(stderr, "khost: network: %s\n", strerror(errno));
    close(s);
}

/* Without it getrandom() would block for a second: this CPU has no RDRAND on purpose. */
static void seed_random(const uint8_t seed[KHOST_SEED_BYTES])
{
    struct {
        struct rand_pool_info info;
        uint8_t seed[KHOST_SEED_BYTES];
    } pool = {.info = {.entropy_count = 8 * KHOST_SEED_BYTES, .buf_size = KHOST_SEED_BYTES}};
    memcpy(pool.info.buf, seed, KHOST_SEED_BYTES);
    int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
    /* Used at once: what was there before is no secret, and the same in each saved machine. */
    if (fd < 0 || ioctl(fd, RNDADDENTROPY, &pool) != 0 || ioctl(fd, RNDRESEEDCRNG) != 0)
        fprintf(stderr, "khost: random seed: %s\n", strerror(errno));
    close(fd);
}

static bool try_write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) >= 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

static void write_file(const char *path, const char *text)
{
    if (!try_write_file(path, text))
        fprintf(stderr, "khost: %s: %s\n", path, strerror(errno));
}

/*
 * One VM with a vCPU, without a local APIC of KVM's, that exists for as long as the host does: the
 * first and the last one of its kind make KVM patch the kernel's code (preempt_notifier_key,
 * kvm_has_noapic_vcpu), which must not happen while a second CPU is there; see setup_cpus().
 */
static void hold_a_vm(void)
{
    int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    int vm = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);

    if (vm < 0 || ioctl(vm, KVM_CREATE_VCPU, 0) < 0)
        fprintf(stderr, "khost: no VM can be made: %s\n", strerror(errno));
}

/*
 * No VM may run on the first CPU. QEMU 7.2 keeps the machine's IGNNE# in that CPU's state, and
 * clears it, without a lock, at every FXRSTOR and XRSTOR of any other CPU: the word is read, masked
 * and written back (cpu_clear_ignne()). What the first CPU has changed in it meanwhile is lost, and
 * it also says whether nested paging is on, whether interrupts are held off (GIF) and whose
 * interrupt flag counts: a guest whose page tables were looked for at these addresses of the host
 * ended in a triple fault. So this process, and the command, use the others only; and so do
 * interrupts, because each CPU that has something to do is a thread that waits for its turn on a
 * busy machine.
 */
static void leave_first_cpu(void)
{
    DIR *irqs = opendir("/proc/irq");
    struct dirent *irq;
    char path[300], mask[32];
    cpu_set_t cpus;

    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0)
        agent_fail("sched_getaffinity: %s", strerror(errno));
    CPU_CLR(0, &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0)
        agent_fail("the emulated host has but one CPU: %s", strerror(errno));
    snprintf(mask, sizeof mask, "%lx", *(unsigned long *)&cpus);
    while (irqs && (irq = readdir(irqs))) {
        snprintf(path, sizeof path, "/proc/irq/%s/smp_affinity", irq->d_name);
        try_write_file(path, mask); /* some cannot be moved */
    }
    if (irqs)
        closedir(irqs);
}

/*
 * The other CPUs, which the kernel was told to leave alone (maxcpus=1). Until here it patches its
 * own code again and again (static keys), and QEMU before 8.1 may miss such a write when another
 * CPU's code is being translated at that moment: it then executes the breakpoint of text_poke() for
 * ever (seen in 1 of 200 starts, on all CPUs, in __schedule()). So what makes it patch later is
 * done before: the random number generator gets ready, a VM is made. Mounts patch nothing.
 */
void setup_cpus(void)
{
    static const uint8_t no_seed[KHOST_SEED_BYTES];
    char path[64];

    seed_random(no_seed);
    hold_a_vm();
    for (unsigned cpu = 1;; cpu++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/online", cpu);
        if (access(path, F_OK) != 0)
            break;
        write_file(path, "1");
    }
    leave_first_cpu();
}

static char *under_root(const char *path)
{
    size_t size = strlen(NEW_ROOT) + strlen(path) + 1;
    char *full = malloc(size);
    if (!full)
        agent_fail("out of memory");
    snprintf(full, size, "%s%s", NEW_ROOT, path);
    return full;
}

/* mkdir -p; needed only where a fresh file system hides the outer directory (/dev/shm, /tmp). */
static void make_directories(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    mkdir(path, 0755);
}

/*
 * cache=mmap: shared file mappings work and nothing else is cached, so what the command writes and
 * what happens outside meanwhile are seen on both sides (cache=none has no shared mappings).
 */
static void mount_rw(const struct request *r, size_t index)
{
    char tag[32];
    snprintf(tag, sizeof tag, "%s%zu", KHOST_RW_TAG, index);
    char *where = under_root(r->rw_dirs[index]);
    if (access(where, F_OK) != 0)
        make_directories(where);
    must_mount(tag, where, "9p", 0,
               "trans=virtio,version=9p2000.L,msize=512000,cache=mmap,access=client");
    free(where);
}

/* The kernel creates such a node some time after the other ports'. Not opened here: what a gdb that
 * is there already has sent would be lost. */
static void give_port(unsigned number)
{
    char path[32];

    snprintf(path, sizeof path, "/dev/vport0p%u", number);
    for (int tries = 0; chmod(path, 0666) != 0; tries++) {
        if (tries == 5000)
            agent_fail("%s: %s", path, strerror(errno));
        usleep(1000);
    }
}

static void mount_devices(const struct request *r)
{
    mkdir(NEW_ROOT "/dev/pts", 0755);
    mkdir(NEW_ROOT "/dev/shm", 01777);
    must_mount("devpts", NEW_ROOT "/dev/pts", "devpts", 0, "mode=620,ptmxmode=666");
    must_mount("tmpfs", NEW_ROOT "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
    unlink("/dev/ptmx");
    if (symlink("pts/ptmx", "/dev/ptmx") || symlink("/proc/self/fd", "/dev/fd") ||
        symlink("/proc/self/fd/0", "/dev/stdin") || symlink("/proc/self/fd/1", "/dev/stdout") ||
        symlink("/proc/self/fd/2", "/dev/stderr"))
        fprintf(stderr, "khost: /dev links: %s\n", strerror(errno));
    if (chmod("/dev/kvm", 0666) != 0)
        agent_fail("there is no /dev/kvm inside (%s)", strerror(errno));
    /* The caller's uid shall be able to do here what root can: page ownership needs userfaultfd. */
    chmod("/dev/userfaultfd", 0666);
    if (r->flags & KHOST_GDB)
        give_port(KHOST_PORT_GDB);
    for (unsigned i = 0; (r->flags & KHOST_NET) && i < KHOST_NETS; i++)
        give_port(KHOST_PORT_NET + i);
    if (r->flags & KHOST_CONTROL)
        give_port(KHOST_PORT_MACHINE);
    write_file("/proc/sys/vm/unprivileged_userfaultfd", "1");
}

/* /tmp shows the outer files, and what is written there is gone afterwards. */
static void mount_tmp(void)
{
    mkdir("/scratch", 0755);
    must_mount("tmpfs", "/scratch", "tmpfs", 0, "mode=755");
    mkdir("/scratch/work", 0755);
    mkdir("/scratch/upper", 0755);
    chmod("/scratch/upper", 01777);
    if (mount("overlay", NEW_ROOT "/tmp", "overlay", MS_NOSUID | MS_NODEV,
              "lowerdir=" NEW_ROOT "/tmp,upperdir=/scratch/upper,workdir=/scratch/work") != 0)
        fprintf(stderr, "khost: /tmp stays read-only: %s\n", strerror(errno));
}

void setup_machine(const struct request *r)
{
    struct timespec now = {.tv_sec = (time_t)r->seconds, .tv_nsec = r->nanoseconds};
    clock_settime(CLOCK_REALTIME, &now);
    seed_random(r->seed);

    must_mount(KHOST_ROOT_TAG, NEW_ROOT, "9p", MS_RDONLY,
               "trans=virtio,version=9p2000.L,msize=512000,cache=loose,access=client");
    bool own_tmp = false;
    for (size_t i = 0; r->rw_dirs[i]; i++) {
        if (strcmp(r->rw_dirs[i], "/") == 0)
            mount_rw(r, i);
        if (strcmp(r->rw_dirs[i], "/") == 0 || strcmp(r->rw_dirs[i], "/tmp") == 0)
            own_tmp = true;
    }
    must_mount("proc", NEW_ROOT "/proc", "proc", 0, NULL);
    must_mount("sysfs", NEW_ROOT "/sys", "sysfs", 0, NULL);
    must_mount("devtmpfs", NEW_ROOT "/dev", "devtmpfs", 0, NULL);
    mount_devices(r);
    if (!own_tmp)
        mount_tmp();
    for (size_t i = 0; r->rw_dirs[i]; i++)
        if (strcmp(r->rw_dirs[i], "/") != 0)
            mount_rw(r, i);
}

void setup_flush(const struct request *r)
{
    /* What the command left running would keep files open, and ends with the machine anyway. */
    kill(-1, SIGKILL);
    while (wait(NULL) > 0)
        continue;
    sync();
    for (size_t i = 0; r->rw_dirs[i]; i++) {
        char *where = under_root(r->rw_dirs[i]);
        if (strcmp(r->rw_dirs[i], "/") != 0 && umount(where) != 0)
            fprintf(stderr, "khost: umount %s: %s\n", where, strerror(errno));
        free(where);
    }
}
