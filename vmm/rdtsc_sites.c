#include "vmm/rdtsc_sites.h"

#include <string.h>

#include <Zydis/Zydis.h>

#include "vmm/boot_elf.h"

/*
 * Decoding starts at SYNC_STARTS places, SYNC_STEP apart, the nearest SYNC_AHEAD before the site.
 * They reach back this far because a long run of one instruction (alternatives hold 500 bytes of
 * wrmsr, 0F 30) decodes out of step just as happily; the step is odd to try both alignments.
 */
#define SYNC_AHEAD  40u
#define SYNC_STEP   29u
#define SYNC_STARTS 16u

/* Real kernels have a few hundred candidates; bounds the work on made-up ones. */
#define CANDIDATES_MAX (1u << 20)

/* How far behind its immediate the write to CR4 may be. */
#define CR4_WRITE_WITHIN 64u

/* How much of cpu_init() is searched. */
#define CPU_INIT_WITHIN 512u

#define CR4_TSD     0x4u
#define CR4_PAE     0x20u
#define CR4_EARLY   0x10f0u /* PSE, PAE, MCE, PGE and LA57: what start-up code knows of */
#define CR4_CLEARED 0xfu    /* VME, PVI, TSD and DE: what cpu_init() turns off */
#define NOT_AN_ELF  "cannot look for RDTSC in the kernel"

static ZydisDecoder new_decoder(void)
{
    ZydisDecoder decoder;

    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return decoder;
}

static bool decode(const ZydisDecoder *decoder, const uint8_t *code, size_t len,
                   ZydisDecodedInstruction *insn)
{
    return ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(decoder, NULL, code, len, insn));
}

/* Does decoding that starts at `from` come to an instruction that starts at `site`? */
static bool decoding_reaches(const ZydisDecoder *decoder, const uint8_t *text, size_t len,
                             size_t from, size_t site)
{
    ZydisDecodedInstruction insn;

    while (from < site)
        from += decode(decoder, text + from, len - from, &insn) ? insn.length : 1;
    return from == site;
}

static bool is_instruction_start(const ZydisDecoder *decoder, const uint8_t *text, size_t len,
                                 size_t site)
{
    unsigned reached = 0;

    for (unsigned i = 0; i < SYNC_STARTS; i++) {
        size_t ahead = SYNC_AHEAD + i * SYNC_STEP;

        /* What the text begins with is an instruction for certain. */
        reached += decoding_reaches(decoder, text, len, site > ahead ? site - ahead : 0, site);
    }
    return reached > SYNC_STARTS / 2;
}

size_t rdtsc_sites_find(const uint8_t *text, size_t len, uint64_t va, struct rdtsc_site *out,
                        size_t max)
{
    ZydisDecoder decoder = new_decoder();
    size_t count = 0, candidates = 0;

    for (size_t i = 0; i + 2 <= len && count < max && candidates < CANDIDATES_MAX; i++) {
        if (text[i] != 0x0f)
            continue;

        bool rdtscp = i + 3 <= len && text[i + 1] == 0x01 && text[i + 2] == 0xf9;

        if (text[i + 1] != 0x31 && !rdtscp)
            continue;
        candidates++;
        if (is_instruction_start(&decoder, text, len, i))
            out[count++] = (struct rdtsc_site){.va = va + i, .offset = i, .rdtscp = rdtscp};
    }
    return count;
}

int rdtsc_sites_in_elf(const void *vmlinux, size_t len, struct rdtsc_site *out, size_t max,
                       size_t *count, struct err *e)
{
    struct elf_view elf;
    struct elf_extent code;
    unsigned position = 0;

    *count = 0;
    if (elf_open(&elf, vmlinux, len, NOT_AN_ELF, e) < 0)
        return -1;
    while (*count < max && elf_next_code(&elf, &position, &code)) {
        struct rdtsc_site *found = out + *count;
        size_t n =
            rdtsc_sites_find(elf.bytes + code.offset, code.len, code.va, found, max - *count);

        for (size_t i = 0; i < n; i++) {
            found[i].pa = code.pa ? code.pa + found[i].offset : 0;
            found[i].offset += code.offset;
        }
        *count += n;
    }
    return 0;
}

/*
 * Follow straight-line code from after the instruction with the immediate: it must come to
 * `mov %rcx,%cr4` and, when the immediate is a mask in EDX, pass `and %edx,%ecx` before.
 */
