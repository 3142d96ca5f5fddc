#include <asm/bootparam.h>
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "boot/boot.h"
#include "boot/boot_bzimage.h"

/* Guest-physical addresses of what only the first instructions of the kernel need. */
#define GDT_AT          0x1000u
#define ZERO_PAGE_AT    0x2000u
#define PML4_AT         0x10000u
#define PDPT_AT         0x11000u
#define PD_AT           0x12000u /* four pages: 4 GiB in 2 MiB pages */
#define STACK_TOP       0xa000u
#define COMMAND_LINE_AT 0x20000u

#define LOW_RAM_END   0x9fc00u /* where a PC keeps its extended BIOS data area */
#define LOW_RAM_LIMIT 0xa0000u
#define BIOS_AT       0xe0000u
#define HIGH_RAM_AT   0x100000u

#define IDENTITY_GIB        4u
#define COMMAND_LINE_MAX    2047u /* when the kernel does not say: x86 COMMAND_LINE_SIZE - 1 */
#define COMMAND_LINE_LIMIT  0xffffu
#define INITRD_ADDR_MAX     0x7fffffffu
#define LOADER_UNREGISTERED 0xff
#define MIB                 (1ull << 20)

#define PTE_PRESENT_WRITABLE 0x3u
#define PTE_LARGE            0x80u

static uint64_t align_up(uint64_t v, uint64_t to)
{
    return (v + to - 1) & ~(to - 1);
}

static int need_memory(uint64_t bytes, struct err *e)
{
    return err_set(e, STATUS_ERROR,
                   "kernel and initrd need at least %llu MiB of memory; give --memory",
                   (unsigned long long)(align_up(bytes, 2 * MIB) / MIB));
}

static bool is_loaded(const Elf64_Phdr *p)
{
    return p->p_type == PT_LOAD && p->p_memsz > 0;
}

int boot_check_kernel(const struct elf_view *elf, struct boot_state *out, struct err *e)
{
    bool entry_loaded = false;
    uint64_t total = 0;

    out->kernel_begin = UINT64_MAX;
    for (unsigned i = 0; i < elf_segment_count(elf); i++) {
        Elf64_Phdr p = elf_segment(elf, i);

        if (!is_loaded(&p))
            continue;
        if (p.p_filesz > p.p_memsz || p.p_offset > elf->len || p.p_filesz > elf->len - p.p_offset)
            return err_set(e, STATUS_ERROR, "the kernel is cut short: segment %u leaves the file",
                           i);
        if (p.p_paddr < HIGH_RAM_AT || p.p_paddr >= MEMORY_HOLE_BASE ||
            p.p_memsz > MEMORY_HOLE_BASE - p.p_paddr)
            return err_set(e, STATUS_ERROR,
                           "not a Linux kernel: segment %u wants physical address 0x%llx, outside "
                           "1 MiB to 3 GiB",
                           i, (unsigned long long)p.p_paddr);
        total += p.p_memsz;
        if (p.p_paddr < out->kernel_begin)
            out->kernel_begin = p.p_paddr;
        if (p.p_paddr + p.p_memsz > out->kernel_end)
            out->kernel_end = p.p_paddr + p.p_memsz;
        if (elf->header.e_entry >= p.p_paddr && elf->header.e_entry - p.p_paddr < p.p_filesz)
            entry_loaded = true;
    }
    if (total &&
        total > out->kernel_end - out->kernel_begin) /* or loading takes as long as a file wants */
        return err_set(e, STATUS_ERROR, "not a Linux kernel: its segments overlap in memory");
    if (!entry_loaded)
        return err_set(e, STATUS_ERROR,
                       "not a Linux kernel: the ELF entry 0x%llx is not the physical address of "
                       "a loaded byte",
                       (unsigned long long)elf->header.e_entry);
    out->rip = elf->header.e_entry;
    return 0;
}

void boot_put_kernel(const struct elf_view *elf, struct guest_memory *m)
{
    for (unsigned i = 0; i < elf_segment_count(elf); i++) {
        Elf64_Phdr p = elf_segment(elf, i);

        if (!is_loaded(&p))
            continue;

        uint8_t *to = guest_memory_at(m, p.p_paddr, p.p_memsz);

        assert(to);
        memcpy(to, elf->bytes + p.p_offset, p.p_filesz);
        memset(to + p.p_filesz, 0, p.p_memsz - p.p_filesz);
    }
}

