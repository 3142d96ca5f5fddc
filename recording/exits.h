#ifndef RECORDING_EXITS_H
#define RECORDING_EXITS_H

/* Why a vCPU has come out of its guest. */
enum exit_kind {
    /* Sync points: exits the guest causes by itself, at the same instruction in every run. The
     * values are part of the recording format. */
    EXIT_PIO_IN = 1,    /* at: port; data: to be filled, size * count bytes */
    EXIT_PIO_OUT = 2,   /* at: port; data: size * count bytes */
    EXIT_MMIO_READ = 3, /* at: GPA; data: to be filled, size bytes */
    EXIT_MMIO_WRITE = 4,
    EXIT_HLT = 5,
    EXIT_WINDOW = 6, /* interrupts can be injected, as was asked for with vcpu_want_window() */
    EXIT_RDMSR = 7,  /* at: index; answer with vcpu_finish_msr() */
    EXIT_WRMSR = 8,
    EXIT_RDTSC = 9,     /* a patched RDTSC; answer with vcpu_finish_rdtsc() */
    EXIT_TRAP = 10,     /* the #GP hook (vmm/points/gphook.h); set by the hook, not by vcpu_run() */
    EXIT_SHUTDOWN = 11, /* triple fault */
    EXIT_FORCED = 12,   /* a forced point; set by the clock, not by vcpu_run() */
    EXIT_CR8 = 13,      /* CR8 was lowered: see vcpu_cr8() */
    /* The guest needs a page that the vCPU may not use, or not so (mmu/ownership.h), and has not
     * done the instruction yet. at: GPA of the page; size: enum page_access, what it needs. */
    EXIT_FAULT = 14,
    /* An access to CR4 that was replaced when its code was loaded (vmm/kvm/cr4.h). size: number of
     * the register, as in instructions; answer with cr4_finish(). */
    EXIT_CR4_READ = 15,
    EXIT_CR4_WRITE = 16,
    EXIT_SYNC_LAST = EXIT_CR4_WRITE,
    /* Exits that the guest does not notice and a recording does not contain. */
    EXIT_KICK = 32,   /* vcpu_kick() or a signal */
    EXIT_STEP = 33,   /* one instruction was stepped, or a hardware breakpoint was hit */
    EXIT_FAILED = 34, /* vcpu_run() returned -1 */
    /* Memory that vm_protect() protects is about to be written: the instruction, or what is to be
     * taken before it, is not done yet. */
    EXIT_PROTECTED = 35,
};

#endif
