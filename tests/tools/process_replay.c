/*
 * Do recordings made by stepping say the truth? Replays one of a bare guest (tests/guests) without
 * KVM: the guest's code runs as a process, traced instruction by instruction
 * (tests/tools/process.h), and what a process may not do (ports, interrupts, tables, IRETQ) is done
 * by hand. Each forced point must be where this program, which counts by itself, has retired as
 * many conditional branches as the recording says, and each sync point must have the recorded
 * registers.
 *
 * Its CPU must be the guest's, as flags that are undefined differ between CPUs: so it runs where
 * dittovm would run the guest.
 *
 * usage: process_replay REC...
 */
#include <assert.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hidden_ports.h"
#include "cli/command.h"
#include "mmu/insn.h"
#include "replay/player_inside.h"
#include "tests/tools/process.h"
#include "vmm/kvm/cr4.h"

#define FIRST_PAGE   0x1000u /* what lies below is not the guest's to touch */
#define FLAGS_OWN    0xcd5u  /* CF PF AF ZF SF DF OF: these are as the process has them */
#define REGISTER_RCX 2
#define GATE_BYTES   16u
#define FRAME_WORDS  5u
#define MSR_LSTAR    0xc0000082u

static struct player player;
static struct kvm_regs now;
/* What the process does not have as the guest has it. */
static bool interrupts, shadow; /* RFLAGS.IF; the instruction before was STI */
static bool window;             /* EXIT_WINDOW is wanted */
static uint16_t cs, ss;
static uint64_t idt, gdt, tss, cr[8];

static uint64_t next_rip;                             /* behind a port's instruction */
static uint64_t branches;                             /* since the last sync point */
static uint64_t total_branches, instructions, forced; /* for the report */

static _Noreturn void lost(const char *what)
{
    fprintf(stderr, "process_replay: behind sync point %llu and %llu branches, at rip %#llx: %s\n",
            (unsigned long long)player.ordinal, (unsigned long long)branches,
            (unsigned long long)now.rip, what);
    exit(1);
}

static uint8_t *memory(uint64_t at, size_t len)
{
    uint8_t *p = guest_memory_at(&player.vm.memory, at, len);

    if (!p || at < FIRST_PAGE)
        lost("the guest leaves its memory");
    return p;
}

static uint64_t word(uint64_t at)
{
    uint64_t value;

    memcpy(&value, memory(at, sizeof value), sizeof value);
    return value;
}

/* ---- registers ---- */

static uint64_t flags(void)
{
    return (now.rflags & FLAGS_OWN) | 2 | (interrupts ? EFLAGS_IF : 0);
}

static void set_flags(uint64_t value)
{
    interrupts = value & EFLAGS_IF;
    now.rflags = (value & FLAGS_OWN) | 2 | EFLAGS_IF;
}

/* Show the player where the guest is. */
static void show_registers(void)
{
    *player.cpu->vcpu.regs = now;
    player.cpu->vcpu.regs->rflags = flags();
}

static void start(void)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(&player.cpu->vcpu, &sregs);
    cs = sregs.cs.selector;
    ss = sregs.ss.selector;
    idt = sregs.idt.base;
    gdt = sregs.gdt.base;
    cr[0] = sregs.cr0;
    cr[3] = sregs.cr3;
    cr[4] = sregs.cr4;
    now = *player.cpu->vcpu.regs;
    set_flags(now.rflags);
    process_map(FIRST_PAGE, player.vm.memory.size - FIRST_PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
                player.vm.memory.fd);
    process_start();
}

/* ---- interrupts ---- */

