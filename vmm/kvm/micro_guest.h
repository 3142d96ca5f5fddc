#ifndef VMM_KVM_MICRO_GUEST_H
#define VMM_KVM_MICRO_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/x86.h"
#include "vmm/kvm/isolated.h"
#include "vmm/kvm/vcpu.h"

/*
 * A micro-guest: some instructions in 64-bit mode, on the same VM and vCPU as a real guest's.
 * Memory is mapped one to one, readable and writable at CPL0 and CPL3, and I/O is allowed at CPL3
 * (IOPL 3). Every exception and interrupt vector below MICRO_VECTORS leads to a handler that writes
 * to the port of the vector's number, so it is seen as an EXIT_PIO_OUT. A program ends with
 * GUEST_DONE, a write to MICRO_DONE.
 *
 * A micro-guest lives in a probe's child process and ends with it; nothing takes it apart.
 */
#define MICRO_CODE    0x100000u /* where a program is loaded */
#define MICRO_DATA    0x800000u /* a page for it to work on */
#define MICRO_VECTORS 0x40u
#define MICRO_DONE    0x50u
#define GUEST_DONE    "out %al, $0x50\n"

#define MICRO_KERNEL_CS 0x10u
#define MICRO_USER_CS   0x33u

/* Define a program in assembler; `name` is its first byte and `name_end` the one after its last.
 * Labels in it are global to the file. */
#define GUEST_CODE(name, text)                                                                     \
    extern const uint8_t name[], name##_end[];                                                     \
    __asm__(".pushsection .rodata\n" #name ":\n" text #name "_end:\n"                              \
            ".popsection\n")

/* A program as an argument: its first byte and its length. */
#define PROGRAM(name) name, (size_t)(name##_end - name)

struct micro_guest {
    struct vm vm;
    struct vcpu vcpu;
    struct vcpu_exit exit; /* the last one */
};

/* The functions below return false when the probe is over: *o then says why. */

/* Make the VM, and separately its vCPU with a program that starts at privilege level cpl (0 or 3),
 * interrupts disabled: some capabilities must be set in between. */
bool micro_guest_create(struct micro_guest *g, struct probe_outcome *o);
bool micro_guest_load(struct micro_guest *g, const uint8_t *code, size_t length, unsigned cpl,
                      struct probe_outcome *o);
/* Both. */
bool micro_guest_start(struct micro_guest *g, const uint8_t *code, size_t length, unsigned cpl,
                       struct probe_outcome *o);

/* Run to the next exit. */
bool micro_guest_run(struct micro_guest *g, struct probe_outcome *o);
/* Run to the next exit, which has to be this one; `at` is compared for port and MSR exits. */
bool micro_guest_expect(struct micro_guest *g, enum exit_kind kind, uint64_t at,
                        struct probe_outcome *o);
/* Run until it is done. */
bool micro_guest_finish(struct micro_guest *g, struct probe_outcome *o);

/* Say what the last exit was, as an outcome "broken". Returns false. */
bool micro_guest_unexpected(const struct micro_guest *g, const char *wanted,
                            struct probe_outcome *o);

bool micro_guest_set_msr(struct micro_guest *g, uint32_t index, uint64_t value,
                         struct probe_outcome *o);
/* KVM_SET_GUEST_DEBUG; address goes into debug register 0 when control has USE_HW_BP. */
bool micro_guest_debug(struct micro_guest *g, uint32_t control, uint64_t address,
                       struct probe_outcome *o);
/* A whole trial: whether such a program stops at this breakpoint, of its first instructions. */
void micro_guest_breakpoint(const uint8_t *code, size_t length, unsigned cpl, uint32_t control,
                            uint64_t address, struct probe_outcome *o);
/* In a handler: the RIP that an exception pushed, with or without an error code below it. */
uint64_t micro_guest_pushed_rip(const struct micro_guest *g, bool error_code);

#endif
