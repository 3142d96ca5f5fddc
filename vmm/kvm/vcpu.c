#include "vmm/kvm/vcpu.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hidden_ports.h"
#include "base/x86.h"
#include "mmu/insn.h"
#include "mmu/ownership.h"
#include "mmu/walk.h"
#include "vmm/kvm/cpuid.h"
#include "vmm/kvm/cr4.h"
#include "vmm/kvm/guest_debug.h"

#define APIC_BASE_ENABLED 0xfee00800ull
#define APIC_BASE_BSP     (1ull << 8)

/* Exits of one instruction: KVM does up to 1024 iterations of a REP at once, with two accesses
 * each, which may come in two pieces. */
#define ACCESSES_MAX 4096u

/* The APIC itself is ours (devices/lapic.h), but KVM shows it in CPUID only if it knows that it is
 * enabled. */
static int enable_apic(struct vcpu *vcpu, struct err *e)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    sregs.apic_base = APIC_BASE_ENABLED | (vcpu->index ? 0 : APIC_BASE_BSP);
    if (ioctl(vcpu->fd, KVM_SET_SREGS, &sregs) < 0)
        return err_set(e, STATUS_ERROR, "KVM refuses an APIC: %s", strerror(errno));
    return 0;
}

int vcpu_create(struct vcpu *vcpu, struct vm *vm, unsigned index, unsigned count, struct err *e)
{
    *vcpu = (struct vcpu){.vm = vm, .index = index, .fd = -1};
    vcpu->fd = ioctl(vm->fd, KVM_CREATE_VCPU, (unsigned long)index);
    if (vcpu->fd < 0)
        return err_set(e, STATUS_ERROR, "KVM cannot create vCPU %u: %s", index, strerror(errno));
    void *run = mmap(NULL, (size_t)vm->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu->fd, 0);
    if (run == MAP_FAILED) {
        err_set(e, STATUS_ERROR, "cannot map vCPU %u: %s", index, strerror(errno));
        vcpu_destroy(vcpu);
        return -1;
    }
    vcpu->run = run;
    vcpu->regs = &vcpu->run->s.regs.regs;
    vcpu->run->kvm_valid_regs = KVM_SYNC_X86_REGS;
    if (cpuid_install_ditto_v1(vcpu->fd, index, count, e) < 0 ||
        (count > 1 && enable_apic(vcpu, e) < 0)) {
        vcpu_destroy(vcpu);
        return -1;
    }
    assert(index < MAX_VCPUS && !vm->vcpu[index]);
    vm->vcpu[index] = vcpu;
    if (vm->whole)
        vm->whole->vcpu[index] = vcpu;
    return 0;
}

void vcpu_destroy(struct vcpu *vcpu)
{
    if (vcpu->vm && vcpu->vm->vcpu[vcpu->index] == vcpu)
        vcpu->vm->vcpu[vcpu->index] = NULL;
    if (vcpu->vm && vcpu->vm->whole && vcpu->vm->whole->vcpu[vcpu->index] == vcpu)
        vcpu->vm->whole->vcpu[vcpu->index] = NULL;
    if (vcpu->run)
        munmap(vcpu->run, (size_t)vcpu->vm->run_size);
    if (vcpu->fd >= 0)
        close(vcpu->fd);
    *vcpu = (struct vcpu){.fd = -1};
}

#define DR7_LOCAL(n) (1ull << 2 * (n)) /* on execution, of one byte: all other bits 0 */

static void set_debug(struct vcpu *vcpu, bool step)
{
    struct kvm_guest_debug debug = {.control = step ? KVM_GUESTDBG_SINGLESTEP : 0};

    for (unsigned i = 0; i < VCPU_DEBUG_REGISTERS; i++) {
        if (!vcpu->watching[i])
            continue;
        debug.control |= KVM_GUESTDBG_USE_HW_BP;
        debug.arch.debugreg[i] = vcpu->watched[i];
        debug.arch.debugreg[7] |= DR7_LOCAL(i);
    }
    if (debug.control)
        debug.control |= KVM_GUESTDBG_ENABLE;
    int rc = ioctl(vcpu->fd, KVM_SET_GUEST_DEBUG, &debug);
    assert(rc == 0);
}

