/*
 * ditto-leaks: executes in user mode every instruction that could let host state into the guest
 * without the hypervisor's knowledge, and prints what each gave: a value, or the exception. What a
 * recording must reproduce is in the second column; `dittovm doctor` lists what gave a value.
 *
 * Time: RDTSC, RDTSCP, the vDSO's clock. CPU number: RDPID, RDTSCP, APIC id in CPUID. Randomness:
 * RDRAND, RDSEED. Counters: RDPMC. Descriptor tables and control registers: SGDT, SIDT, SLDT, STR,
 * SMSW, XGETBV. CPU vendor: CPUID, approximations (RCPSS, RSQRTSS, x87), undefined results (BSF).
 * Hypervisor: VMCALL, VMMCALL, CPUID leaves at 0x40000000.
 */
#include "common.h"

#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

enum { TSC_READS = 1000, RANDOM_READS = 4 };

/* What an instruction leaves behind: up to four register values, and CF where it means success. */
struct result {
    uint64_t value[4];
    unsigned char carry;
};

static sigjmp_buf after_fault;
static volatile const char *exception;

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (number == SIGILL)
        exception = "#UD";
    else if (number == SIGTRAP)
        exception = "#DB or #BP";
    else if (info->si_code == SI_KERNEL) /* the kernel knows no address: general protection */
        exception = "#GP";
    else
        exception = "#PF";
    siglongjmp(after_fault, 1);
}

/* Runs the instruction; returns NULL, or the name of the exception it raised. */
static const char *attempt(void (*instruction)(struct result *), struct result *result)
{
    memset(result, 0, sizeof(*result));
    exception = NULL;
    if (sigsetjmp(after_fault, 1) == 0)
        instruction(result);
    return (const char *)exception;
}

static void run_rdtsc(struct result *r)
{
    uint32_t low, high;

    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    r->value[0] = (uint64_t)high << 32 | low;
}

static void run_rdtscp(struct result *r)
{
    uint32_t low, high, aux;

    __asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(aux));
    r->value[0] = (uint64_t)high << 32 | low;
    r->value[1] = aux;
}

static void run_rdpid(struct result *r)
{
    __asm__ volatile(".byte 0xf3, 0x0f, 0xc7, 0xf8" : "=a"(r->value[0])); /* rdpid %rax */
}

static void run_rdrand(struct result *r)
{
    __asm__ volatile(".byte 0x48, 0x0f, 0xc7, 0xf0\n\tsetc %1" /* rdrand %rax */
                     : "=a"(r->value[0]), "=qm"(r->carry)
                     :
                     : "cc");
}

static void run_rdseed(struct result *r)
{
    __asm__ volatile(".byte 0x48, 0x0f, 0xc7, 0xf8\n\tsetc %1" /* rdseed %rax */
                     : "=a"(r->value[0]), "=qm"(r->carry)
                     :
                     : "cc");
}

static void run_rdpmc(struct result *r)
{
    uint32_t low, high;

    __asm__ volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(0));
    r->value[0] = (uint64_t)high << 32 | low;
}

struct descriptor_table {
    uint16_t limit;
    uint64_t base;
} __attribute__((packed));

static void run_sgdt(struct result *r)
{
    struct descriptor_table table = {0, 0};

    __asm__ volatile("sgdt %0" : "=m"(table));
    r->value[0] = table.base;
    r->value[1] = table.limit;
}

static void run_sidt(struct result *r)
{
    struct descriptor_table table = {0, 0};

    __asm__ volatile("sidt %0" : "=m"(table));
    r->value[0] = table.base;
    r->value[1] = table.limit;
}

static void run_sldt(struct result *r)
{
    __asm__ volatile("sldt %0" : "=r"(r->value[0]));
}

static void run_str(struct result *r)
{
    __asm__ volatile("str %0" : "=r"(r->value[0]));
}

static void run_smsw(struct result *r)
{
    __asm__ volatile("smsw %0" : "=r"(r->value[0]));
}

static void run_xgetbv(struct result *r)
{
    uint32_t low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    r->value[0] = (uint64_t)high << 32 | low;
}

static void run_rdfsbase(struct result *r)
{
    __asm__ volatile(".byte 0xf3, 0x48, 0x0f, 0xae, 0xc0" : "=a"(r->value[0])); /* rdfsbase %rax */
}

static void run_rdpkru(struct result *r)
{
    uint32_t low;

    __asm__ volatile(".byte 0x0f, 0x01, 0xee" : "=a"(low) : "c"(0) : "rdx");
    r->value[0] = low;
}

static void run_vmcall(struct result *r)
{
    uint64_t rax = ~0ull;

    __asm__ volatile("vmcall" : "+a"(rax) : "b"(0), "c"(0), "d"(0), "S"(0) : "memory");
    r->value[0] = rax;
}

static void run_vmmcall(struct result *r)
{
    uint64_t rax = ~0ull;

    __asm__ volatile("vmmcall" : "+a"(rax) : "b"(0), "c"(0), "d"(0), "S"(0) : "memory");
    r->value[0] = rax;
}

static void run_in(struct result *r)
{
    uint8_t byte;

    __asm__ volatile("inb $0x80, %0" : "=a"(byte));
    r->value[0] = byte;
}

