/*
 * ditto-compute N MODE: about N million passes of a loop without a system call, in one of the ways
 * that make it hard to find one of its instructions again: a counter in a register or in memory,
 * string instructions, deep recursion, code that rewrites itself. Host state it would leak: the
 * instruction at which each interrupt lands; the checksum is wrong if one lands elsewhere and its
 * handler disturbs anything. Prints the checksum and the elapsed time.
 */
#include "common.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <xmmintrin.h>

enum { BLOCK = 64 * 1024, DEPTH = 10000 };

/* The counter lives in a register. */
static uint64_t loop_register(uint64_t passes)
{
    uint64_t value = 88172645463325252ull;

    for (uint64_t i = 0; i < passes; i++) {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
    }
    return value;
}

/* Everything that changes lives in memory, as in code compiled without optimisation. */
static uint64_t loop_memory(uint64_t passes)
{
    volatile uint64_t counter = 0, sum = 0;

    while (counter < passes) {
        sum = sum * 31 + counter;
        counter = counter + 1;
    }
    return sum;
}

/* Doubles, under each of the four rounding modes of MXCSR in turn. */
static uint64_t loop_sse(uint64_t passes)
{
    unsigned int before = _mm_getcsr();
    volatile double third = 3.0;
    double sum = 0;
    uint64_t bits;

    for (uint64_t i = 0; i < passes; i++) {
        if (i % 65536 == 0)
            _mm_setcsr((before & ~(unsigned)_MM_ROUND_MASK) | (unsigned)(i / 65536 % 4) << 13);
        sum = sum / third + 1.0 / (double)((i & 1023) + 3);
    }
    _mm_setcsr(before);
    memcpy(&bits, &sum, sizeof(bits));
    return bits;
}

/* String instructions over blocks so long that interrupts land inside them; a pass is a byte. */
static uint64_t loop_rep(uint64_t passes)
{
    static unsigned char from[BLOCK], to[BLOCK];
    uint64_t sum = CHECKSUM_START;

    for (uint64_t block = 0; block < passes / BLOCK + 1; block++) {
        const unsigned char *source = from;
        unsigned char *destination = from;
        uint64_t count = BLOCK;

        __asm__ volatile("rep stosb"
                         : "+D"(destination), "+c"(count)
                         : "a"((int)(block & 0xff))
                         : "memory");
        destination = to;
        count = BLOCK / 8;
        __asm__ volatile("rep movsq" : "+S"(source), "+D"(destination), "+c"(count) : : "memory");
        to[block * 257 % BLOCK] ^= 1;
        source = from;
        destination = to;
        count = BLOCK;
        __asm__ volatile("repe cmpsb"
                         : "+S"(source), "+D"(destination), "+c"(count)
                         :
                         : "memory", "cc");
        sum = checksum(sum, &count, sizeof(count));
    }
    return sum;
}

static __attribute__((noinline)) uint64_t recurse(uint64_t depth)
{
    uint64_t below = depth == 0 ? 1 : recurse(depth - 1);

    __asm__ volatile("" : "+r"(below)); /* keeps the compiler from turning this into a loop */
    return below * 3 + depth;
}

/* The same few return addresses ten thousand frames deep; only RSP tells them apart. */
static uint64_t loop_recurse(uint64_t passes)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < passes / DEPTH + 1; i++)
        sum += recurse(DEPTH - i % 16);
    return sum;
}

/* Calls "mov $imm32,%eax; lea (%rax,%rdi),%rax; ret" and rewrites imm32 every 4096 calls. */
static uint64_t loop_selfmod(uint64_t passes)
{
    static const unsigned char code[] = {0xb8, 0, 0, 0, 0, 0x48, 0x8d, 0x04, 0x38, 0xc3};
    unsigned char *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t (*function)(uint64_t);
    uint64_t sum = 0;

    if (page == MAP_FAILED)
        die("mmap");
    memcpy(page, code, sizeof(code));
    memcpy(&function, &page, sizeof(function));
    for (uint64_t i = 0; i < passes; i++) {
        if (i % 4096 == 0) {
            uint32_t immediate = (uint32_t)(i / 4096 + 1);

            memcpy(page + 1, &immediate, sizeof(immediate));
            __asm__ volatile("" : : : "memory");
        }
        sum += function(i);
    }
    munmap(page, 4096);
    return sum;
}

/* Two instructions, one of them the branch. */
static uint64_t loop_tight(uint64_t passes)
{
    __asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(passes) : : "cc");
    return passes;
}

static volatile sig_atomic_t alarm_came;

static void on_alarm(int signal_number)
{
    (void)signal_number;
    alarm_came = 1;
}

/*
 * Passes until a timer signal, N milliseconds from now, sets a flag. Their number is the checksum:
 * it differs in every run and must not differ in a replay.
 */
static uint64_t loop_spin(uint64_t milliseconds)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval once = {
        {0, 0}, {(time_t)(milliseconds / 1000), (suseconds_t)(milliseconds % 1000 * 1000)}};
    uint64_t passes = 0;

    if (sigaction(SIGALRM, &action, NULL) != 0 || setitimer(ITIMER_REAL, &once, NULL) != 0)
        die("setitimer");
    while (!alarm_came)
        passes++;
    return passes;
}

static const struct {
    const char *name;
    uint64_t (*run)(uint64_t count);
    uint64_t unit; /* passes, or milliseconds, for each of N */
} modes[] = {
    {"reg", loop_register, 1000000},    {"mem", loop_memory, 1000000},
    {"sse", loop_sse, 1000000},         {"rep", loop_rep, 1000000},
    {"recurse", loop_recurse, 1000000}, {"selfmod", loop_selfmod, 1000000},
    {"tight", loop_tight, 1000000},     {"spin", loop_spin, 1},
};

int main(int argc, char **argv)
{
    static const char usage[] =
        "ditto-compute N reg|mem|sse|rep|recurse|selfmod|tight|spin (N million passes; spin: ms)";
    unsigned long count = count_argument(argc == 3 ? argv[1] : NULL, 100000000, usage);

    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        if (strcmp(argv[2], modes[i].name) == 0) {
            long long start = now_ms();
            uint64_t sum = modes[i].run(count * modes[i].unit);

            printf("compute %s: sum %016llx, %lld ms\n", modes[i].name, (unsigned long long)sum,
                   now_ms() - start);
            return 0;
        }
    }
    fprintf(stderr, "usage: %s\n", usage);
    return 2;
}