/* See vmm/kvm/guest_debug.h; true when there was one. */
static bool give_back(struct vcpu *vcpu)
{
    return !memchr(vcpu->watching, true, sizeof vcpu->watching) &&
           guest_debug_give_back(vcpu->fd, vcpu->run);
}

/* Whether a step ended before its instruction, at a debug register of ours. */
static bool is_at_own(const struct vcpu *vcpu)
{
    const uint64_t dr6 = vcpu->run->debug.arch.dr6;

    for (unsigned i = 0; i < VCPU_DEBUG_REGISTERS; i++)
        if (vcpu->watching[i] && (dr6 & 1ull << i) && !(dr6 & DR6_BS))
            return true;
    return false;
}

/* The same of one that does not step, and has come out because of our breakpoints. */
static bool give_back_step(struct vcpu *vcpu)
{
    return !vcpu->stepping && memchr(vcpu->watching, true, sizeof vcpu->watching) &&
           guest_debug_give_back_step(vcpu->fd, vcpu->run);
}

unsigned vcpu_add_debug_register(struct vcpu *vcpu, uint64_t va)
{
    unsigned number = 0;

    while (number < VCPU_DEBUG_REGISTERS && vcpu->watching[number])
        number++;
    assert(number < VCPU_DEBUG_REGISTERS);
    vcpu->watching[number] = true;
    vcpu->watched[number] = va;
    set_debug(vcpu, vcpu->stepping);
    return number;
}

void vcpu_remove_debug_register(struct vcpu *vcpu, unsigned number)
{
    assert(number < VCPU_DEBUG_REGISTERS && vcpu->watching[number]);
    vcpu->watching[number] = false;
    set_debug(vcpu, vcpu->stepping);
}

/*
 * Whether a fault is one of the TLB's: a vCPU needs a page table when its TLB has nothing that does
 * instead, and that may be now, in one run, and some instructions later in another. So it gets it
 * there and then, and no exit comes of it. That is so of the root that it has loaded, as parts of
 * the kernel are what all roots have in common, and of tables of the kernel's half that were made
 * a moment ago by another vCPU and are not known to be everybody's yet (mmu/shared_tables.h): as
 * when a large page is split, what lies there stays where it is.
 */
static bool is_for_the_tlb(struct vcpu *vcpu, const struct page_fault *fault)
{
    const uint64_t gpa = guest_memory_gpa(&vcpu->vm->memory, fault->page * PAGE_BYTES);
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    if (!(sregs.cr0 & CR0_PG))
        return false;
    return (sregs.cr3 & PTE_ADDRESS) == gpa ||
           (fault->access == ACCESS_WRITE && (sregs.efer & EFER_LMA) &&
            walk_is_kernel_table(&vcpu->vm->memory, sregs.cr3, gpa));
}

/* KVM_RUN, which has no memory for the guest where our own lies: to the guest nothing is there.
 * While pages are protected it may be one of these: who unprotects them finds out. */
static int run_kvm(const struct vcpu *vcpu)
{
    int rc;

    do
        rc = ioctl(vcpu->fd, KVM_RUN, 0);
    while (rc < 0 && errno == EFAULT && !vcpu->vm->protects && vm_make_way(vcpu->vm));
    return rc;
}

/* The next KVM_RUN returns at once, or does not. A kick says so too, and may be another thread's.
 */
static void exit_at_once(struct vcpu *vcpu, bool on)
{
    __atomic_store_n(&vcpu->run->immediate_exit, on, __ATOMIC_SEQ_CST);
}

