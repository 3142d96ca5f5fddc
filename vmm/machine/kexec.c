#include "vmm/machine/kexec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hidden_ports.h"
#include "boot/boot.h"
#include "boot/boot_bzimage.h"
#include "mmu/walk.h"
#include "vmm/kvm/cr4.h"

/* Where the boot protocol for 64 bits enters a bzImage's code. */
#define ENTRY_64 0x200u
#define HEADER   0x53726448u /* "HdrS" */

/* Put in place of purgatory's jump:
 *     out %al,$KEXEC_ENTRY_PORT
 *     jmp  (to WAY_ON_BYTES before the OUT, where the loads of registers were)
 * and there, at that exit:
 *     mov $entry,%rax
 *     jmp *%rax
 */
#define OUT_JUMP_BYTES 4u
#define WAY_ON_BYTES   12u
_Static_assert(WAY_ON_BYTES <= KEXEC_LOADS_BYTES, "it fits");

bool kexec_exit(const struct machine *m, const struct vcpu *vcpu, const struct vcpu_exit *exit)
{
    if (exit->kind != EXIT_PIO_OUT)
        return false;
    return exit->at == KEXEC_PORT
               ? m->kernel_code.kexec_hook && vcpu->regs->rip == m->kernel_code.kexec_hook
               : exit->at == KEXEC_ENTRY_PORT && m->kexec.at && vcpu->regs->rip == m->kexec.at;
}

void kexec_forget_kernel(struct machine *m)
{
    m->kernel_code = (struct kernel_code){0};
    machine_forget_code(m);
    m->hook = (struct gp_hook){0};
    recorder_hook(m->recorder, &m->hook);
}

static void doubt(struct machine *m, const char *why)
{
    if (!m->recorder)
        return;
    machine_doubt(m,
                  "the machine starts another kernel (kexec) and RDTSC there is trapped only once "
                  "it is found: %s",
                  why);
}

/* ---- before relocate_kernel() ---- */

/* machine_kexec(struct kimage *image) */
static void prepare(struct machine *m, struct vcpu *vcpu)
{
    const struct guest_memory *memory = &m->vm.memory;
    const uint64_t kimage = vcpu->regs->rdi;
    struct kexec_image image;
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    m->kexec = (struct kexec_jump){0};
    if (walk_read(memory, sregs.cr3, kimage + KEXEC_IMAGE_HEAD, &image.head, 8) != 8 ||
        walk_read(memory, sregs.cr3, kimage + KEXEC_IMAGE_START, &image.start, 8) != 8 ||
        !kexec_image_find_jump(memory, &image, &m->kexec)) {
        doubt(m, "the code before it (purgatory) is of an unknown kind");
        return;
    }
    const uint8_t code[OUT_JUMP_BYTES] = {0xe6, KEXEC_ENTRY_PORT, 0xeb,
                                          (uint8_t)(0x100 - OUT_JUMP_BYTES - WAY_ON_BYTES)};
    for (unsigned i = 0; i < sizeof code; i++) { /* it may lie on two pages */
        const uint64_t at = kexec_image_source(memory, &image, m->kexec.at + i);
        (void)m->dma.dma.write(&m->dma.dma, at, code + i, 1);
    }
}

/* ---- at the new kernel's entry ---- */

struct new_kernel {
    const struct setup_header *header; /* in guest memory */
    uint8_t *vmlinux;                  /* ours */
    size_t len;
    struct elf_view elf;    /* of that */
    struct boot_state boot; /* as the file wants it */
    uint64_t moved;         /* how far above that the kernel lies in memory */
};

/* Find and decompress the bzImage that is entered at `entry`. */
static int find_kernel(const struct guest_memory *m, uint64_t entry, uint64_t boot_params,
                       struct new_kernel *k, struct err *e)
{
    const struct boot_params *params = guest_memory_at(m, boot_params, sizeof *params);
    const uint64_t base = entry - ENTRY_64;

    if (!params || params->hdr.header != HEADER || params->hdr.version < 0x020c ||
        !(params->hdr.xloadflags & XLF_KERNEL_64) || !params->hdr.kernel_alignment)
        return err_set(e, STATUS_ERROR, "it is no bzImage");
    k->header = &params->hdr;
    const uint64_t align = k->header->kernel_alignment;
    const uint8_t *payload =
        guest_memory_at(m, base + k->header->payload_offset, k->header->payload_length);
    if (!payload ||
        boot_decompress(payload, k->header->payload_length, &k->vmlinux, &k->len, e) < 0)
        return err_set(e, STATUS_ERROR, "it cannot be decompressed");
    if (elf_open(&k->elf, k->vmlinux, k->len, "not a Linux kernel", e) < 0 ||
        boot_check_kernel(&k->elf, &k->boot, e) < 0)
        return -1;
    /* As arch/x86/boot/compressed/head_64.S has it. */
    const uint64_t to = (base + align - 1) / align * align;
    if (k->header->relocatable_kernel && to > k->header->pref_address)
        k->moved = to - k->header->pref_address;
    return 0;
}