static void deliver(unsigned vector)
{
    const uint64_t gate = idt + GATE_BYTES * vector, low = word(gate);
    const uint64_t frame[FRAME_WORDS] = {now.rip, cs, flags(), now.rsp, ss};
    const bool from_user = cs & 3;

    now.rsp = (from_user ? word(tss + 4) : now.rsp) & ~15ull;
    now.rsp -= sizeof frame;
    memcpy(memory(now.rsp, sizeof frame), frame, sizeof frame);
    cs = (uint16_t)(low >> 16);
    if (from_user)
        ss = 0;
    now.rip = (low & 0xffff) | (low >> 32 & 0xffff0000) | word(gate + 8) << 32;
    set_flags(flags() & ~EFLAGS_IF); /* an interrupt gate, as all are in the test guests */
}

static void iretq(void)
{
    uint64_t frame[FRAME_WORDS];

    memcpy(frame, memory(now.rsp, sizeof frame), sizeof frame);
    now.rip = frame[0];
    cs = (uint16_t)frame[1];
    set_flags(frame[2]);
    now.rsp = frame[3];
    ss = (uint16_t)frame[4];
}

/* ---- instructions ---- */

static uint64_t operand_address(const struct insn *insn)
{
    struct kvm_sregs sregs = {0};
    uint64_t va;

    show_registers();
    if (!insn_address(insn, &insn->operands[0], player.cpu->vcpu.regs, &sregs, &va))
        lost("a table at an address that is not understood");
    return va;
}

static void load_task(unsigned selector)
{
    const uint64_t low = word(gdt + (selector & ~7u));

    tss =
        (low >> 16 & 0xffffff) | (low >> 32 & 0xff000000) | word(gdt + (selector & ~7u) + 8) << 32;
}

/* MOV from and to a control register; what is loaded changes nothing here. */
static bool move_control(const struct insn *insn)
{
    for (unsigned i = 0; i < 2; i++) {
        const ZydisDecodedOperand *to = &insn->operands[i], *from = &insn->operands[1 - i];
        if (from->type != ZYDIS_OPERAND_TYPE_REGISTER ||
            ZydisRegisterGetClass(from->reg.value) != ZYDIS_REGCLASS_CONTROL)
            continue;
        uint64_t *control = &cr[ZydisRegisterGetId(from->reg.value) & 7];
        uint64_t *general = &((uint64_t *)&now)[insn_index_of[ZydisRegisterGetId(to->reg.value)]];
        if (i)
            *control = *general;
        else
            *general = *control;
        return true;
    }
    return false;
}

/* What only CPL0 may do, or what would be a system call of the process; false: it is neither. */
static bool do_by_hand(const struct insn *insn)
{
    const bool was_shadow = shadow;

    shadow = false;
    switch (insn->info.mnemonic) {
    case ZYDIS_MNEMONIC_CLI:
        interrupts = false;
        break;
    case ZYDIS_MNEMONIC_STI:
        shadow = !interrupts;
        interrupts = true;
        break;
    case ZYDIS_MNEMONIC_LIDT:
        idt = word(operand_address(insn) + 2);
        break;
    case ZYDIS_MNEMONIC_LGDT:
        gdt = word(operand_address(insn) + 2);
        break;
    case ZYDIS_MNEMONIC_LTR:
        show_registers();
        load_task((uint16_t)insn_register(player.cpu->vcpu.regs, insn->operands[0].reg.value));
        break;
    case ZYDIS_MNEMONIC_MOV:
        if (!move_control(insn)) {
            shadow = was_shadow;
            return false;
        }
        break;
    case ZYDIS_MNEMONIC_WRMSR: /* no guest has SYSCALL: where it would lead changes nothing */
        if ((uint32_t)now.rcx != MSR_LSTAR)
            lost("a model-specific register that this replay does not know");
        break;
    case ZYDIS_MNEMONIC_IRETQ:
        iretq();
        return true;
    case ZYDIS_MNEMONIC_INT:
        now.rip += insn->info.length;
        deliver((unsigned)insn->operands[0].imm.value.u);
        return true;
    case ZYDIS_MNEMONIC_SYSCALL:
    case ZYDIS_MNEMONIC_HLT:
        lost("an instruction that this replay does not know");
    default:
        shadow = was_shadow;
        return false;
    }
    now.rip += insn->info.length;
    return true;
}