static void run_rcpss(struct result *r)
{
    float in = 3.0f, out;

    __asm__ volatile("rcpss %1, %0" : "=x"(out) : "x"(in));
    memcpy(r->value, &out, sizeof(out));
}

static void run_rsqrtss(struct result *r)
{
    float in = 3.0f, out;

    __asm__ volatile("rsqrtss %1, %0" : "=x"(out) : "x"(in));
    memcpy(r->value, &out, sizeof(out));
}

static void run_fsin(struct result *r)
{
    long double value = 1e10L;

    __asm__ volatile("fsin" : "+t"(value));
    memcpy(r->value, &value, 10);
}

static void run_bsf(struct result *r)
{
    uint64_t out = 0x1234;

    __asm__ volatile("bsf %1, %0" : "+r"(out) : "r"(0ull) : "cc");
    r->value[0] = out;
}

static void run_vdso_clock(struct result *r)
{
    struct timespec now;

    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        die("clock_gettime");
    r->value[0] = (uint64_t)now.tv_sec;
    r->value[1] = (uint64_t)now.tv_nsec;
}

/* Reads often: the spread of the differences shows whether time passes between two reads. */
static void report_rdtsc(void)
{
    uint64_t first, previous, smallest = ~0ull, largest = 0;
    struct result r;
    const char *fault = attempt(run_rdtsc, &r);

    first = previous = r.value[0];
    for (int i = 1; i < TSC_READS && fault == NULL; i++) {
        uint64_t difference;

        run_rdtsc(&r);
        difference = r.value[0] - previous;
        smallest = difference < smallest ? difference : smallest;
        largest = difference > largest ? difference : largest;
        previous = r.value[0];
    }
    if (fault != NULL)
        printf("%-9s %s\n", "rdtsc", fault);
    else
        printf("%-9s value %#llx to %#llx in %d reads, steps %llu to %llu\n", "rdtsc",
               (unsigned long long)first, (unsigned long long)previous, TSC_READS,
               (unsigned long long)smallest, (unsigned long long)largest);
}

static void report_random(const char *name, void (*instruction)(struct result *))
{
    printf("%-9s", name);
    for (int i = 0; i < RANDOM_READS; i++) {
        struct result r;
        const char *fault = attempt(instruction, &r);

        if (fault != NULL) {
            printf(" %s\n", fault);
            return;
        }
        if (i == 0)
            printf(" value");
        if (r.carry)
            printf(" %016llx", (unsigned long long)r.value[0]);
        else
            printf(" none");
    }
    printf("\n");
}

static void report(const char *name, void (*instruction)(struct result *), int values)
{
    struct result r;
    const char *fault = attempt(instruction, &r);

    if (fault != NULL) {
        printf("%-9s %s\n", name, fault);
        return;
    }
    printf("%-9s value", name);
    for (int i = 0; i < values; i++)
        printf(" %#llx", (unsigned long long)r.value[i]);
    printf("\n");
}

static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[4])
{
    __asm__ volatile("cpuid"
                     : "=a"(out[0]), "=b"(out[1]), "=c"(out[2]), "=d"(out[3])
                     : "a"(leaf), "c"(subleaf));
}

/* Prints the leaves from first to the one its EAX names, at most 64, without those all zero. */
static void report_cpuid_range(uint32_t first)
{
    uint32_t out[4], last;

    cpuid(first, 0, out);
    last = out[0] >= first && out[0] - first < 64 ? out[0] : first;
    for (uint32_t leaf = first; leaf <= last; leaf++) {
        int indexed = leaf == 4 || leaf == 7 || leaf == 0xb || leaf == 0xd || leaf == 0x8000001d;

        for (uint32_t subleaf = 0; subleaf < (indexed ? 4u : 1u); subleaf++) {
            cpuid(leaf, subleaf, out);
            if ((out[0] | out[1] | out[2] | out[3]) == 0)
                continue;
            printf("%-9s value %08x.%u %08x %08x %08x %08x\n", "cpuid", leaf, subleaf, out[0],
                   out[1], out[2], out[3]);
        }
    }
}

int main(void)
{
    static const int faults[] = {SIGILL, SIGSEGV, SIGBUS, SIGTRAP};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};

    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        if (sigaction(faults[i], &action, NULL) != 0)
            die("sigaction");
    report_rdtsc();
    report("rdtscp", run_rdtscp, 2);
    report("rdpid", run_rdpid, 1);
    report_random("rdrand", run_rdrand);
    report_random("rdseed", run_rdseed);
    report("rdpmc", run_rdpmc, 1);
    report("sgdt", run_sgdt, 2);
    report("sidt", run_sidt, 2);
    report("sldt", run_sldt, 1);
    report("str", run_str, 1);
    report("smsw", run_smsw, 1);
    report("xgetbv", run_xgetbv, 1);
    report("rdfsbase", run_rdfsbase, 1);
    report("rdpkru", run_rdpkru, 1);
    report("vmcall", run_vmcall, 1);
    report("vmmcall", run_vmmcall, 1);
    report("in", run_in, 1);
    report("rcpss", run_rcpss, 1);
    report("rsqrtss", run_rsqrtss, 1);
    report("fsin", run_fsin, 2);
    report("bsf", run_bsf, 1);
    report("clock", run_vdso_clock, 2);
    report_cpuid_range(0);
    report_cpuid_range(0x40000000);
    report_cpuid_range(0x80000000);
    return 0;
}
