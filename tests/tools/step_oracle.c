/*
 * Is the stepping clock exact? Random sequences of instructions run three times: in a guest,
 * stepped (vmm/points/stepper.h); in the same guest, freely; and as a process
 * (tests/tools/process.h), where this program counts conditional branches by itself, from opcode
 * bytes. The counts of the first and the last and the final states of all three must be equal.
 *
 * usage: step_oracle COUNT [FIRST]
 */
#include <assert.h>
#include <stddef.h>
#include <unistd.h>

#include "tests/tools/process.h"
#include "tests/tools/random_code.h"
#include "tests/tools/tool_host.h"
#include "vmm/kvm/micro_guest.h"
#include "vmm/points/stepper.h"

/* Carry to overflow, without TF, IF and IOPL. */
#define FLAGS       RFLAGS_STATUS
#define STEPS_MAX   100000u
#define STACK_BYTES 0x10000u
#define MSR_STAR    0xc0000081u
#define MSR_LSTAR   0xc0000082u
#define MSR_SFMASK  0xc0000084u
/* LSTAR leads to the handler of this vector. */
#define SYSCALL_VECTOR 0x31u

struct outcome {
    uint64_t branches;
    uint64_t regs[16]; /* RAX RBX RCX RDX RSI RDI RSP RBP R8.. */
    uint64_t flags;
    uint8_t data[DATA_BYTES];
};

static void start_values(struct code *c, uint64_t regs[16], uint8_t data[DATA_BYTES])
{
    for (unsigned i = 0; i < 16; i++)
        regs[i] = (uint64_t)pick(c, UINT32_MAX) << 32 | pick(c, UINT32_MAX);
    regs[6] = STACK_AT - 0x1000;
    for (unsigned i = 0; i < DATA_BYTES; i++)
        data[i] = (uint8_t)pick(c, 256);
}

/* ---- the guest ---- */

static struct micro_guest guest;
static struct kvm_sregs sregs_at[4]; /* by CPL */

static void guest_create(void)
{
    struct probe_outcome o = {0};
    static const uint8_t nop = 0x90;

    if (!micro_guest_start(&guest, &nop, 1, 0, &o))
        fail(o.detail);
    vcpu_get_sregs(&guest.vcpu, &sregs_at[0]);
    sregs_at[3] = sregs_at[0];
    for (unsigned i = 0; i < 6; i++) {
        struct kvm_segment *s = &(&sregs_at[3].cs)[i];
        s->selector = i ? 0x2b : MICRO_USER_CS;
        s->dpl = 3;
    }
    if (!micro_guest_set_msr(&guest, MSR_STAR, (uint64_t)0x20 << 48 | (uint64_t)0x10 << 32, &o) ||
        !micro_guest_set_msr(&guest, MSR_LSTAR, 0x8000 + 16 * SYSCALL_VECTOR, &o) ||
        !micro_guest_set_msr(&guest, MSR_SFMASK, 0x300, &o))
        fail(o.detail);
}

/* The guest's kernel, so to speak: it stands in the handler of a vector. */
static void serve(unsigned vector)
{
    struct vcpu *vcpu = &guest.vcpu;
    struct kvm_regs regs;
    struct kvm_sregs sregs;
    struct err e;
    uint64_t frame[6], *at = frame;

    if (vcpu_complete(vcpu, &e) < 0)
        fail(e.text);
    regs = *vcpu->regs;
    vcpu_get_sregs(vcpu, &sregs);
    if (vector == SYSCALL_VECTOR) {
        regs.rip = regs.rcx;
        regs.rflags = regs.r11;
        sregs.cs = sregs_at[3].cs;
        sregs.ss = sregs_at[3].ss;
    } else {
        memcpy(frame, guest_memory_at(&guest.vm.memory, regs.rsp, sizeof frame), sizeof frame);
        at += vector == 13 || vector == 14;
        regs.rip = at[0] + (vector == 0x30 ? 0 : 2);
        regs.rflags = at[2];
        regs.rsp = at[3];
        sregs.cs = sregs_at[at[1] & 3].cs;
        sregs.ss = sregs_at[at[1] & 3].ss;
    }
    vcpu_set_sregs(vcpu, &sregs);
    vcpu_set_regs(vcpu, &regs);
}

static void guest_load(const struct code *c, unsigned cpl, const uint64_t regs[16],
                       const uint8_t *data)
{
    struct kvm_regs r = {.rip = CODE_AT, .rflags = 2 | (cpl ? 0x3000 : 0)};
    uint8_t *code = guest_memory_at(&guest.vm.memory, CODE_AT, CODE_MAX + 2);

    memcpy(&r, regs, 16 * sizeof *regs);
    memcpy(code, c->bytes, c->len);
    memcpy(code + c->len, (const uint8_t[]){0xe6, MICRO_DONE}, 2);
    memcpy(guest_memory_at(&guest.vm.memory, DATA_AT, DATA_BYTES), data, DATA_BYTES);
    vcpu_set_sregs(&guest.vcpu, &sregs_at[cpl]);
    vcpu_set_regs(&guest.vcpu, &r);
}

