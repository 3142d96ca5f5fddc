#include "vmm/points/stepper.h"

#include <string.h>
#include <sys/ioctl.h>

#include "base/x86.h"
#include "recording/event.h"
#include "vmm/points/annex.h"
#include "vmm/points/repeat.h"

#define SYSRET_MASK 0x3c7fd7ull /* AMD64 APM 3, SYSRET: what comes from R11 */

void stepper_init(struct stepper *s, struct vcpu *vcpu)
{
    *s = (struct stepper){.vcpu = vcpu};
}

/* ---- TF ---- */

/* KVM_SET_GUEST_DEBUG sets TF once, and it stays until something takes it away: see keeps_tf(). */
static void arm(struct stepper *s)
{
    if (!s->armed)
        vcpu_step(s->vcpu, true);
    s->armed = true;
}

static void disarm(struct stepper *s)
{
    vcpu_step(s->vcpu, false);
    s->armed = false;
}

/* ---- open and closed ---- */

static struct annex *annex(const struct stepper *s)
{
    return annex_of(s->vcpu->vm);
}

static bool find_base(const struct stepper *s, uint64_t *base)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(s->vcpu, &sregs);
    return (sregs.efer & EFER_LMA) && annex(s) && annex_ready(s->vcpu->vm, sregs.cr3) &&
           annex_find_base(s->vcpu->vm, sregs.cr3, base);
}

bool stepper_can(const struct stepper *s)
{
    uint64_t base;

    return s->open || find_base(s, &base);
}

int stepper_open(struct stepper *s, struct err *e)
{
    struct vcpu *vcpu = s->vcpu;
    uint64_t base;

    if (s->open)
        return 0;
    vcpu_share_sregs(vcpu, true);
    if (vcpu_complete(vcpu, e) < 0)
        return -1;
    if (!find_base(s, &base)) {
        vcpu_share_sregs(vcpu, false);
        return err_set(e, STATUS_ERROR,
                       "this code cannot be single-stepped (the CPU is not in long mode)");
    }
    annex_open(annex(s), vcpu, base, false);
    if (!s->own_idt)
        annex_trap_vectors(annex(s), vcpu, -1, 0);
    s->open = true;
    return 0;
}

void stepper_close(struct stepper *s)
{
    if (!s->open)
        return;
    s->open = false;
    disarm(s);
    vcpu_share_sregs(s->vcpu, false);
    annex_close(annex(s), s->vcpu);
}

/* ---- what stepping must not show ---- */

/* Whether an instruction loads flags with TF set. */
static bool loads_tf(const struct stepper *s, const struct insn *insn)
{
    const unsigned width = insn->info.operand_width / 8;
    const uint8_t *byte = NULL;

    switch (insn->info.mnemonic) {
    case ZYDIS_MNEMONIC_POPF:
    case ZYDIS_MNEMONIC_POPFD:
    case ZYDIS_MNEMONIC_POPFQ:
        byte = vcpu_stacked_tf(s->vcpu, 0);
        break;
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
        byte = vcpu_stacked_tf(s->vcpu, 2 * width);
        break;
    default:
        break;
    }
    return byte && (*byte & RFLAGS_TF >> 8);
}

/* The guest has set its own TF, which KVM took for ours. */
static void show_tf(struct stepper *s)
{
    struct kvm_regs regs = *s->vcpu->regs;

    disarm(s);
    regs.rflags |= RFLAGS_TF;
    vcpu_set_regs(s->vcpu, &regs);
}

/*
 * The guest enters its kernel, by way of the annex. Whether an error code lies below the frame
 * shows in RSP: the CPU aligns it to 16 bytes before it pushes five or six words.
 */
static void enter(struct stepper *s, uint64_t handler, bool own_tf)
{
    struct kvm_regs regs = *s->vcpu->regs;

    if (!own_tf)
        vcpu_hide_stacked_tf(s->vcpu, regs.rsp % 16 ? 16 : 24);
    regs.rip = handler;
    vcpu_set_regs(s->vcpu, &regs);
    s->armed = false;
}