/* KVM_RUN; where a page was not there for the guest, fault->kind is EXIT_PROTECTED or, where vCPUs
 * run at the same time, EXIT_FAULT, else 0. */
static int enter_guest(struct vcpu *vcpu, struct vcpu_exit *fault)
{
    struct ownership *o = vcpu->vm->ownership;
    enum ownership_stop stop;
    struct page_fault page;
    bool at_fault;
    int rc, why;

    *fault = (struct vcpu_exit){.kind = 0};
    if (!o) {
        rc = run_kvm(vcpu);
        if (rc < 0 && errno == EFAULT && vcpu->vm->protects)
            fault->kind = EXIT_PROTECTED;
        return rc;
    }
    do {
        ownership_enter(o, vcpu->index);
        rc = run_kvm(vcpu);
        why = errno;
        stop = ownership_leave(o, vcpu->index, &page);
        at_fault = stop == OWNERSHIP_FAULT && rc < 0 && why == EINTR;
        if (stop != OWNERSHIP_FAULT || !is_for_the_tlb(vcpu, &page))
            break;
        /* KVM itself walks tables, too, where it does an instruction. */
        if (!at_fault && !ownership_lacked_only(o, vcpu->index, page.page))
            break;
        ownership_lend_table(o, vcpu->index, page.page);
        stop = OWNERSHIP_NOTHING;
    } while (at_fault);
    errno = why;
    if (at_fault) {
        fault->kind = EXIT_FAULT;
        fault->at = guest_memory_gpa(&vcpu->vm->memory, page.page * PAGE_BYTES);
        fault->size = page.access;
    } else if (stop != OWNERSHIP_NOTHING) { /* KVM itself has touched it */
        errno = ENOTSUP;
        rc = -1;
    }
    return rc;
}

/* The step there must show nothing of TF. Linux has nothing behind a STI that does, but PUSHF.
 * Before format 21, anything was stepped. */
static bool can_leave_shadow_by(struct vcpu *vcpu, bool *pushes_flags)
{
    struct kvm_sregs sregs;
    struct insn insn;

    if (vcpu->steps_at_any_window)
        return true;
    vcpu_get_sregs(vcpu, &sregs);
    /* A program has no STI, unless its kernel lets it; and nothing is stepped that steps itself. */
    if (vcpu->regs->rflags & RFLAGS_TF ||
        sregs.ss.dpl > (vcpu->regs->rflags >> RFLAGS_IOPL_SHIFT & 3) ||
        !insn_decode(&vcpu->vm->memory, &sregs, linear_rip(vcpu->regs->rip, &sregs.cs), &insn))
        return false;
    *pushes_flags = insn.info.mnemonic == ZYDIS_MNEMONIC_PUSHFQ;
    return *pushes_flags || vcpu_hides_step(vcpu, &insn);
}

/* Whether the window may have opened too early, and can be left. */
static bool may_be_behind_sti(struct vcpu *vcpu, bool *pushes_flags)
{
    const uint8_t sti = 0xfb;
    uint8_t before;

    return vcpu->run->exit_reason == KVM_EXIT_IRQ_WINDOW_OPEN &&
           vcpu_read(vcpu, vcpu->regs->rip - 1, &before, 1) == 1 && before == sti &&
           can_leave_shadow_by(vcpu, pushes_flags);
}

/*
 * AMD's VMRUN as emulated by QEMU does not reload the interrupt shadow, so a window can open one
 * instruction early, right behind STI; real hardware never shows this. One step from there brings
 * both kinds of host to the same instruction. It is one only, wherever it leads: a loop may come
 * back to where the byte before is an STI. An exit in that step replaces the window exit: it is a
 * sync point of its own, and the window stays wanted.
 */
