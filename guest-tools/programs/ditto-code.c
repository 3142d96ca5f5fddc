/*
 * ditto-code [KIND...]: user code that is not what a compiler makes of ordinary C, interrupted by
 * timer signals. Prints of each kind a sum of how far it was at each signal. Host state it would
 * leak: the moment of every timer interrupt, which must be found again in each kind of code.
 */
#include "common.h"

#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIGNALS = 10, SIGNAL_EVERY_US = 8000, STEPS = 2000, CALLS = 20000, TRAP_FLAG = 0x100 };

static volatile uint64_t passes, faults;
static volatile sig_atomic_t signals;
static uint64_t sum;

static void take_sum(void)
{
    uint64_t now = passes;

    sum = checksum(sum, &now, sizeof(now));
}

static void on_signal(int number)
{
    (void)number;
    take_sum();
    signals++;
}

static void catch (int number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | flags};

    if (sigaction(number, &action, NULL) != 0)
        die("sigaction");
}

static void set_timer(int microseconds)
{
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};

    if (setitimer(ITIMER_REAL, &timer, NULL) != 0)
        die("setitimer");
}

static void run(const char *name, void (*loop)(void))
{
    passes = signals = faults = 0;
    sum = CHECKSUM_START;
    set_timer(SIGNAL_EVERY_US);
    loop();
    set_timer(0);
    catch (SIGALRM, on_signal, 0);
    printf("code: %s, passes at each signal: sum %016llx\n", name, (unsigned long long)sum);
    fflush(stdout);
}

static void *map(int protection, int flags, int file)
{
    void *at = mmap(NULL, 4096, protection, flags, file, 0);

    if (at == MAP_FAILED)
        die("mmap");
    return at;
}

static void adds_x87(void)
{
    double ones = 0;

    while (signals < SIGNALS) {
        __asm__ volatile("fldl %0\n\tfld1\n\tfaddp\n\tfstpl %0" : "+m"(ones));
        passes++;
    }
    take_sum();
    sum = checksum(sum, &ones, sizeof(ones));
}

static void on_inner_signal(int number)
{
    (void)number;
    faults++;
}

static void on_signal_with_another(int number)
{
    on_signal(number);
    for (int i = 0; i < 1000; i++)
        passes++;
    raise(SIGUSR1);
}

static void handles_on_another_stack(void)
{
    static char stack[65536];
    stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)}, none = {.ss_flags = SS_DISABLE};

    if (sigaltstack(&other, NULL) != 0)
        die("sigaltstack");
    catch (SIGUSR1, on_inner_signal, SA_NODEFER);
    catch (SIGALRM, on_signal_with_another, SA_ONSTACK);
    while (signals < SIGNALS)
        passes++;
    sigaltstack(&none, NULL);
    sum = checksum(sum, (const void *)&faults, sizeof(faults));
}

static void on_trap(int number)
{
    (void)number;
    faults++;
}

/* Each of its instructions but for those of the handlers is followed by a #DB. */
static void steps_itself(void)
{
    catch (SIGTRAP, on_trap, 0);
    __asm__ volatile("pushfq\n\torq %2, (%%rsp)\n\tpopfq\n"
                     "1:\tincq %0\n\tcmpl %3, %1\n\tjb 1b\n\t"
                     "pushfq\n\tandq %4, (%%rsp)\n\tpopfq"
                     : "+m"(passes)
                     : "m"(signals), "i"(TRAP_FLAG), "i"(SIGNALS), "i"(~TRAP_FLAG)
                     : "memory", "cc");
    take_sum();
    sum = checksum(sum, (const void *)&faults, sizeof(faults));
}

/* A child that computes is stepped; then it goes on until its parent's signals are over. */
static void steps_a_child(void)
{
    pid_t child = fork();
    int status;

    if (child < 0)
        die("fork");
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        for (;;)
            passes++;
    }
    while (passes < STEPS || signals < SIGNALS) {
        if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
            die("the stepped child");
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0)
            die("PTRACE_SINGLESTEP");
        passes++;
    }
    waitpid(child, &status, 0);
    errno = 0;
    sum = checksum(sum, &(long){ptrace(PTRACE_PEEKDATA, child, (const void *)&passes, NULL)},
                   sizeof(long));
    if (errno != 0)
        die("PTRACE_PEEKDATA");
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

/* mov $NUMBER, %eax; ret */
static void write_function(volatile uint8_t *code, uint32_t number)
{
    uint8_t bytes[] = {0xb8,         number & 0xff, number >> 8 & 0xff, number >> 16 & 0xff,
                       number >> 24, 0xc3};

    for (size_t i = 0; i < sizeof(bytes); i++)
        code[i] = bytes[i];
}