/* ---- SYSCALL and SYSRET (AMD64 APM 3) ---- */

static bool read_syscall_msrs(const struct stepper *s, uint32_t entry_msr, uint64_t *star,
                              uint64_t *entry, uint64_t *mask)
{
    struct {
        struct kvm_msrs head;
        struct kvm_msr_entry entry[3];
    } msrs = {.head.nmsrs = 3,
              .entry = {{.index = MSR_STAR}, {.index = entry_msr}, {.index = MSR_SFMASK}}};

    if (ioctl(s->vcpu->fd, KVM_GET_MSRS, &msrs) != 3)
        return false;
    *star = msrs.entry[0].data;
    *entry = msrs.entry[1].data;
    *mask = msrs.entry[2].data;
    return true;
}

/* False when it is not for us to do: the CPU raises what is to be raised. */
static bool do_syscall(struct stepper *s, const struct insn *insn)
{
    const bool in = insn->info.mnemonic == ZYDIS_MNEMONIC_SYSCALL;
    struct vcpu *vcpu = s->vcpu;
    struct kvm_regs regs = *vcpu->regs;
    struct kvm_sregs sregs;
    uint64_t star, entry, mask;

    vcpu_get_sregs(vcpu, &sregs);
    if (!(sregs.efer & EFER_SCE) ||
        !read_syscall_msrs(s, sregs.cs.l ? MSR_LSTAR : MSR_CSTAR, &star, &entry, &mask))
        return false;
    if (in) {
        regs.rcx = regs.rip + insn->info.length;
        regs.r11 = regs.rflags & ~RFLAGS_RF;
        regs.rip = entry;
        regs.rflags &= ~(mask | RFLAGS_RF);
        sregs.cs = vcpu_flat_segment((uint16_t)(star >> 32 & 0xfffc), true);
        sregs.ss = vcpu_flat_segment((uint16_t)((star >> 32 & 0xfffc) + 8), false);
    } else {
        const bool wide = insn->info.raw.rex.W;
        if (sregs.ss.dpl != 0 || (wide && (int64_t)(regs.rcx << 16) >> 16 != (int64_t)regs.rcx))
            return false;
        regs.rip = wide ? regs.rcx : (uint32_t)regs.rcx;
        regs.rflags = (regs.r11 & SYSRET_MASK) | 2;
        sregs.cs = vcpu_flat_segment((uint16_t)((star >> 48) + (wide ? 16 : 0)) | 3, true);
        sregs.cs.l = wide;
        sregs.cs.db = !wide;
        sregs.ss = vcpu_flat_segment((uint16_t)((star >> 48) + 8) | 3, false);
    }
    if (regs.rflags & RFLAGS_TF)
        disarm(s);
    vcpu_set_sregs(vcpu, &sregs);
    vcpu_set_regs(vcpu, &regs);
    s->armed = false;
    vcpu->run->if_flag = regs.rflags & RFLAGS_IF ? 1 : 0;
    vcpu->run->ready_for_interrupt_injection = vcpu->run->if_flag;
    return true;
}

/* ---- PAUSE ---- */

/* QEMU's CPU forgets TF at a PAUSE and executes the next instruction, too: a loop that waits would
 * never be seen to come back to that one. PAUSE does nothing, unless something is to be taken in
 * front of it. */
static bool do_pause(struct stepper *s, const struct insn *insn)
{
    struct vcpu *vcpu = s->vcpu;
    struct kvm_regs regs = *vcpu->regs;

    if (!vcpu_is_settled(vcpu) || (regs.rflags & RFLAGS_TF) ||
        (vcpu->run->request_interrupt_window && vcpu_interruptible(vcpu)))
        return false;
    regs.rip += insn->info.length;
    regs.rflags &= ~RFLAGS_RF;
    vcpu_set_regs(vcpu, &regs);
    s->armed = false;
    return true;
}

/* ---- a step ---- */

