#include "vmm/kvm/micro_guest.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#define MICRO_MEMORY (16u << 20)

/* Where the parts of the guest lie in its memory. */
enum {
    GDT = 0x1000,
    TSS = 0x1800,
    IDT = 0x2000,
    PML4 = 0x4000,
    PDPT = 0x5000,
    PD = 0x6000,
    HANDLERS = 0x8000, /* 16 bytes each */
    KERNEL_STACK = 0x90000,
    USER_STACK = 0xa0000,
};

#define KERNEL_DS 0x18u
#define USER_DS   0x2bu
#define TSS_SEL   0x40u

static void put64(struct micro_guest *g, uint64_t gpa, uint64_t value)
{
    memcpy(guest_memory_at(&g->vm.memory, gpa, sizeof value), &value, sizeof value);
}

/* AMD APM volume 2, 5.3 (page tables of 2 MiB pages) and 4.8 (descriptors in long mode). */
static void fill_tables(struct micro_guest *g)
{
    static const uint64_t gdt[] = {
        0,
        0,
        0x00af9b000000ffff, /* 0x10: CPL0 code */
        0x00cf93000000ffff, /* 0x18: CPL0 data */
        0x00cffb000000ffff, /* 0x20: CPL3 code, 32 bits: SYSRET counts from here */
        0x00cff3000000ffff, /* 0x28: CPL3 data */
        0x00affb000000ffff, /* 0x30: CPL3 code */
        0,
        0x0000890000000067 | (uint64_t)TSS << 16, /* 0x40, 16 bytes */
        0,
    };
    const uint64_t table = 0x27, page = 0xe7; /* present, writable, user, A/D, 2 MiB */

    put64(g, PML4, PDPT | table);
    put64(g, PDPT, PD | table);
    for (unsigned i = 0; i < MICRO_MEMORY >> 21; i++)
        put64(g, PD + 8 * i, (uint64_t)i << 21 | page);
    for (unsigned i = 0; i < sizeof gdt / sizeof *gdt; i++)
        put64(g, GDT + 8 * i, gdt[i]);
    put64(g, TSS + 4, KERNEL_STACK); /* RSP0 */
    for (unsigned vector = 0; vector < MICRO_VECTORS; vector++) {
        uint64_t handler = HANDLERS + 16 * vector;
        put64(g, IDT + 16 * vector,
              (handler & 0xffff) | MICRO_KERNEL_CS << 16 | 0xeeull << 40 /* DPL 3 */);
        put64(g, handler, 0xf400e6 | vector << 8); /* out %al, $vector; hlt */
    }
}

static void set_mode(struct micro_guest *g, unsigned cpl)
{
    struct kvm_sregs s;

    vcpu_get_sregs(&g->vcpu, &s);
    s.cr0 = 0x80050033; /* PG AM WP NE ET MP PE */
    s.cr3 = PML4;
    s.cr4 = 0x620;  /* OSXMMEXCPT OSFXSR PAE */
    s.efer = 0xd01; /* NXE LMA LME SCE */
    s.cs = vcpu_flat_segment(cpl ? MICRO_USER_CS : MICRO_KERNEL_CS, true);
    s.ds = s.es = s.fs = s.gs = s.ss = vcpu_flat_segment(cpl ? USER_DS : KERNEL_DS, false);
    s.tr = (struct kvm_segment){
        .base = TSS, .limit = 0x67, .selector = TSS_SEL, .type = 11, .present = 1};
    s.ldt = (struct kvm_segment){.unusable = 1};
    s.gdt = (struct kvm_dtable){.base = GDT, .limit = 0x4f};
    s.idt = (struct kvm_dtable){.base = IDT, .limit = 16 * MICRO_VECTORS - 1};
    vcpu_set_sregs(&g->vcpu, &s);
    vcpu_set_regs(&g->vcpu, &(struct kvm_regs){
                                .rip = MICRO_CODE,
                                .rsp = cpl ? USER_STACK : KERNEL_STACK,
                                .rflags = 0x2 | (cpl ? 0x3000 : 0),
                            });
}

bool micro_guest_create(struct micro_guest *g, struct probe_outcome *o)
{
    struct err e = {0};

    *g = (struct micro_guest){.vcpu.fd = -1};
    if (vm_create(&g->vm, MICRO_MEMORY, &e) < 0) {
        probe_says(o, PROBE_MISSING, "%.200s", e.text);
        return false;
    }
    fill_tables(g);
    return true;
}

bool micro_guest_load(struct micro_guest *g, const uint8_t *code, size_t length, unsigned cpl,
                      struct probe_outcome *o)
{
    struct err e = {0};
    void *at = guest_memory_at(&g->vm.memory, MICRO_CODE, length);

    assert(at && (cpl == 0 || cpl == 3));
    if (vcpu_create(&g->vcpu, &g->vm, 0, 1, &e) < 0) {
        probe_says(o, PROBE_BROKEN, "%.200s", e.text);
        return false;
    }
    memcpy(at, code, length);
    set_mode(g, cpl);
    return true;
}

bool micro_guest_start(struct micro_guest *g, const uint8_t *code, size_t length, unsigned cpl,
                       struct probe_outcome *o)
{
    return micro_guest_create(g, o) && micro_guest_load(g, code, length, cpl, o);
}

bool micro_guest_run(struct micro_guest *g, struct probe_outcome *o)
{
    struct err e = {0};

    if (vcpu_run(&g->vcpu, &g->exit, &e) == 0)
        return true;
    if (g->vcpu.run->exit_reason == KVM_EXIT_INTERNAL_ERROR)
        probe_says(o, PROBE_BROKEN, "internal error %u of KVM at rip %#llx",
                   g->vcpu.run->internal.suberror, (unsigned long long)g->vcpu.regs->rip);
    else
        probe_says(o, PROBE_BROKEN, "%.200s", e.text);
    return false;
}