/* WRITTEN and RUN may be two mappings of one page: how V8 and LuaJIT keep W^X. */
static void makes_code(volatile uint8_t *written, const void *run_at)
{
    uint32_t (*function)(void);

    memcpy(&function, &run_at, sizeof(function));
    while (signals < SIGNALS) {
        write_function(written, (uint32_t)passes);
        __asm__ volatile("cpuid" : : "a"(0), "c"(0) : "rbx", "rdx", "memory");
        for (int i = 0; i < CALLS; i++)
            if (function() != (uint32_t)passes)
                die("stale code");
        passes++;
    }
}

static void makes_code_in_place(void)
{
    void *page = map(PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1);

    makes_code(page, page);
    munmap(page, 4096);
}

static void makes_code_mapped_twice(void)
{
    int file = memfd_create("code", 0);
    void *written, *run_at;

    if (file < 0 || ftruncate(file, 4096) != 0)
        die("memfd_create");
    written = map(PROT_READ | PROT_WRITE, MAP_SHARED, file);
    run_at = map(PROT_READ | PROT_EXEC, MAP_SHARED, file);
    makes_code(written, run_at);
    munmap(written, 4096);
    munmap(run_at, 4096);
    close(file);
}

static bool has_vsyscall_page(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    bool found = false;

    if (maps == NULL)
        die("/proc/self/maps");
    while (!found && fgets(line, sizeof(line), maps) != NULL)
        found = strstr(line, "[vsyscall]") != NULL;
    fclose(maps);
    return found;
}

/* time() as programs of 2005 call it: the kernel answers the fault that fetching code from there
 * gives. */
static void calls_the_vsyscall_page(void)
{
    uintptr_t address = 0xffffffffff600400u;
    time_t (*vsyscall_time)(time_t *);
    time_t last = 0;

    if (!has_vsyscall_page()) /* Linux wants to be told vsyscall=xonly or emulate */
        return;
    memcpy(&vsyscall_time, &address, sizeof(vsyscall_time));
    while (signals < SIGNALS) {
        last = vsyscall_time(NULL);
        passes++;
    }
    sum = checksum(sum, &last, sizeof(last));
}

static void on_segv(int number, siginfo_t *info, void *context)
{
    ucontext_t *at = context;

    (void)number;
    (void)info;
    faults++;
    at->uc_mcontext.gregs[REG_RIP] += 1; /* one byte: IN or OUT by DX */
}

static void uses_ports(void)
{
    struct sigaction action = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO};

    if (sigaction(SIGSEGV, &action, NULL) != 0)
        die("sigaction");
    if (ioperm(0x80, 1, 1) != 0)
        die("ioperm");
    while (signals < SIGNALS) {
        outb((unsigned char)passes, 0x80);
        if (passes % 64 == 0)
            inb(0x90); /* not permitted */
        passes++;
    }
    ioperm(0x80, 1, 0);
    signal(SIGSEGV, SIG_DFL);
    sum = checksum(sum, (const void *)&faults, sizeof(faults));
}

static void *map_ring(int ring, size_t length, off_t offset)
{
    void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, offset);

    if (at == MAP_FAILED)
        die("mmap of a ring");
    return at;
}

/* The kernel's workers write the completion queue while this program looks at it without a system
 * call. */
static void uses_io_uring(void)
{
    struct io_uring_params p = {0};
    int ring = (int)syscall(__NR_io_uring_setup, 8, &p), file = memfd_create("file", 0);
    uint8_t *queues;
    struct io_uring_sqe *entries;
    uint32_t *sq_tail, *cq_head, *cq_tail, *sq_array;
    char text[64] = "written by io_uring";

    if (ring < 0 || file < 0 || !(p.features & IORING_FEAT_SINGLE_MMAP))
        die("io_uring_setup");
    queues = map_ring(ring, 65536, IORING_OFF_SQ_RING);
    entries = map_ring(ring, p.sq_entries * sizeof(*entries), IORING_OFF_SQES);
    sq_tail = (uint32_t *)(queues + p.sq_off.tail);
    sq_array = (uint32_t *)(queues + p.sq_off.array);
    cq_head = (uint32_t *)(queues + p.cq_off.head);
    cq_tail = (uint32_t *)(queues + p.cq_off.tail);
    while (signals < SIGNALS) {
        uint32_t slot = *sq_tail % p.sq_entries;

        entries[slot] = (struct io_uring_sqe){
            .opcode = passes % 2 == 0 ? IORING_OP_WRITE : IORING_OP_READ,
            .flags = IOSQE_ASYNC,
            .fd = file,
            .addr = (uintptr_t)text,
            .len = sizeof(text),
            .user_data = passes,
        };
        sq_array[slot] = slot;
        __atomic_store_n(sq_tail, *sq_tail + 1, __ATOMIC_RELEASE);
        if (syscall(__NR_io_uring_enter, ring, 1, 0, 0, NULL, 0) != 1)
            die("io_uring_enter");
        while (__atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) == *cq_head)
            sum++; /* how often depends on when the worker had run */
        __atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
        passes++;
    }
    munmap(queues, 65536);
    munmap(entries, p.sq_entries * sizeof(*entries));
    close(ring);
    close(file);
}