static bool reaches_cr4_write(const ZydisDecoder *decoder, const uint8_t *code, size_t len,
                              bool keep_mask)
{
    bool masked = !keep_mask;
    size_t at = 0;

    if (len > CR4_WRITE_WITHIN)
        len = CR4_WRITE_WITHIN;
    while (at < len) {
        ZydisDecodedInstruction insn;

        if (!decode(decoder, code + at, len - at, &insn))
            return false;
        if (insn.length == 3 && memcmp(code + at, "\x0f\x22\xe1", 3) == 0)
            return masked;
        if (insn.length == 2 && memcmp(code + at, "\x21\xd1", 2) == 0)
            masked = true;
        if (insn.meta.category == ZYDIS_CATEGORY_RET ||
            insn.meta.category == ZYDIS_CATEGORY_UNCOND_BR ||
            insn.meta.category == ZYDIS_CATEGORY_CALL)
            return false;
        at += insn.length;
    }
    return false;
}

/* The length of the opcode in front of an immediate that may go to CR4, or 0. */
static size_t cr4_opcode(const uint8_t *code, bool *keep_mask)
{
    *keep_mask = code[0] == 0xba;           /* mov $imm32,%edx */
    if (code[0] == 0x81 && code[1] == 0xc9) /* or $imm32,%ecx */
        return 2;
    return code[0] == 0xb9 || *keep_mask ? 1 : 0; /* mov $imm32,%ecx */
}

static size_t cr4_sites_find(const ZydisDecoder *decoder, const uint8_t *text, size_t len,
                             struct cr4_site *out, size_t max)
{
    size_t count = 0;

    for (size_t i = 0; i + 6 <= len && count < max; i++) {
        bool keep_mask;
        size_t opcode = cr4_opcode(text + i, &keep_mask);
        uint32_t bits;

        if (opcode == 0)
            continue;
        memcpy(&bits, text + i + opcode, sizeof(bits));
        if (!(bits & CR4_PAE) || (bits & ~(CR4_EARLY | CR4_TSD)))
            continue;

        size_t next = i + opcode + sizeof(bits);

        if (reaches_cr4_write(decoder, text + next, len - next, keep_mask) &&
            is_instruction_start(decoder, text, len, i))
            out[count++] = (struct cr4_site){.kind = keep_mask ? CR4_BITS_KEPT : CR4_BITS_SET,
                                             .va = i,
                                             .offset = i + opcode,
                                             .patched = bits | CR4_TSD};
    }
    return count;
}

/* In cpu_init(), `mov $(VME|PVI|TSD|DE),%edi; call cr4_clear_bits`; at most one. */
static size_t cr4_clear_find(const uint8_t *text, size_t len, uint64_t va, const struct kallsyms *k,
                             struct cr4_site *out)
{
    static const uint8_t code[] = {0xbf, CR4_CLEARED, 0, 0, 0, 0xe8};
    uint64_t cpu_init = kallsyms_address(k, "cpu_init");
    uint64_t clear = kallsyms_address(k, "cr4_clear_bits");

    if (cpu_init < va || cpu_init - va >= len || clear == 0)
        return 0;

    size_t start = cpu_init - va;

    len = len - start < CPU_INIT_WITHIN ? len : start + CPU_INIT_WITHIN;
    for (size_t i = start; len - i >= sizeof(code) + 4; i++) {
        int32_t distance;

        if (memcmp(text + i, code, sizeof(code)) != 0)
            continue;
        memcpy(&distance, text + i + sizeof(code), sizeof(distance));
        if (va + i + sizeof(code) + 4 + (uint64_t)(int64_t)distance != clear)
            continue;
        *out = (struct cr4_site){
            .kind = CR4_BITS_CLEARED, .va = i, .offset = i + 1, .patched = CR4_CLEARED & ~CR4_TSD};
        return 1;
    }
    return 0;
}

int cr4_sites_in_elf(const void *vmlinux, size_t len, const struct kallsyms *k,
                     struct cr4_site out[CR4_SITES_MAX], size_t *count, struct err *e)
{
    ZydisDecoder decoder = new_decoder();
    struct elf_view elf;
    struct elf_extent code;
    unsigned position = 0;

    *count = 0;
    if (elf_open(&elf, vmlinux, len, NOT_AN_ELF, e) < 0)
        return -1;
    while (*count < CR4_SITES_MAX && elf_next_code(&elf, &position, &code)) {
        const uint8_t *text = elf.bytes + code.offset;
        struct cr4_site *found = out + *count;
        size_t max = CR4_SITES_MAX - *count;
        size_t n = cr4_sites_find(&decoder, text, code.len, found, max);

        if (k && n < max)
            n += cr4_clear_find(text, code.len, code.va, k, found + n);
        for (size_t i = 0; i < n; i++) {
            found[i].va += code.va;
            found[i].pa = code.pa ? code.pa + found[i].offset : 0;
            found[i].offset += code.offset;
        }
        *count += n;
    }
    return 0;
}
