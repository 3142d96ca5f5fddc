/*
 * ditto-i386: a 32-bit program that is interrupted by timer signals in loops of several kinds, and
 * prints a sum of how far each loop was at each signal. Host state it would leak: the moment of
 * every timer interrupt. It is built without a C library (build-image.sh), since 32-bit ones are
 * not installed everywhere.
 */
#include <stddef.h>
#include <stdint.h>

enum { SIGNALS = 3, SIGNAL_EVERY_US = 8000, SIGALRM = 14 };
enum { SYS_EXIT = 1, SYS_WRITE = 4, SYS_SETITIMER = 104, SYS_RT_SIGACTION = 174 };
#define SA_SIGINFO  4u /* the frame is one for rt_sigreturn */
#define SA_RESTORER 0x04000000u

struct action {
    void (*handler)(int);
    uint32_t flags;
    void (*restorer)(void);
    uint32_t mask[2];
};

static volatile uint32_t passes, signals, sum;
static double sum_of_ones;

static int32_t system_call(uint32_t number, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    int32_t result;

    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d)
                     : "memory");
    return result;
}

static void print(const char *text)
{
    size_t length = 0;

    while (text[length] != '\0')
        length++;
    system_call(SYS_WRITE, 1, (uint32_t)text, length, 0);
}

static _Noreturn void leave(uint32_t status)
{
    for (;;)
        system_call(SYS_EXIT, status, 0, 0, 0);
}

static void check(int32_t result, const char *what)
{
    if (result >= 0)
        return;
    print(what);
    print(" failed\n");
    leave(1);
}

/* The passes since the signal before count with their order. */
static void on_signal(int number)
{
    (void)number;
    signals++;
    sum = (sum ^ passes) * 0x01000193u;
}

__asm__("restorer:\n\tmovl $173, %eax\n\tint $0x80"); /* rt_sigreturn */
extern void restorer(void);

static void set_timer(uint32_t microseconds)
{
    uint32_t timer[4] = {0, microseconds, 0, microseconds};

    check(system_call(SYS_SETITIMER, 0, (uint32_t)timer, 0, 0), "setitimer");
}

static void counts(void)
{
    while (signals < SIGNALS)
        passes++;
}

/* Its counter lies in a frame, below one that each pass makes. */
static __attribute__((noinline)) void add_one(uint32_t *counter)
{
    uint32_t frame[4];

    for (uint32_t i = 0; i < 4; i++)
        ((volatile uint32_t *)frame)[i] = *counter;
    *counter = frame[3] + 1;
}

static void calls(void)
{
    uint32_t counter = 0;

    while (signals < SIGNALS) {
        add_one(&counter);
        passes = counter;
    }
}

static void adds_x87(void)
{
    while (signals < SIGNALS) {
        __asm__ volatile("fldl %0\n\tfld1\n\tfaddp\n\tfstpl %0" : "+m"(sum_of_ones));
        passes++;
    }
}

/* The string instructions are interrupted between two of their steps, too. */
static void copies(void)
{
    static uint8_t from[4096], to[4096];

    while (signals < SIGNALS) {
        const void *source = from;
        void *target = to;
        uint32_t length = sizeof(to);

        __asm__ volatile("rep movsb" : "+S"(source), "+D"(target), "+c"(length)::"memory");
        from[passes++ % sizeof(from)]++;
    }
}

static void run(const char *name, void (*loop)(void))
{
    char digits[] = "00000000\n";

    passes = signals = 0;
    sum = 0x811c9dc5u;
    set_timer(SIGNAL_EVERY_US);
    loop();
    set_timer(0);
    for (int i = 0; i < 8; i++)
        digits[i] = "0123456789abcdef"[sum >> (28 - 4 * i) & 15];
    print("i386: ");
    print(name);
    print(", passes at each signal: sum ");
    print(digits);
}

static __attribute__((used)) _Noreturn void start(void)
{
    static const struct action action = {on_signal, SA_SIGINFO | SA_RESTORER, restorer, {0, 0}};

    check(system_call(SYS_RT_SIGACTION, SIGALRM, (uint32_t)&action, 0, 8), "rt_sigaction");
    run("counting", counts);
    run("calls", calls);
    run("x87", adds_x87);
    run("copying", copies);
    leave(0);
}

__asm__(".globl _start\n_start:\n\tandl $-16, %esp\n\tcall start");