/*
 * As high as the kernel allows, so that it stays out of the way of early allocations. The setup
 * header's init_size is room for the decompressor, which does not run here; what the kernel itself
 * needs before it knows the memory map (bss, brk) is in its segments.
 */
static int load_initrd(const struct boot_config *c, struct guest_memory *m,
                       struct setup_header *header, struct boot_state *out, struct err *e)
{
    if (c->initrd_len == 0)
        return 0;

    uint64_t size = align_up(c->initrd_len, PAGE_BYTES);
    uint64_t floor = align_up(out->kernel_end, PAGE_BYTES);
    uint64_t limit = (uint64_t)header->initrd_addr_max + 1;

    if (floor >= limit || size > limit - floor)
        return err_set(e, STATUS_ERROR,
                       "the initrd of %llu MiB does not fit between the kernel and 0x%llx, the "
                       "highest address it accepts",
                       (unsigned long long)(size / MIB), (unsigned long long)limit);
    if (limit > m->low_size)
        limit = m->low_size;
    if (floor + size > limit)
        return need_memory(floor + size, e);

    uint64_t at = (limit - size) & ~(uint64_t)(PAGE_BYTES - 1);

    memcpy(guest_memory_at(m, at, c->initrd_len), c->initrd, c->initrd_len);
    header->ramdisk_image = (uint32_t)at;
    header->ramdisk_size = (uint32_t)c->initrd_len;
    out->initrd_base = at;
    return 0;
}

static int load_command_line(const char *line, struct guest_memory *m, struct setup_header *header,
                             struct err *e)
{
    size_t len = line ? strlen(line) : 0;
    size_t max = header->cmdline_size ? header->cmdline_size : COMMAND_LINE_MAX;

    if (max > COMMAND_LINE_LIMIT)
        max = COMMAND_LINE_LIMIT;
    if (len > max)
        return err_set(e, STATUS_USAGE,
                       "the kernel command line has %zu characters; this kernel takes %zu", len,
                       max);

    char *to = guest_memory_at(m, COMMAND_LINE_AT, len + 1);

    memcpy(to, line ? line : "", len + 1);
    header->cmd_line_ptr = COMMAND_LINE_AT;
    return 0;
}

static void e820_add(struct boot_params *params, uint64_t start, uint64_t end, uint32_t type)
{
    if (start >= end)
        return;
    assert(params->e820_entries < E820_MAX_ENTRIES_ZEROPAGE);
    params->e820_table[params->e820_entries++] =
        (struct boot_e820_entry){.addr = start, .size = end - start, .type = type};
}

static void make_e820(struct boot_params *params, const struct guest_memory *m)
{
    enum { usable = 1, reserved = 2 };

    e820_add(params, 0, LOW_RAM_END, usable);
    e820_add(params, LOW_RAM_END, LOW_RAM_LIMIT, reserved);
    e820_add(params, BIOS_AT, HIGH_RAM_AT, reserved);
    e820_add(params, HIGH_RAM_AT, m->low_size, usable);
    e820_add(params, MEMORY_HIGH_BASE, MEMORY_HIGH_BASE + m->high_size, usable);
}

static void make_page_tables(struct guest_memory *m)
{
    uint64_t *pml4 = guest_memory_at(m, PML4_AT, PAGE_BYTES);
    uint64_t *pdpt = guest_memory_at(m, PDPT_AT, PAGE_BYTES);
    uint64_t *pd = guest_memory_at(m, PD_AT, IDENTITY_GIB * PAGE_BYTES);

    memset(pml4, 0, PAGE_BYTES);
    memset(pdpt, 0, PAGE_BYTES);
    pml4[0] = PDPT_AT | PTE_PRESENT_WRITABLE;
    for (uint64_t i = 0; i < IDENTITY_GIB; i++)
        pdpt[i] = (PD_AT + i * PAGE_BYTES) | PTE_PRESENT_WRITABLE;
    for (uint64_t i = 0; i < IDENTITY_GIB * 512; i++)
        pd[i] = i * 2 * MIB | PTE_PRESENT_WRITABLE | PTE_LARGE;
}