/* IN and OUT; the exit is as vcpu_run() says it. */
static bool is_port(const struct insn *insn, struct vcpu_exit *exit)
{
    const bool in = insn->info.mnemonic == ZYDIS_MNEMONIC_IN;

    if (!in && insn->info.mnemonic != ZYDIS_MNEMONIC_OUT)
        return false;
    const ZydisDecodedOperand *port = &insn->operands[in ? 1 : 0];
    const ZydisDecodedOperand *value = &insn->operands[in ? 0 : 1];
    *exit = (struct vcpu_exit){
        .kind = in ? EXIT_PIO_IN : EXIT_PIO_OUT,
        .at = port->type == ZYDIS_OPERAND_TYPE_IMMEDIATE ? port->imm.value.u : (uint16_t)now.rdx,
        .size = value->size / 8,
        .count = 1,
        .data = (uint8_t *)&now.rax,
    };
    next_rip = now.rip + insn->info.length;
    /* A MOV from or to CR4 that was replaced (vmm/kvm/cr4.h): as cr4_exit() shows it. */
    if (!in && memory(now.rip, 1)[0] >> 4 == 4 &&
        (exit->at == CR4_READ_PORT || exit->at == CR4_WRITE_PORT))
        *exit = (struct vcpu_exit){
            .kind = exit->at == CR4_READ_PORT ? EXIT_CR4_READ : EXIT_CR4_WRITE,
            .size = memory(now.rip, 1)[0] & 15u,
            .count = 1,
        };
    return true;
}

/* One instruction, or an iteration of a REP; true: it is an exit, which is to be answered. */
static bool execute(struct vcpu_exit *exit)
{
    const uint8_t *at = memory(now.rip, INSN_MAX);
    struct insn insn;

    if (window && interrupts && !shadow) {
        *exit = (struct vcpu_exit){.kind = EXIT_WINDOW};
        next_rip = now.rip;
        return true;
    }
    if (!insn_decode_bytes(now.rip, at, INSN_MAX, &insn))
        lost("the guest runs where no code is");
    if (is_port(&insn, exit)) {
        shadow = false;
        return true;
    }
    instructions++;
    if (do_by_hand(&insn))
        return false;
    const bool branch = is_branch(at), pushf = is_pushf(at); /* before it changes itself */
    if (!process_step(&now))
        lost("the process faulted");
    shadow = false;
    branches += branch;
    if (pushf) {
        const uint64_t pushed = flags();
        memcpy(memory(now.rsp, sizeof pushed), &pushed, sizeof pushed);
    }
    return false;
}

/* ---- the recording ---- */

static void check(const struct vcpu_exit *got)
{
    struct err e;

    show_registers();
    if (player_check(&player, got, &e) < 0)
        fail(e.text);
    total_branches += branches;
    branches = 0;
    if (player.status != PLAYER_DIVERGED)
        return;
    const struct divergence *d = &player.divergence;
    fprintf(stderr, "process_replay: sync point %llu is another one: kind %u, not %u\n",
            (unsigned long long)d->ordinal, d->got.kind, d->expected.kind);
    for (unsigned i = 0; i < REG_COUNT; i++) {
        if (d->got.regs[i] != d->expected.regs[i])
            fprintf(stderr, "  %s is %#llx, not %#llx\n", reg_names[i],
                    (unsigned long long)d->got.regs[i], (unsigned long long)d->expected.regs[i]);
    }
    exit(1);
}

static void answer(const struct vcpu_exit *exit)
{
    uint8_t value[8] = {0};

    if (exit->kind == EXIT_PIO_IN) {
        if (stream_read(player.stream[STREAM_INPUTS], value, exit->size) < 0)
            fail("the recording lacks an input");
        if (exit->size == 4)
            now.rax = 0;
        memcpy(&now.rax, value, exit->size);
    }
    uint64_t *general = (uint64_t *)&now + insn_index_of[exit->size & 15];
    if (exit->kind == EXIT_CR4_READ)
        *general = cr[4];
    else if (exit->kind == EXIT_CR4_WRITE)
        cr[4] = *general;
    now.rip = next_rip;
    instructions += exit->kind != EXIT_WINDOW;
}

