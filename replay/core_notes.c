#include "replay/core_notes.h"

#include <elf.h>
#include <string.h>
#include <sys/procfs.h>
#include <sys/user.h>

#include "base/x86.h"

_Static_assert(sizeof(struct elf_prstatus) == 336, "the layout that debuggers know");

static void put_padding(struct bytes *out)
{
    while (out->len % 4)
        bytes_put_u8(out, 0);
}

static void put_note(struct bytes *out, const char *name, uint32_t type, const void *data,
                     size_t len)
{
    const Elf64_Nhdr head = {
        .n_namesz = (Elf64_Word)strlen(name) + 1,
        .n_descsz = (Elf64_Word)len,
        .n_type = type,
    };

    bytes_put(out, &head, sizeof head);
    bytes_put(out, name, head.n_namesz);
    put_padding(out);
    bytes_put(out, data, len);
    put_padding(out);
}

/* RF is a trace of how the instruction was reached, not of the recording. */
static uint64_t flags_of(const struct vcpu_state *cpu)
{
    return cpu->regs.rflags & ~RFLAGS_RF;
}

static void put_registers(struct bytes *out, const struct core *core, unsigned index)
{
    const struct core_kernel *k = core->kernel;
    const struct vcpu_state *cpu = &core->cpus[index];
    const struct kvm_regs *r = &cpu->regs;
    const struct kvm_sregs *s = &cpu->sregs;
    /* drgn gives the registers to the task of this PID. */
    struct elf_prstatus status = {.pr_pid = (pid_t)(k->has_pids ? k->pids[index] : index + 1)};
    const struct user_regs_struct regs = {
        .r15 = r->r15,
        .r14 = r->r14,
        .r13 = r->r13,
        .r12 = r->r12,
        .rbp = r->rbp,
        .rbx = r->rbx,
        .r11 = r->r11,
        .r10 = r->r10,
        .r9 = r->r9,
        .r8 = r->r8,
        .rax = r->rax,
        .rcx = r->rcx,
        .rdx = r->rdx,
        .rsi = r->rsi,
        .rdi = r->rdi,
        .orig_rax = UINT64_MAX, /* in no system call */
        .rip = r->rip,
        .cs = s->cs.selector,
        .eflags = flags_of(cpu),
        .rsp = r->rsp,
        .ss = s->ss.selector,
        .fs_base = s->fs.base,
        .gs_base = s->gs.base,
        .ds = s->ds.selector,
        .es = s->es.selector,
        .fs = s->fs.selector,
        .gs = s->gs.selector,
    };

    _Static_assert(sizeof regs == sizeof status.pr_reg, "the registers of a process");
    memcpy(&status.pr_reg, &regs, sizeof regs);
    put_note(out, "CORE", NT_PRSTATUS, &status, sizeof status);
}

/* As the upper half of a descriptor has it. */
static uint32_t descriptor_bits(const struct kvm_segment *s)
{
    return (uint32_t)(s->type & 15) << 8 | (s->s & 1u) << 12 | (s->dpl & 3u) << 13 |
           (s->present & 1u) << 15 | (s->avl & 1u) << 20 | (s->l & 1u) << 21 | (s->db & 1u) << 22 |
           (s->g & 1u) << 23;
}

static void put_segment(struct bytes *out, const struct kvm_segment *s)
{
    bytes_put_u32(out, s->selector);
    bytes_put_u32(out, s->limit);
    bytes_put_u32(out, descriptor_bits(s));
    bytes_put_u32(out, 0);
    bytes_put_u64(out, s->base);
}

static void put_table(struct bytes *out, const struct kvm_dtable *t)
{
    put_segment(out, &(struct kvm_segment){.base = t->base, .limit = t->limit});
}

/*
 * The note of QEMU's dump-guest-memory (version 1 of its QEMUCPUState), by which crash takes the
 * registers of every CPU, and not of the one that has panicked alone. It also holds CR3.
 */
static void put_qemu_registers(struct bytes *out, const struct vcpu_state *cpu)
{
    const struct kvm_regs *r = &cpu->regs;
    const struct kvm_sregs *s = &cpu->sregs;
    const uint64_t general[] = {
        r->rax, r->rbx, r->rcx, r->rdx, r->rsi, r->rdi, r->rsp, r->rbp, r->r8,
        r->r9,  r->r10, r->r11, r->r12, r->r13, r->r14, r->r15, r->rip, flags_of(cpu),
    };
    const struct kvm_segment *const segments[] = {
        &s->cs, &s->ds, &s->es, &s->fs, &s->gs, &s->ss, &s->ldt, &s->tr,
    };
    const uint64_t control[] = {s->cr0, 0, s->cr2, s->cr3, s->cr4};
    struct vcpu_state copy = *cpu;
    struct bytes data = {0};

    bytes_put_u32(&data, 1);
    bytes_put_u32(&data, 440); /* of all this */
    bytes_put(&data, general, sizeof general);
    for (size_t i = 0; i < sizeof segments / sizeof *segments; i++)
        put_segment(&data, segments[i]);
    put_table(&data, &s->gdt);
    put_table(&data, &s->idt);
    bytes_put(&data, control, sizeof control);
    bytes_put_u64(&data, *msr_of_state(&copy, MSR_KERNEL_GS_BASE));
    put_note(out, "QEMU", 0, data.data, data.len);
    bytes_free(&data);
}

size_t core_put_notes(struct bytes *out, const struct core *core)
{
    const struct core_kernel *k = core->kernel;

    for (unsigned i = 0; i < core->cpu_count; i++)
        put_registers(out, core, i);
    for (unsigned i = 0; i < core->cpu_count; i++)
        put_qemu_registers(out, &core->cpus[i]);
    if (k->without)
        return 0;
    put_note(out, "VMCOREINFO", 0, k->info, k->info_len);
    return out->len - (k->info_len + 3) / 4 * 4;
}