static void make_gdt(struct guest_memory *m, struct boot_state *out)
{
    static const uint64_t gdt[] = {
        [BOOT_CS / 8] = 0x00af9b000000ffffull, /* 64-bit code, accessed */
        [BOOT_DS / 8] = 0x00cf93000000ffffull, /* flat data, accessed */
    };

    memcpy(guest_memory_at(m, GDT_AT, sizeof(gdt)), gdt, sizeof(gdt));
    out->gdt_base = GDT_AT;
    out->gdt_limit = sizeof(gdt) - 1;
}

/* The setup header that a boot loader hands on: the image's own, or a plain one for a vmlinux. */
static int open_kernel(const struct boot_config *c, struct setup_header *header,
                       struct boot_state *out, struct err *e)
{
    if (c->kernel_len >= SELFMAG && memcmp(c->kernel, ELFMAG, SELFMAG) == 0) {
        if (c->kernel_len > BOOT_VMLINUX_MAX)
            return err_set(e, STATUS_ERROR, "the kernel is larger than %zu MiB",
                           BOOT_VMLINUX_MAX >> 20);
        *header = (struct setup_header){.boot_flag = 0xaa55,
                                        .header = 0x53726448,
                                        .version = 0x020c,
                                        .loadflags = LOADED_HIGH,
                                        .initrd_addr_max = INITRD_ADDR_MAX,
                                        .cmdline_size = COMMAND_LINE_MAX};
        out->vmlinux = malloc(c->kernel_len);
        if (!out->vmlinux)
            return err_set(e, STATUS_ERROR, "out of memory for the kernel");
        memcpy(out->vmlinux, c->kernel, c->kernel_len);
        out->vmlinux_len = c->kernel_len;
        return 0;
    }

    struct bzimage bz;

    if (bzimage_open(&bz, c->kernel, c->kernel_len, e) < 0 ||
        boot_decompress(bz.payload, bz.payload_len, &out->vmlinux, &out->vmlinux_len, e) < 0)
        return -1;
    *header = bz.header;
    memcpy(out->version, bz.version, sizeof(out->version));
    return 0;
}

static int load_all(const struct boot_config *c, struct guest_memory *m, struct boot_state *out,
                    struct err *e)
{
    struct boot_params *params = guest_memory_at(m, ZERO_PAGE_AT, sizeof(*params));
    struct setup_header header;
    struct elf_view elf;

    assert(params);
    if (open_kernel(c, &header, out, e) < 0 ||
        elf_open(&elf, out->vmlinux, out->vmlinux_len, "not a Linux kernel", e) < 0 ||
        boot_check_kernel(&elf, out, e) < 0)
        return -1;
    if (out->kernel_end > m->low_size)
        return need_memory(out->kernel_end + c->initrd_len, e);
    boot_put_kernel(&elf, m);

    header.type_of_loader = LOADER_UNREGISTERED;
    header.loadflags &= (uint8_t)~CAN_USE_HEAP;
    header.ramdisk_image = header.ramdisk_size = 0;
    header.setup_data = 0;
    if (load_initrd(c, m, &header, out, e) < 0 ||
        load_command_line(c->command_line, m, &header, e) < 0)
        return -1;

    memset(params, 0, sizeof(*params));
    params->hdr = header;
    params->acpi_rsdp_addr = c->acpi_rsdp;
    make_e820(params, m);
    make_page_tables(m);
    make_gdt(m, out);
    out->rsi = ZERO_PAGE_AT;
    out->rsp = STACK_TOP;
    out->cr3 = PML4_AT;
    return 0;
}

int boot_load(const struct boot_config *c, struct guest_memory *m, struct boot_state *out,
              struct err *e)
{
    memset(out, 0, sizeof(*out));
    if (c->kernel_len == 0)
        return err_set(e, STATUS_ERROR, "not a Linux kernel: the file is empty");
    if (load_all(c, m, out, e) < 0) {
        free(out->vmlinux);
        out->vmlinux = NULL;
        out->vmlinux_len = 0;
        return -1;
    }
    return 0;
}