/* To where as many branches have been retired as the recording says. */
static void land(const struct landmark *l)
{
    const struct vcpu_exit here = {.kind = EXIT_FORCED};
    struct vcpu_exit other;

    if (!l->counted)
        fail("the recording was not made by stepping: its forced points have no counts");
    while (branches != l->branches || now.rip != l->regs[REGISTER_RIP] ||
           now.rcx != l->regs[REGISTER_RCX]) {
        if (branches > l->branches || execute(&other))
            lost("the forced point was passed");
    }
    forced++;
    check(&here);
}

static void write_memory(const struct dma_transfer *dma)
{
    if (dma->len > DMA_INLINE_MAX)
        fail("a device writes to memory: this replay knows bare guests only");
    memcpy(memory(dma->gpa, dma->len), dma->data, dma->len);
}

static void apply(const struct event *event)
{
    switch (event->kind) {
    case EVENT_INJECT:
        assert(interrupts && !shadow);
        deliver(event->vector);
        break;
    case EVENT_WINDOW:
        window = event->window;
        break;
    case EVENT_DMA_WRITE:
        write_memory(&event->dma);
        break;
    case EVENT_FORCED:
        land(&event->landmark);
        break;
    case EVENT_END:
        if (!event->end.has_digest || event->end.digest.outputs != player.outputs)
            fail("what the guest has put out is not what the recording says");
        player.status = PLAYER_ENDED;
        break;
    case EVENT_DMA_READ:
        fail("a device reads memory: this replay knows bare guests only");
    case EVENT_HOOK:
    case EVENT_DIGEST: /* of memory with the marks that a CPU leaves in page tables */
    case EVENT_TIME:
    case EVENT_RECEIVED:
    case EVENT_FRAME:
    case EVENT_DISK_DONE:
    case EVENT_MARK:
        break;
    default:
        fail("this replay knows machines with one CPU only");
    }
}

/* All that is to happen behind the sync point where the guest stands. */
static void apply_events(void)
{
    struct err e;

    for (;;) {
        if (player_fetch(&player, &e) < 0)
            fail(e.text);
        if (!player.has_next || player.next.ordinal != player.ordinal)
            return;
        apply(&player.next); /* a forced point leads to the next sync point */
        player_consume(&player);
    }
}

static void replay(const char *path)
{
    struct vcpu_exit exit;
    struct err e;

    player.recording = recording_open(path, &e);
    if (!player.recording || player_open(&player, player.recording, NULL, &e) < 0)
        fail(e.text);
    start();
    for (;;) {
        apply_events();
        if (player.status == PLAYER_ENDED)
            return;
        while (!execute(&exit))
            continue;
        check(&exit);
        answer(&exit);
    }
}

/* In a process of its own, at whose addresses nothing else is. */
static bool replay_apart(const char *path)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        replay(path);
        printf("ok %s: %llu forced points of %llu sync points, %llu branches, %llu instructions\n",
               path, (unsigned long long)forced, (unsigned long long)player.ordinal,
               (unsigned long long)total_branches, (unsigned long long)instructions);
        exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        fail("no process");
    if (status != 0)
        printf("not ok %s\n", path);
    return status == 0;
}

int main(int argc, char **argv)
{
    static char self[4096];
    struct err e = {0};
    int status;
    bool good = argc > 1;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 1;
    struct invocation inv = {.self = self, .argv = argv, .host = HOST_AUTO};
    struct host_needs needs = {.guest_memory = 64u << 20};
    if (host_redirect(&inv, &needs, &status, &e)) {
        if (e.text[0])
            fail(e.text);
        return status;
    }
    for (int i = 1; i < argc; i++)
        good &= replay_apart(argv[i]);
    return good ? 0 : 1;
}