static int leave_sti_shadow(struct vcpu *vcpu, struct vcpu_exit *fault)
{
    struct kvm_run *run = vcpu->run;
    const uint64_t rsp = vcpu->regs->rsp;
    bool pushes_flags = false;
    int rc;

    if (!may_be_behind_sti(vcpu, &pushes_flags))
        return 0;
    run->request_interrupt_window = 0;
    set_debug(vcpu, true);
    /* A kick that got in first: nothing has run, the step is still to be done. */
    while ((rc = enter_guest(vcpu, fault)) < 0 && !fault->kind && errno == EINTR)
        exit_at_once(vcpu, false);
    set_debug(vcpu, vcpu->stepping);
    run->request_interrupt_window = 1;
    if (vcpu->kicked) /* such a kick is for the next run */
        exit_at_once(vcpu, true);
    if (fault->kind)
        return 0;
    if (rc < 0)
        return -1;
    /* Not where a breakpoint came first: what is on top then is no flags. */
    if (pushes_flags && vcpu->regs->rsp == rsp - sizeof(uint64_t))
        vcpu_hide_stacked_tf(vcpu, 0);
    if (run->exit_reason == KVM_EXIT_DEBUG && is_at_own(vcpu))
        return 0; /* a breakpoint of ours on that instruction: the window comes again behind it */
    if (run->exit_reason == KVM_EXIT_DEBUG && !give_back(vcpu))
        run->exit_reason = KVM_EXIT_IRQ_WINDOW_OPEN;
    else if (run->exit_reason == KVM_EXIT_DEBUG && !vcpu->stepping)
        run->exit_reason = KVM_EXIT_INTR; /* the window opens behind the guest's #DB */
    if (run->exit_reason == KVM_EXIT_IRQ_WINDOW_OPEN && !run->if_flag && !vcpu->steps_at_any_window)
        /* It was a CLI: no window has opened, and who steps has done so. */
        run->exit_reason = vcpu->stepping ? KVM_EXIT_DEBUG : KVM_EXIT_INTR;
    return 0;
}

/* What KVM gives up on is the guest's doing, as a rule: it has no memory where it says it has. */
static int internal_error(struct vcpu *vcpu, struct err *e)
{
    const uint64_t rip = vcpu->regs->rip;
    uint8_t code[15];
    char text[3 * sizeof code + 1] = "";

    const size_t n = vcpu_read(vcpu, rip, code, sizeof code);
    for (size_t i = 0; i < n; i++)
        snprintf(text + 3 * i, sizeof text - 3 * i, " %02x", code[i]);
    switch (vcpu->run->internal.suberror) {
    case KVM_INTERNAL_ERROR_EMULATION:
        return err_set(e, STATUS_ERROR,
                       "KVM cannot emulate the guest's instruction at rip %#llx (%s), as where it "
                       "lies in, or works on, what is no memory; see 'dittovm doctor'",
                       (unsigned long long)rip, n ? text + 1 : "not in memory");
    case KVM_INTERNAL_ERROR_DELIVERY_EV:
        return err_set(e, STATUS_ERROR,
                       "KVM cannot deliver an interrupt or exception at rip %#llx, as where the "
                       "guest's table for it, or its stack, is no memory; see 'dittovm doctor'",
                       (unsigned long long)rip);
    default:
        return err_set(e, STATUS_ERROR,
                       "this KVM cannot run the guest (internal error %u at rip %#llx); see "
                       "'dittovm doctor'",
                       vcpu->run->internal.suberror, (unsigned long long)rip);
    }
}

/*
 * An IN that stands for RDTSC has the port in its code. The guest's own by DX is one from nowhere;
 * by a port in its code it would be RDTSC, too. Code that cannot be read at the moment (a crew's
 * tables on their way) is ours: nobody else has a reason to.
 */
static bool is_rdtsc(struct vcpu *vcpu, const struct vcpu_exit *exit)
{
    uint8_t code[2];

    return exit->at == RDTSC_PORT && exit->size == 4 &&
           (vcpu_read(vcpu, vcpu->regs->rip, code, sizeof code) != sizeof code ||
            (code[0] == 0xe5 && code[1] == RDTSC_PORT));
}