bool micro_guest_unexpected(const struct micro_guest *g, const char *wanted,
                            struct probe_outcome *o)
{
    static const char *const kinds[] = {
        [EXIT_PIO_IN] = "a port read",
        [EXIT_PIO_OUT] = "a port write",
        [EXIT_MMIO_READ] = "an MMIO read",
        [EXIT_MMIO_WRITE] = "an MMIO write",
        [EXIT_HLT] = "a hlt exit",
        [EXIT_WINDOW] = "an interrupt window",
        [EXIT_RDMSR] = "an RDMSR exit",
        [EXIT_WRMSR] = "a WRMSR exit",
        [EXIT_RDTSC] = "a read of port 0xe1",
        [EXIT_SHUTDOWN] = "a triple fault",
        [EXIT_KICK] = "a kick",
        [EXIT_STEP] = "a debug exit",
    };
    const struct vcpu_exit *x = &g->exit;
    unsigned long long rip = g->vcpu.regs->rip;

    if (x->kind == EXIT_PIO_OUT && x->at < MICRO_VECTORS)
        probe_says(o, PROBE_BROKEN, "%s did not come: vector %u was delivered to the guest", wanted,
                   (unsigned)x->at);
    else if (x->kind == EXIT_PIO_OUT && x->at == MICRO_DONE)
        probe_says(o, PROBE_BROKEN, "%s did not come: the guest ran to its end", wanted);
    else
        probe_says(o, PROBE_BROKEN, "%s did not come, but %s at rip %#llx", wanted,
                   x->kind < sizeof kinds / sizeof *kinds && kinds[x->kind] ? kinds[x->kind]
                                                                            : "another exit",
                   rip);
    return false;
}

bool micro_guest_expect(struct micro_guest *g, enum exit_kind kind, uint64_t at,
                        struct probe_outcome *o)
{
    static const struct {
        enum exit_kind kind;
        const char *name;
    } names[] = {
        {EXIT_PIO_OUT, "the port write"},
        {EXIT_HLT, "the hlt exit"},
        {EXIT_WINDOW, "the interrupt window"},
        {EXIT_RDMSR, "the RDMSR exit"},
        {EXIT_RDTSC, "the port read"},
        {EXIT_STEP, "the debug exit"},
        {EXIT_KICK, "the kick"},
    };
    const char *wanted = "the exit";

    if (!micro_guest_run(g, o))
        return false;
    bool has_address = kind == EXIT_PIO_OUT || kind == EXIT_RDMSR;
    if (g->exit.kind == kind && (!has_address || g->exit.at == at))
        return true;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].kind == kind)
            wanted = names[i].name;
    char vector[40];
    if (kind == EXIT_PIO_OUT && at < MICRO_VECTORS) {
        snprintf(vector, sizeof vector, "vector %u", (unsigned)at);
        wanted = vector;
    }
    return micro_guest_unexpected(g, wanted, o);
}

bool micro_guest_finish(struct micro_guest *g, struct probe_outcome *o)
{
    return micro_guest_expect(g, EXIT_PIO_OUT, MICRO_DONE, o);
}

bool micro_guest_set_msr(struct micro_guest *g, uint32_t index, uint64_t value,
                         struct probe_outcome *o)
{
    struct {
        struct kvm_msrs head;
        struct kvm_msr_entry entry;
    } msrs = {.head.nmsrs = 1, .entry = {.index = index, .data = value}};

    if (ioctl(g->vcpu.fd, KVM_SET_MSRS, &msrs) == 1)
        return true;
    probe_says(o, PROBE_BROKEN, "KVM does not set MSR %#x", index);
    return false;
}

bool micro_guest_debug(struct micro_guest *g, uint32_t control, uint64_t address,
                       struct probe_outcome *o)
{
    struct kvm_guest_debug debug = {.control = KVM_GUESTDBG_ENABLE | control};

    if (control & KVM_GUESTDBG_USE_HW_BP) {
        debug.arch.debugreg[0] = address;
        debug.arch.debugreg[7] = 0x402; /* G0: execution of one byte at DR0 (AMD APM 2, 13.1.1) */
    }
    if (ioctl(g->vcpu.fd, KVM_SET_GUEST_DEBUG, &debug) == 0)
        return true;
    probe_says(o, PROBE_MISSING, "KVM_SET_GUEST_DEBUG: %s", strerror(errno));
    return false;
}

uint64_t micro_guest_pushed_rip(const struct micro_guest *g, bool error_code)
{
    uint64_t rip = 0;
    const void *at =
        guest_memory_at(&g->vm.memory, g->vcpu.regs->rsp + (error_code ? 8 : 0), sizeof rip);

    if (at)
        memcpy(&rip, at, sizeof rip);
    return rip;
}

void micro_guest_breakpoint(const uint8_t *code, size_t length, unsigned cpl, uint32_t control,
                            uint64_t address, struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, code, length, cpl, o) ||
        !micro_guest_debug(&g, control, address, o) || !micro_guest_expect(&g, EXIT_STEP, 0, o))
        return;
    uint64_t pc = g.vcpu.run->debug.arch.pc;
    if (pc == address)
        probe_says(o, PROBE_OK, "stops there");
    else
        probe_says(o, PROBE_BROKEN, "it stopped at rip %#llx and not %#llx", (unsigned long long)pc,
                   (unsigned long long)address);
}