/* It shows, or changes, what the annex replaces. */
static bool meets_the_annex(const struct insn *insn)
{
    if (insn->info.mnemonic == ZYDIS_MNEMONIC_SIDT || insn->info.mnemonic == ZYDIS_MNEMONIC_LIDT)
        return true;
    for (unsigned i = 0; i < insn->info.operand_count_visible; i++)
        if (insn->operands[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
            (insn->operands[i].reg.value == ZYDIS_REGISTER_CR0 ||
             insn->operands[i].reg.value == ZYDIS_REGISTER_CR3))
            return true;
    return false;
}

static unsigned is_branch(const struct insn *insn)
{
    return insn->info.meta.category == ZYDIS_CATEGORY_COND_BR &&
           insn->info.mnemonic != ZYDIS_MNEMONIC_XBEGIN;
}

/* Behind a load of SS a step may take the next instruction along: whether it did. */
static bool took_second(const struct stepper *s, const struct insn *insn,
                        const struct kvm_sregs *sregs, struct insn *second)
{
    const uint64_t behind = insn->va + insn->info.length;

    for (unsigned i = 0; i < insn->info.operand_count_visible; i++)
        if (insn->operands[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
            insn->operands[i].reg.value == ZYDIS_REGISTER_SS &&
            (insn->operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
            return linear_rip(s->vcpu->regs->rip, &sregs->cs) != behind &&
                   insn_decode(&s->vcpu->vm->memory, sregs, behind, second);
    return false;
}

static bool is_pushf(const struct insn *insn)
{
    return insn->info.mnemonic == ZYDIS_MNEMONIC_PUSHF ||
           insn->info.mnemonic == ZYDIS_MNEMONIC_PUSHFD ||
           insn->info.mnemonic == ZYDIS_MNEMONIC_PUSHFQ;
}

/*
 * Whether TF is certainly still set behind an instruction: it does not load the flags, and KVM does
 * not emulate it (its emulator forgets TF, as in MOV to CR4).
 */
static bool keeps_tf(const struct insn *insn)
{
    switch (insn->info.meta.category) {
    case ZYDIS_CATEGORY_BINARY:
    case ZYDIS_CATEGORY_LOGICAL:
    case ZYDIS_CATEGORY_DATAXFER:
    case ZYDIS_CATEGORY_COND_BR:
    case ZYDIS_CATEGORY_UNCOND_BR:
    case ZYDIS_CATEGORY_CALL:
    case ZYDIS_CATEGORY_SHIFT:
    case ZYDIS_CATEGORY_ROTATE:
    case ZYDIS_CATEGORY_STRINGOP:
    case ZYDIS_CATEGORY_SSE:
    case ZYDIS_CATEGORY_CMOV:
    case ZYDIS_CATEGORY_NOP:
    case ZYDIS_CATEGORY_WIDENOP:
        return !(insn->info.attributes & ZYDIS_ATTRIB_IS_PRIVILEGED);
    case ZYDIS_CATEGORY_RET:
        return insn->info.opcode == 0xc3 || insn->info.opcode == 0xc2;
    case ZYDIS_CATEGORY_PUSH:
    case ZYDIS_CATEGORY_POP:
        return insn->info.opcode >= 0x50 && insn->info.opcode <= 0x5f;
    default:
        return false;
    }
}

/* How an instruction is stepped. */
struct stepped {
    struct insn insn;
    struct kvm_sregs sregs; /* before it */
    uint64_t rip;
    bool own_tf;   /* the guest has set TF itself: it is not for us to set or to hide */
    bool loads_tf; /* it sets TF */
};

/* The instruction was executed. */
static void retire(struct stepper *s, const struct stepped *of, struct step *step)
{
    struct insn second;
    const bool two = took_second(s, &of->insn, &of->sregs, &second);

    step->branches = is_branch(&of->insn) || (two && is_branch(&second));
    if ((is_pushf(&of->insn) || (two && is_pushf(&second))) && !of->own_tf)
        vcpu_hide_stacked_tf(s->vcpu, 0);
    if (of->loads_tf)
        show_tf(s);
}

/* What an exit of KVM_RUN with TF set means. */
static void conclude(struct stepper *s, const struct stepped *of, struct step *step,
                     const struct vcpu_exit *exit)
{
    uint64_t handler;

    *step = (struct step){.kind = STEP_EXIT};
    if (exit->kind == EXIT_KICK) {
        step->kind = STEP_KICK;
    } else if (exit->kind == EXIT_STEP) {
        step->kind = STEP_DONE;
        const bool stays = s->vcpu->regs->rip == of->rip;
        step->repeats = stays && repeat_is(&of->insn);
        /* Else it is the #DB of a breakpoint of the guest's, which comes before the instruction. */
        if (!stays || step->repeats || !vcpu_event_pending(s->vcpu))
            retire(s, of, step);
    } else if (exit->kind == EXIT_WINDOW && s->vcpu->regs->rip != of->rip) {
        retire(s, of, step); /* see leave_sti_shadow() in vmm/kvm/vcpu.c */
    } else if (s->open && annex_trapped(annex(s), s->vcpu, exit, &handler)) {
        step->kind = STEP_ENTRY;
        enter(s, handler, of->own_tf);
    }
}

static void look_at_insn(const struct stepper *s, struct stepped *of)
{
    struct vcpu *vcpu = s->vcpu;

    vcpu_get_sregs(vcpu, &of->sregs);
    of->rip = vcpu->regs->rip;
    /* What cannot be read or decoded faults. */
    if (!insn_decode(&vcpu->vm->memory, &of->sregs, linear_rip(vcpu->regs->rip, &of->sregs.cs),
                     &of->insn))
        of->insn.info = (ZydisDecodedInstruction){0};
    of->own_tf = vcpu->regs->rflags & RFLAGS_TF;
    of->loads_tf = loads_tf(s, &of->insn);
}

/* A kick may come where the CPU has pushed the frame of an exception already, in front of the
 * annex's HLT: the step ends behind that. */
static int run(const struct stepper *s, struct vcpu_exit *exit, struct err *e)
{
    bool kicked = false, on_its_way;

    do {
        if (vcpu_run(s->vcpu, exit, e) < 0)
            return -1;
        on_its_way = exit->kind == EXIT_KICK && s->open && annex_is_entered(annex(s), s->vcpu);
        kicked |= on_its_way;
    } while (on_its_way);
    s->vcpu->kick_passed |= kicked;
    return 0;
}

int stepper_step(struct stepper *s, struct step *step, struct vcpu_exit *exit, struct err *e)
{
    struct vcpu *vcpu = s->vcpu;
    struct stepped of;
    struct insn *const insn = &of.insn;

    /* First: for who opens it, KVM leaves the system registers at an exit. */
    if (!vcpu_is_halfway(vcpu) && stepper_open(s, e) < 0)
        return -1;
    if (vcpu_is_halfway(vcpu)) { /* its next access is all that there is to come */
        *step = (struct step){.kind = STEP_EXIT};
        return vcpu_run(vcpu, exit, e);
    }
    look_at_insn(s, &of);
    annex_refresh(annex(s), vcpu);
    const bool syscall = insn->info.mnemonic == ZYDIS_MNEMONIC_SYSCALL ||
                         insn->info.mnemonic == ZYDIS_MNEMONIC_SYSRET;
    const bool pause = insn->info.mnemonic == ZYDIS_MNEMONIC_PAUSE;
    const bool meets = of.sregs.ss.dpl == 0 && meets_the_annex(insn);
    /* An interrupt or exception that is to be taken comes before the instruction. */
    const bool special = (syscall || pause || meets) && !vcpu_event_pending(vcpu);
    if (special && ((syscall && do_syscall(s, insn)) || (pause && do_pause(s, insn)))) {
        *step = (struct step){.kind = STEP_DONE};
        *exit = (struct vcpu_exit){.kind = EXIT_STEP};
        return 0;
    }
    if (special && meets)
        stepper_close(s);
    if (of.own_tf)
        disarm(s);
    else
        arm(s);
    if (run(s, exit, e) < 0)
        return -1;
    if (!s->open)
        disarm(s);
    if (!keeps_tf(insn))
        s->armed = false;
    conclude(s, &of, step, exit);
    return 0;
}
