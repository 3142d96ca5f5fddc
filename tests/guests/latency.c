#include "tests/guests/guest.h"

#define TICKS       40
#define TICKS_MAX   1000
#define PIT         0x40
#define SHOT        23864u /* counts of the 8254: 20 ms */
#define SHOT_NS     20000000u
#define PORT        0x3fd /* the serial port's line status */
#define WORK        2000u
#define KERNEL_MAP  0xffff800000000000ull
#define KERNEL_SLOT 256
#define PTE_USER    4ull

/*
 * How long after it is due an interrupt arrives, by the guest's own clock (the TSC, 1 GHz). The
 * handler starts the timer once more each time, so all loads run alike: load=0 waits in HLT, 1
 * reads a port every few thousand instructions, 2 computes at CPL0 and 3 at CPL3; 4 and 5 compute
 * at CPL3, with an RDTSC (an exit) every few thousand instructions, or every few ms.
 */
static uint64_t n, due, latency[TICKS_MAX];

static void start_shot(void)
{
    outb(PIT + 3, 0x30); /* channel 0, both bytes, mode 0: once */
    outb(PIT, (uint8_t)SHOT);
    due = rdtsc() + SHOT_NS;
    outb(PIT, SHOT >> 8);
}

/* The first shot is there to warm up: it is not counted. */
static void measure(const struct interrupted *found)
{
    uint64_t now = rdtsc();

    (void)found;
    if (ticks > 1)
        latency[ticks - 2] = now > due ? now - due : 0;
    if (ticks <= n)
        start_shot();
}

static void idle(void)
{
    for (;;) {
        __asm__ volatile("cli");
        if (ticks > n)
            break;
        __asm__ volatile("sti\n\thlt");
    }
}

static __attribute__((noipa)) uint64_t some_work(uint64_t sum, uint64_t rounds)
{
    while (rounds--)
        sum = mix(sum, rounds);
    return sum;
}

static void read_port(void)
{
    for (uint64_t sum = 0; ticks <= n;)
        sum = some_work(sum, WORK) + inb(PORT);
}

/* Functions in functions, as most of a kernel's work is; compute() calls one every few ms in the
 * emulated host. */
static __attribute__((noipa)) uint64_t more_work(uint64_t sum)
{
    for (unsigned i = 0; i < 10; i++)
        sum = some_work(sum, WORK);
    return sum;
}

static __attribute__((noipa)) uint64_t long_work(uint64_t sum)
{
    for (unsigned i = 0; i < 20; i++)
        sum = more_work(sum);
    return sum;
}

static __attribute__((noipa)) void compute(void)
{
    for (uint64_t sum = 0; ticks <= n;)
        sum = long_work(sum);
}

static void user(void)
{
    compute();
    leave_user();
}

static void user_reads_often(void)
{
    for (uint64_t sum = 0; ticks <= n;)
        sum = some_work(sum, WORK) + rdtsc_user();
    leave_user();
}

static void user_reads_at_times(void)
{
    for (uint64_t sum = 0; ticks <= n;)
        sum = long_work(sum) + rdtsc_user();
    leave_user();
}

static void done(void)
{
    for (uint64_t i = 1; i < n; i++) {
        uint64_t value = latency[i], at = i;
        for (; at && latency[at - 1] > value; at--)
            latency[at] = latency[at - 1];
        latency[at] = value;
    }
    report("ticks", n);
    report("median us", latency[n / 2] / 1000);
    report("max us", latency[n - 1] / 1000);
}

/* As Linux is found: once there is user code, at an address of kernels'. */
static void kernel(void)
{
    uint64_t cr3;

    __asm__ volatile("mov %%cr3, %0" : "=r"(cr3));
    uint64_t *root = (uint64_t *)(cr3 & 0x000ffffffffff000ull);
    root[KERNEL_SLOT] = root[0] & ~PTE_USER;
    __asm__ volatile("sti");
    ((void (*)(void))((uint64_t)compute + KERNEL_MAP))();
    __asm__ volatile("cli");
    done();
}

void guest_main(void)
{
    static void (*const user_loads[])(void) = {user, user_reads_often, user_reads_at_times};
    uint64_t load = parameter("load", 0);

    n = parameter("ticks", TICKS);
    if (n < 1 || n > TICKS_MAX || load > 5) {
        put("ticks=1 to 1000, load=0 to 5\n");
        return;
    }
    timer_start(20);
    __asm__ volatile("cli");
    ticks = 0;
    at_tick = measure;
    start_shot();
    __asm__ volatile("sti");
    if (load == 2)
        enter_user(leave_user, kernel);
    if (load > 2)
        enter_user(user_loads[load - 3], done);
    if (load == 1)
        read_port();
    else
        idle();
    done();
}