/* The one exit switch. */
static int classify(struct vcpu *vcpu, struct vcpu_exit *exit, struct err *e)
{
    struct kvm_run *run = vcpu->run;

    *exit = (struct vcpu_exit){.kind = EXIT_FAILED};
    switch (run->exit_reason) {
    case KVM_EXIT_IO:
        exit->kind = run->io.direction == KVM_EXIT_IO_OUT ? EXIT_PIO_OUT : EXIT_PIO_IN;
        exit->at = run->io.port;
        exit->size = run->io.size;
        exit->count = run->io.count;
        exit->data = (uint8_t *)run + run->io.data_offset;
        if (exit->kind == EXIT_PIO_IN && is_rdtsc(vcpu, exit))
            exit->kind = EXIT_RDTSC;
        else if (exit->kind == EXIT_PIO_OUT && vcpu->owns_tsd)
            (void)cr4_exit(vcpu, exit);
        return 0;
    case KVM_EXIT_MMIO:
        exit->kind = run->mmio.is_write ? EXIT_MMIO_WRITE : EXIT_MMIO_READ;
        exit->at = run->mmio.phys_addr;
        exit->size = run->mmio.len;
        exit->count = 1;
        exit->data = run->mmio.data;
        return 0;
    case KVM_EXIT_HLT:
        exit->kind = EXIT_HLT;
        return 0;
    case KVM_EXIT_IRQ_WINDOW_OPEN:
        exit->kind = EXIT_WINDOW;
        return 0;
    case KVM_EXIT_X86_RDMSR:
    case KVM_EXIT_X86_WRMSR:
        exit->kind = run->exit_reason == KVM_EXIT_X86_RDMSR ? EXIT_RDMSR : EXIT_WRMSR;
        exit->at = run->msr.index;
        exit->size = 8;
        exit->count = 1;
        exit->data = (uint8_t *)&run->msr.data;
        return 0;
    case KVM_EXIT_SET_TPR:
        exit->kind = EXIT_CR8;
        exit->at = run->cr8;
        return 0;
    case KVM_EXIT_SHUTDOWN:
        exit->kind = EXIT_SHUTDOWN;
        return 0;
    case KVM_EXIT_DEBUG:
        exit->kind = give_back_step(vcpu) ? EXIT_KICK : EXIT_STEP;
        give_back(vcpu);
        return 0;
    case KVM_EXIT_INTR:
        exit->kind = EXIT_KICK;
        return 0;
    case KVM_EXIT_INTERNAL_ERROR:
        return internal_error(vcpu, e);
    case KVM_EXIT_FAIL_ENTRY:
        return err_set(e, STATUS_ERROR, "KVM cannot enter the guest: hardware reason %#llx",
                       (unsigned long long)run->fail_entry.hardware_entry_failure_reason);
    default:
        return err_set(e, STATUS_ERROR, "unexpected KVM exit %u at rip %#llx", run->exit_reason,
                       (unsigned long long)vcpu->regs->rip);
    }
}

static int cannot_run(const struct vcpu *vcpu, struct err *e)
{
    if (errno != ENOTSUP)
        return err_set(e, STATUS_ERROR, "KVM_RUN: %s", strerror(errno));
    return err_set(
        e, STATUS_ERROR,
        "the instruction at rip %#llx, of vCPU %u, is one that KVM does itself on memory "
        "of another vCPU, which --smp crew cannot do; give --smp uni",
        (unsigned long long)vcpu->regs->rip, vcpu->index);
}

static int check_state(const struct vcpu *vcpu, struct err *e)
{
    return vcpu->refused
               ? err_set(e, STATUS_ERROR,
                         "KVM refuses the system registers that vCPU %u is to have", vcpu->index)
               : 0;
}