static int bpf(int command, union bpf_attr *attributes)
{
    return (int)syscall(__NR_bpf, command, attributes, sizeof(*attributes));
}

/* A filter of a socket that the kernel compiles: it writes the time of each packet into a map. */
static void filters_with_bpf(void)
{
    union bpf_attr map_of = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 1};
    int values = bpf(BPF_MAP_CREATE, &map_of), program, pair[2];
    char log[4096] = "";
    struct bpf_insn code[] = {
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_ktime_get_ns},
        {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 6, .src_reg = 0},
        {.code = BPF_ST | BPF_MEM | BPF_W, .dst_reg = 10, .off = -4, .imm = 0},
        {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 2, .src_reg = 10},
        {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 2, .imm = -4},
        {.code = BPF_LD | BPF_DW | BPF_IMM,
         .dst_reg = 1,
         .src_reg = BPF_PSEUDO_MAP_FD,
         .imm = values},
        {.code = 0},
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_map_lookup_elem},
        {.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = 0, .off = 1, .imm = 0},
        {.code = BPF_STX | BPF_MEM | BPF_DW, .dst_reg = 0, .src_reg = 6},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 4},
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr load = {
        .prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
        .insns = (uintptr_t)code,
        .insn_cnt = sizeof(code) / sizeof(*code),
        .license = (uintptr_t) "GPL",
        .log_buf = (uintptr_t)log,
        .log_size = sizeof(log),
        .log_level = 1,
    };

    if (values < 0)
        die("BPF_MAP_CREATE");
    /* The kernel gives its look at a program up for a signal. Without our timer there is still
     * the notice of an io_uring that the kernel takes apart behind its close(). */
    set_timer(0);
    do
        program = bpf(BPF_PROG_LOAD, &load);
    while (program < 0 && errno == EAGAIN);
    set_timer(SIGNAL_EVERY_US);
    if (program < 0) {
        fputs(log, stderr);
        die("BPF_PROG_LOAD");
    }
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0 ||
        setsockopt(pair[1], SOL_SOCKET, SO_ATTACH_BPF, &program, sizeof(program)) != 0)
        die("SO_ATTACH_BPF");
    while (signals < SIGNALS) {
        char packet[8] = "packet!";
        uint64_t time = 0;
        uint32_t key = 0;
        union bpf_attr lookup = {
            .map_fd = (uint32_t)values, .key = (uintptr_t)&key, .value = (uintptr_t)&time};

        if (send(pair[0], packet, sizeof(packet), 0) != sizeof(packet) ||
            recv(pair[1], packet, sizeof(packet), 0) != 4)
            die("the filtered socket");
        if (bpf(BPF_MAP_LOOKUP_ELEM, &lookup) != 0)
            die("BPF_MAP_LOOKUP_ELEM");
        sum = checksum(sum, &time, sizeof(time));
        passes++;
    }
    close(pair[0]);
    close(pair[1]);
    close(program);
    close(values);
}

static const struct {
    const char *name;
    void (*loop)(void);
} kinds[] = {
    {"x87", adds_x87},
    {"another-stack", handles_on_another_stack},
    {"own-trap-flag", steps_itself},
    {"stepped-child", steps_a_child},
    {"written-code", makes_code_in_place},
    {"code-mapped-twice", makes_code_mapped_twice},
    {"vsyscall", calls_the_vsyscall_page},
    {"ports", uses_ports},
    {"io_uring", uses_io_uring},
    {"bpf", filters_with_bpf},
};

static bool is_wanted(const char *kind, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], kind) == 0)
            return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    catch (SIGALRM, on_signal, 0);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (is_wanted(kinds[i].name, argc, argv))
            run(kinds[i].name, kinds[i].loop);
    return 0;
}