/* Write what differs of the new kernel from `begin` on, as a device; `old` is what is there. */
static void put(struct machine *m, const struct guest_memory *kernel, const uint8_t *old,
                uint64_t begin, uint64_t moved)
{
    for (uint64_t at = begin; at < kernel->size; at += PAGE_BYTES)
        if (memcmp(old + (at - begin), kernel->host + at, PAGE_BYTES) != 0)
            (void)m->dma.dma.write(&m->dma.dma, at + moved, kernel->host + at, PAGE_BYTES);
}

/* Change the kernel as the first one was, and put it where its decompressor would have. */
static int install(struct machine *m, struct new_kernel *k, struct err *e)
{
    struct guest_memory file = {.fd = -1};
    struct err no_symbols; /* what there is not then, is a doubt */
    struct kallsyms *symbols;

    if (k->boot.kernel_begin < k->header->pref_address ||
        k->boot.kernel_end - k->header->pref_address > k->header->init_size)
        return err_set(e, STATUS_ERROR, "it does not lie where its header says");
    file.size = file.low_size = (k->boot.kernel_end + PAGE_BYTES - 1) & ~(uint64_t)(PAGE_BYTES - 1);
    const uint64_t begin = k->boot.kernel_begin & ~(uint64_t)(PAGE_BYTES - 1);
    uint8_t *old = guest_memory_at(&m->vm.memory, begin + k->moved, file.size - begin);
    if (!old)
        return err_set(e, STATUS_ERROR, "it does not fit into memory");
    file.host = calloc(1, file.size);
    if (!file.host)
        return err_set(e, STATUS_ERROR, "out of memory for it");
    boot_put_kernel(&k->elf, &file);
    symbols = kallsyms_from_elf(k->vmlinux, k->len, &no_symbols);
    int rc = kernel_code_patch(&file, k->vmlinux, k->len, symbols, true, &m->kernel_code, e);
    kallsyms_free(symbols);
    if (rc == 0)
        put(m, &file, old, begin, k->moved);
    free(file.host);
    if (rc < 0) {
        m->kernel_code = (struct kernel_code){0};
        return -1;
    }
    machine_trust_kernel(m, &k->elf, k->moved);
    if (m->kernel_code.doubt[0])
        doubt(m, m->kernel_code.doubt);
    return 0;
}

/* relocate_kernel() may have cleared it: newer kernels have that among their data. */
static void take_tsd(struct machine *m, struct vcpu *vcpu)
{
    struct kvm_sregs sregs;

    if (!cr4_tsd_is_lost(vcpu))
        return;
    vcpu_get_sregs(vcpu, &sregs);
    recorder_tsd_set(m->recorder);
    vcpu_set_sregs(vcpu, &sregs);
}

static void enter(struct machine *m, struct vcpu *vcpu)
{
    const uint64_t *entry = guest_memory_at(&m->vm.memory, m->kexec.entry, sizeof *entry);
    struct new_kernel k = {0};
    struct err e;
    uint64_t to = entry ? *entry : 0;

    kexec_forget_kernel(m);
    if (find_kernel(&m->vm.memory, to, vcpu->regs->rsi, &k, &e) < 0 || install(m, &k, &e) < 0)
        doubt(m, e.text);
    else
        to = k.boot.rip + k.moved;
    free(k.vmlinux);

    uint8_t way_on[WAY_ON_BYTES] = {0x48, 0xb8, [10] = 0xff, [11] = 0xe0};
    memcpy(way_on + 2, &to, sizeof to);
    (void)m->dma.dma.write(&m->dma.dma, m->kexec.at - WAY_ON_BYTES, way_on, sizeof way_on);
    m->kexec = (struct kexec_jump){0};
    take_tsd(m, vcpu);
}

void kexec_serve(struct machine *m, struct vcpu *vcpu, const struct vcpu_exit *exit)
{
    assert(kexec_exit(m, vcpu, exit));
    m->kexec_began = true;
    if (exit->at == KEXEC_PORT)
        prepare(m, vcpu);
    else
        enter(m, vcpu);
}
