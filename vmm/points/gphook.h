#ifndef VMM_POINTS_GPHOOK_H
#define VMM_POINTS_GPHOOK_H

#include "base/x86.h"
#include "mmu/ownership.h"
#include "recording/event.h"
#include "vmm/kvm/vcpu.h"

/*
 * The #GP hook: how dittovm sees privileged things that user code does.
 *
 * CR4.TSD is set from the start, so RDTSC at CPL3 raises #GP; and a HLT byte patched into user code
 * as a breakpoint raises #GP too. The guest's IDT gate for #GP is redirected to a HLT byte that
 * already lies somewhere in the guest kernel's text, so that every #GP exits to us at its very
 * first instruction, with the exception frame just pushed and nothing else changed.
 *
 * Installing writes 16 bytes into the guest's IDT: an event of the recording like any device's
 * write. Replay takes the addresses from the recording and searches for nothing.
 */

/* The frame the CPU pushed for #GP (AMD APM vol. 2, 8.9.3), lowest address first. */
struct exception_frame {
    uint64_t error, rip, cs, rflags, rsp, ss;
};

/*
 * Look for everything the hook needs in the running guest. Returns true, with *hook and the gate
 * (its GPA and new contents) filled in, when the guest's IDT is complete and user code may be about
 * to run; false when it is too early.
 */
bool gphook_prepare(struct vcpu *vcpu, struct gp_hook *hook, uint64_t *gate_gpa, uint8_t gate[16]);

/*
 * Code at CPL `cpl` executed a HLT byte, as far as this exit tells: at CPL0 it exits by itself, at
 * CPL3 by way of the hook. On true, *regs and *sregs are the state of that code, with RIP on the
 * HLT; cs and ss are what user code has loaded, if the frame has their selectors (not looked at for
 * CPL0); else, or NULL: what the descriptor tables have for the selectors in the frame.
 */
bool gphook_breakpoint(struct vcpu *vcpu, const struct gp_hook *hook, const struct vcpu_exit *exit,
                       unsigned cpl, const struct kvm_segment *cs, const struct kvm_segment *ss,
                       struct kvm_regs *regs, struct kvm_sregs *sregs);

/* What the faulting instruction was, which decides how the trap is finished. */
enum trap_kind {
    TRAP_RDTSC, /* emulate it with a value from the recorder */
    TRAP_UD,    /* RDTSCP, which the CPU model lacks: the guest gets #UD, as on hardware */
    TRAP_GUEST, /* a #GP of the guest's own: its handler runs */
};

/* A #GP that came by the hook: all that is to be read of memory, where the vCPU comes to the exit.
 * When its turn comes, other vCPUs may have the pages. */
struct trap {
    enum trap_kind kind;
    struct exception_frame frame;
    unsigned len;        /* of an RDTSC, with its prefixes */
    struct gp_hook hook; /* by which it came */
    uint64_t rip_gpa;    /* of the frame's RIP; UINT64_MAX: it is not mapped */
};

/* Once for each exit, where the vCPU has come to it: a HLT that is the hook's becomes EXIT_TRAP,
 * and *trap what it was. */
void gphook_arrive(struct vcpu *vcpu, const struct gp_hook *hook, struct vcpu_exit *exit,
                   struct trap *trap);
/* Let the guest go on behind the trap; tsc is used by TRAP_RDTSC only. */
void gphook_finish(struct vcpu *vcpu, const struct trap *trap, uint64_t tsc);

/* Where the CPU pushes the frame of an exception from CPL3 (TSS.RSP0), as a GPA; 0 if unknown, or
 * if the page is not, or not only, this vCPU's (mmu/ownership.h). */
uint64_t gphook_user_frame_gpa(struct vcpu *vcpu);
/* Have zeroes there: what landing leaves behind differs from run to run. For vCPUs that run at the
 * same time, where a forced point is chosen, and where it was landed on. */
void gphook_clear_user_frame(struct vcpu *vcpu);

/*
 * What the CPU uses on its way from CPL3 to the hook, of vCPUs that run at the same time: pages of
 * its tables, of the kernel's stack, which it writes, and of the hook. Returns how many there are
 * in `out`; none if they cannot be found.
 */
#define GPHOOK_PAGES 8u
unsigned gphook_pages(struct vcpu *vcpu, const struct gp_hook *hook,
                      struct page_fault out[GPHOOK_PAGES]);

/* An interrupt gate of the guest's IDT (AMD64 APM 2, section 4.8.4), 16 bytes in long mode. */
#define GATE_BYTES 16u

struct gate {
    uint64_t handler;
};

/* The gate of a vector; false when there is none that is present. */
bool gate_read(const struct guest_memory *m, const struct kvm_sregs *sregs, unsigned vector,
               struct gate *gate);
/* Have the gate in these bytes lead to another handler. */
void gate_redirect(uint8_t *gate, uint64_t handler);

#endif