int vcpu_run(struct vcpu *vcpu, struct vcpu_exit *exit, struct err *e)
{
    struct kvm_run *run = vcpu->run;
    struct vcpu_exit fault = {.kind = 0};

    *exit = (struct vcpu_exit){.kind = EXIT_FAILED};
    if (check_state(vcpu, e) < 0)
        return -1;
    /* The next exit may be in kvm_run already. */
    int rc = vcpu->halfway ? 0 : enter_guest(vcpu, &fault);
    vcpu->halfway = false;

    /* A kick that comes in the last moment of a step is for the step after it. */
    vcpu->kick_passed = false;
    if (rc < 0 || run->exit_reason != KVM_EXIT_DEBUG) {
        exit_at_once(vcpu, false); /* first: a kick behind this line has the next run exit */
        if (vcpu->kicked) {
            vcpu->kick_passed = rc == 0 || fault.kind;
            vcpu->kicked = false;
        }
    }
    if (fault.kind) {
        *exit = fault;
        return 0;
    }
    if (rc < 0) {
        *exit = (struct vcpu_exit){.kind = EXIT_KICK};
        if (errno == EINTR || errno == EAGAIN)
            return 0;
        exit->kind = EXIT_FAILED;
        return cannot_run(vcpu, e);
    }
    if (run->exit_reason == KVM_EXIT_IRQ_WINDOW_OPEN && leave_sti_shadow(vcpu, &fault) < 0) {
        exit->kind = EXIT_FAILED;
        return cannot_run(vcpu, e);
    }
    if (fault.kind) {
        *exit = fault;
        return 0;
    }
    return classify(vcpu, exit, e);
}

/* Have KVM finish the instruction of the last exit, and no more. */
static int run_nothing(struct vcpu *vcpu)
{
    exit_at_once(vcpu, true);
    int rc = ioctl(vcpu->fd, KVM_RUN, 0);
    /* A kick of this very moment is for the next vcpu_run(). */
    exit_at_once(vcpu, false);
    if (vcpu->kicked)
        exit_at_once(vcpu, true);
    return rc;
}

static int cannot_finish(const char *why, struct err *e)
{
    return err_set(e, STATUS_ERROR, "KVM did not finish an instruction: %s", why);
}

/* What run_nothing() returned, of an instruction that is to be finished by then, or has come to its
 * next access. */
static int note_finished(struct vcpu *vcpu, int rc, struct err *e)
{
    if (rc < 0 && errno == EINTR)
        return 0;
    if (rc == 0 && (vcpu->run->exit_reason == KVM_EXIT_MMIO ||
                    vcpu->run->exit_reason == KVM_EXIT_IO)) { /* OUTS from a device's memory */
        vcpu->halfway = true;
        return 0;
    }
    return cannot_finish(rc < 0 ? strerror(errno) : "it ran on", e);
}

/* Whether KVM wants the guest's own memory written. */
static bool writes_memory(const struct vcpu *vcpu)
{
    const struct kvm_run *run = vcpu->run;

    return run->exit_reason == KVM_EXIT_MMIO && run->mmio.is_write &&
           guest_memory_at(&vcpu->vm->memory, run->mmio.phys_addr, run->mmio.len);
}

int vcpu_complete(struct vcpu *vcpu, struct err *e)
{
    if (check_state(vcpu, e) < 0)
        return -1;
    if (vcpu->halfway)
        return 0;
    int rc = run_nothing(vcpu);
    if (rc == 0 && vcpu->vm->protects && writes_memory(vcpu)) /* of what an INS has read */
        return vcpu_do_write(vcpu, e);
    return note_finished(vcpu, rc, e);
}

bool vcpu_is_halfway(const struct vcpu *vcpu)
{
    return vcpu->halfway;
}

