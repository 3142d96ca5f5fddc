#include "replay/core_file.h"

#include <assert.h>
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/procfs.h>
#include <sys/user.h>
#include <unistd.h>

#include "base/x86.h"

/* What is written at once, between two looks at whether it is to stop. */
#define WRITE_BYTES (8u << 20)
/* A note, the kernel's image, and two ranges of memory. */
#define HEADERS_FIXED 4u

_Static_assert(HEADERS_FIXED + CORE_MAPPED_MAX < PN_XNUM, "they are counted in 16 bits");
_Static_assert(sizeof(struct elf_prstatus) == 336, "the layout that debuggers know");

/* ---- notes ---- */

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

static void put_notes(struct bytes *out, const struct core *core)
{
    const struct core_kernel *k = core->kernel;

    for (unsigned i = 0; i < core->cpu_count; i++)
        put_registers(out, core, i);
    for (unsigned i = 0; i < core->cpu_count; i++)
        put_qemu_registers(out, &core->cpus[i]);
    if (!k->without)
        put_note(out, "VMCOREINFO", 0, k->info, k->info_len);
}

/* ---- headers ---- */

/* The program header of a range, of a file that has memory from `start` on. Its alignment is 0, as
 * kdump's: by that crash tells such a core from one of an older tool, netdump. */
static void put_range(struct bytes *out, const struct core *core, uint64_t start,
                      struct core_range range)
{
    const uint8_t *at = guest_memory_any(core->memory, range.gpa, range.bytes);
    const Elf64_Phdr header = {
        .p_type = PT_LOAD,
        .p_flags = PF_R | PF_W | PF_X,
        .p_offset = start + (uint64_t)(at - core->memory->host),
        .p_vaddr = range.va,
        .p_paddr = range.gpa,
        .p_filesz = range.bytes,
        .p_memsz = range.bytes,
    };

    assert(at); /* who found the range has looked */
    bytes_put(out, &header, sizeof header);
}

/* Memory first: crash looks for a physical address in the order of the headers. */
static void put_ranges(struct bytes *out, const struct core *core, uint64_t start)
{
    const struct guest_memory *m = core->memory;
    const struct core_kernel *k = core->kernel;

    put_range(out, core, start, (struct core_range){k->direct_map, 0, m->low_size});
    if (m->high_size)
        put_range(
            out, core, start,
            (struct core_range){k->direct_map + MEMORY_HIGH_BASE, MEMORY_HIGH_BASE, m->high_size});
    if (k->image.bytes)
        put_range(out, core, start, k->image);
    for (size_t i = 0; i < k->mapped.count; i++)
        put_range(out, core, start, k->mapped.at[i]);
}

/* All that comes before memory, in whole pages. */
static void put_head(struct bytes *out, const struct core *core)
{
    const struct core_kernel *k = core->kernel;
    const size_t count =
        2 + (core->memory->high_size != 0) + (k->image.bytes != 0) + k->mapped.count;
    const Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_CORE,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_phoff = sizeof header,
        .e_ehsize = sizeof header,
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = (Elf64_Half)count,
    };
    struct bytes notes = {0};

    put_notes(&notes, core);
    const Elf64_Phdr note = {
        .p_type = PT_NOTE,
        .p_offset = sizeof header + count * sizeof note,
        .p_filesz = notes.len,
        .p_memsz = notes.len,
    };
    const uint64_t start = ((note.p_offset + notes.len) | (PAGE_BYTES - 1)) + 1;
    bytes_put(out, &header, sizeof header);
    bytes_put(out, &note, sizeof note);
    put_ranges(out, core, start);
    assert(out->len == note.p_offset);
    bytes_put(out, notes.data, notes.len);
    while (out->len < start)
        bytes_put_u8(out, 0);
    bytes_free(&notes);
}

/* ---- memory ---- */

static bool is_zero_page(const uint8_t *page)
{
    const uint64_t *words = (const void *)page;

    for (unsigned i = 0; i < PAGE_BYTES / 8; i += 8)
        if (words[i] | words[i + 1] | words[i + 2] | words[i + 3] | words[i + 4] | words[i + 5] |
            words[i + 6] | words[i + 7])
            return false;
    return true;
}

static int write_at(int fd, const uint8_t *data, uint64_t len, uint64_t offset)
{
    while (len) {
        const ssize_t n = pwrite(fd, data, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n < 0 ? errno : ENOSPC;
            return -1;
        }
        data += n;
        offset += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return 0;
}

/* The pages from byte `from` to `to` of memory that are not zero, those beside each other at once.
 */
static int write_pages(const struct guest_memory *m, int fd, uint64_t file_offset, uint64_t from,
                       uint64_t to, uint64_t *bytes)
{
    for (uint64_t at = from, end; at < to; at = end) {
        const bool zero = is_zero_page(m->host + at);
        for (end = at + PAGE_BYTES; end < to && is_zero_page(m->host + end) == zero;)
            end += PAGE_BYTES;
        if (zero)
            continue;
        if (write_at(fd, m->host + at, end - at, file_offset + at) < 0)
            return -1;
        *bytes += end - at;
    }
    return 0;
}

static int write_memory(const struct guest_memory *m, int fd, uint64_t file_offset,
                        const char *path, const struct core_making *how, uint64_t *bytes,
                        struct err *e)
{
    uint64_t start = 0, end;

    while (guest_memory_touched(m, &start, &end)) {
        const uint64_t to = end - start < WRITE_BYTES ? end : start + WRITE_BYTES;
        if (how->stop && *how->stop)
            return err_set(e, STATUS_ERROR, "interrupted before %s was written", path);
        if (write_pages(m, fd, file_offset, start, to, bytes) < 0)
            return err_set(e, STATUS_ERROR, "cannot write to %s: %s", path, strerror(errno));
        if (how->progress)
            how->progress(how->opaque, to);
        start = to;
    }
    return 0;
}

int core_file_write(const struct core *core, int fd, const char *path,
                    const struct core_making *how, uint64_t *bytes, struct err *e)
{
    struct bytes head = {0};
    int rc = 0;

    *bytes = 0;
    put_head(&head, core);
    if (ftruncate(fd, (off_t)(head.len + core->memory->size)) < 0 ||
        write_at(fd, head.data, head.len, 0) < 0)
        rc = err_set(e, STATUS_ERROR, "cannot write to %s: %s", path, strerror(errno));
    if (rc == 0)
        rc = write_memory(core->memory, fd, head.len, path, how, bytes, e);
    bytes_free(&head);
    return rc;
}