static void run_guest(bool stepped, struct outcome *out)
{
    struct vcpu *vcpu = &guest.vcpu;
    struct stepper stepper;
    struct vcpu_exit exit;
    struct step step = {.kind = STEP_EXIT};
    struct err e;

    *out = (struct outcome){0};
    stepper_init(&stepper, vcpu);
    for (unsigned n = 0;; n++) {
        if (n == STEPS_MAX)
            fail("a guest does not end");
        if ((stepped ? stepper_step(&stepper, &step, &exit, &e) : vcpu_run(vcpu, &exit, &e)) < 0)
            fail(e.text);
        out->branches += step.branches;
        if (step.kind != STEP_EXIT || exit.kind == EXIT_KICK)
            continue;
        stepper_close(&stepper);
        if (exit.kind != EXIT_PIO_OUT)
            fail("an exit that was not expected");
        if (exit.at == MICRO_DONE)
            break;
        serve((unsigned)exit.at);
    }
    if (vcpu_complete(vcpu, &e) < 0)
        fail(e.text);
    memcpy(out->regs, vcpu->regs, sizeof out->regs);
    out->flags = vcpu->regs->rflags & FLAGS;
    memcpy(out->data, guest_memory_at(&guest.vm.memory, DATA_AT, DATA_BYTES), DATA_BYTES);
}

/* ---- the process ---- */

static uint8_t *process_code, *process_data;

static void process_create(void)
{
    const int data = PROT_READ | PROT_WRITE;

    process_code = process_map(CODE_AT, 2 * CODE_MAX, data | PROT_EXEC, -1);
    process_data = process_map(DATA_AT, DATA_BYTES, data, -1);
    process_map(STACK_AT - STACK_BYTES, STACK_BYTES, data, -1);
    process_start();
}

static void run_process(const struct code *c, const uint64_t regs[16], const uint8_t *data,
                        struct outcome *out)
{
    struct kvm_regs r = {.rip = CODE_AT, .rflags = 2};

    *out = (struct outcome){0};
    memcpy(process_code, c->bytes, c->len);
    memset(process_code + c->len, 0x90, 16);
    memcpy(process_data, data, DATA_BYTES);
    memcpy(&r, regs, sizeof out->regs);
    for (unsigned n = 0; r.rip != CODE_AT + c->len; n++) {
        if (n == STEPS_MAX || r.rip - CODE_AT > c->len)
            fail("the process ran away");
        const uint8_t *at = process_code + (r.rip - CODE_AT);
        if (at[0] == 0x0f && at[1] == 0x05) { /* SYSCALL, as the CPU does it */
            r.rcx = r.rip += 2;
            r.r11 = r.rflags;
            continue;
        }
        const bool branch = is_branch(at), pushf = is_pushf(at);
        if (!process_step(&r)) {
            r.rip += 2;
            continue;
        }
        out->branches += branch;
        if (pushf)
            *(uint8_t *)(r.rsp + 1) &= 0xfe;
    }
    memcpy(out->regs, &r, sizeof out->regs);
    out->flags = r.rflags & FLAGS;
    memcpy(out->data, process_data, DATA_BYTES);
}

/* ---- */

static bool same(uint64_t number, const char *what, const struct outcome *a,
                 const struct outcome *b, bool counts)
{
    static const char *const names[] = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rsp", "rbp",
                                        "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
    bool equal = true;

    if (counts && a->branches != b->branches) {
        printf("# %llu: %llu branches stepped, %llu in %s\n", (unsigned long long)number,
               (unsigned long long)a->branches, (unsigned long long)b->branches, what);
        equal = false;
    }
    for (unsigned i = 0; i < 16; i++)
        if (a->regs[i] != b->regs[i]) {
            printf("# %llu: %s is %#llx stepped, %#llx in %s\n", (unsigned long long)number,
                   names[i], (unsigned long long)a->regs[i], (unsigned long long)b->regs[i], what);
            equal = false;
        }
    if (a->flags != b->flags || memcmp(a->data, b->data, DATA_BYTES)) {
        printf("# %llu: flags or memory differ from %s\n", (unsigned long long)number, what);
        equal = false;
    }
    return equal;
}

static bool try_one(uint64_t number)
{
    static struct outcome stepped, free_running, process;
    static uint8_t data[DATA_BYTES];
    const unsigned cpl = number % 2 ? 3 : 0;
    struct code c;
    uint64_t regs[16];

    random_code(&c, number, cpl);
    start_values(&c, regs, data);
    guest_load(&c, cpl, regs, data);
    run_guest(true, &stepped);
    guest_load(&c, cpl, regs, data);
    run_guest(false, &free_running);
    run_process(&c, regs, data, &process);
    bool free_is_same = same(number, "the guest running freely", &stepped, &free_running, false);
    return same(number, "the process", &stepped, &process, true) && free_is_same;
}

int main(int argc, char **argv)
{
    int status;

    const struct host_needs needs = {.guest_memory = 16u << 20};
    if (tool_ran_in_host("step_oracle", argv, &needs, &status))
        return status;
    const uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : 100;
    const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
    uint64_t bad = 0;

    guest_create();
    process_create();
    for (uint64_t i = first; i < first + count; i++)
        bad += !try_one(i);
    printf("1..1\n%s 1 %llu random sequences: %llu differ\n", bad ? "not ok" : "ok",
           (unsigned long long)count, (unsigned long long)bad);
    return bad ? 1 : 0;
}