int vcpu_abandon(struct vcpu *vcpu, struct err *e)
{
    int rc = check_state(vcpu, e);

    if (rc < 0)
        return -1;
    for (unsigned i = 0; i < ACCESSES_MAX && rc == 0; i++) {
        if (i || vcpu->halfway) /* else the access may have been answered */
            memset(vcpu->run->mmio.data, 0xff, sizeof vcpu->run->mmio.data);
        rc = run_nothing(vcpu);
    }
    vcpu->halfway = false;
    return rc == 0 ? cannot_finish("it has no end", e) : note_finished(vcpu, rc, e);
}

int vcpu_do_write(struct vcpu *vcpu, struct err *e)
{
    struct kvm_run *run = vcpu->run;
    int rc;

    /* An access across pages comes in pieces. */
    do {
        void *to = guest_memory_at(&vcpu->vm->memory, run->mmio.phys_addr, run->mmio.len);
        if (!to)
            return err_set(e, STATUS_ERROR, "a write to %#llx is none to memory",
                           (unsigned long long)run->mmio.phys_addr);
        memcpy(to, run->mmio.data, run->mmio.len);
        guest_memory_mark(&vcpu->vm->memory, to, run->mmio.len);
        rc = run_nothing(vcpu);
    } while (rc == 0 && writes_memory(vcpu));
    return note_finished(vcpu, rc, e);
}

void vcpu_kick(struct vcpu *vcpu)
{
    vcpu->kicked = true;
    exit_at_once(vcpu, true);
}

void vcpu_finish_rdtsc(struct vcpu *vcpu, const struct vcpu_exit *exit, uint64_t value)
{
    uint32_t low = (uint32_t)value;

    assert(exit->kind == EXIT_RDTSC);
    memcpy(exit->data, &low, sizeof low); /* becomes RAX when KVM completes the IN */
    vcpu->regs->rdx = value >> 32;
    vcpu->run->kvm_dirty_regs |= KVM_SYNC_X86_REGS;
}

void vcpu_finish_msr(struct vcpu *vcpu, uint64_t value, bool fault)
{
    vcpu->run->msr.data = value;
    vcpu->run->msr.error = fault;
}

void vcpu_step(struct vcpu *vcpu, bool on)
{
    if (on != vcpu->stepping || on)
        set_debug(vcpu, on);
    vcpu->stepping = on;
}

int vcpu_run_step(struct vcpu *vcpu, struct vcpu_exit *exit, struct err *e)
{
    vcpu_step(vcpu, true);
    int rc = vcpu_run(vcpu, exit, e);
    vcpu_step(vcpu, false);
    return rc;
}

struct kvm_segment vcpu_flat_segment(unsigned selector, bool code)
{
    return (struct kvm_segment){
        .limit = 0xffffffff,
        .selector = (uint16_t)selector,
        .type = code ? 11 : 3,
        .present = 1,
        .dpl = selector & 3,
        .s = 1,
        .l = code,
        .db = !code,
        .g = 1,
    };
}

size_t vcpu_read(struct vcpu *vcpu, uint64_t va, void *data, size_t len)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    return walk_read_by(vm_tables(vcpu->vm), &vcpu->vm->memory, sregs.cr3, va, data, len);
}

struct sync_point vcpu_sync_point(const struct vcpu *vcpu, const struct vcpu_exit *exit,
                                  uint8_t output)
{
    struct sync_point sync = {
        .kind = exit->kind,
        .size = (uint8_t)exit->size,
        .output = output,
        .count = exit->count,
        .at = exit->at,
    };

    memcpy(sync.regs, vcpu->regs, sizeof sync.regs);
    sync.regs[REGISTER_RFLAGS] &= ~RFLAGS_RF;
    return sync;
}

unsigned vcpu_cpl(struct vcpu *vcpu)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    return sregs.ss.dpl;
}

uint64_t linear_rip(uint64_t rip, const struct kvm_segment *cs)
{
    return cs->l ? rip : (uint32_t)(cs->base + rip);
}
