#include "boot/code_sites.h"

#include <string.h>

#include <Zydis/Zydis.h>

#include "base/hidden_ports.h"
#include "base/x86.h"
#include "boot/boot_elf.h"
#include "boot/code_gap.h"

/*
 * Decoding starts at SYNC_STARTS places, SYNC_STEP apart, the nearest SYNC_AHEAD before the site.
 * They reach back this far because a long run of one instruction (alternatives hold 500 bytes of
 * wrmsr, 0F 30) decodes out of step just as happily; the step is odd to try both alignments.
 */
#define SYNC_AHEAD  40u
#define SYNC_STEP   29u
#define SYNC_STARTS 16u

#define REX   0x40u
#define REX_R 0x4u
#define REX_B 0x1u
#define NOP   0x90u

static ZydisDecoder new_decoder(void)
{
    ZydisDecoder decoder;

    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_MINIMAL, ZYAN_TRUE); /* lengths only */
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

bool code_starts_at(const uint8_t *code, size_t len, size_t at)
{
    const ZydisDecoder decoder = new_decoder();

    return is_instruction_start(&decoder, code, len, at);
}

/* What the bytes at `code` may be, if an instruction starts there; its length, or 0. *rex: its REX
 * prefix, or 0: one that does not stand last has no effect (SDM 2, 2.2.1). No prefix but LOCK,
 * which raises #UD or makes CR0 CR8, changes anything in these instructions. */
static uint8_t candidate(const uint8_t *code, size_t len, enum code_site_kind *kind, uint8_t *rex)
{
    if (len > CODE_SITE_BYTES) /* a longer instruction raises #GP */
        len = CODE_SITE_BYTES;
    const size_t at = prefixes(code, len, true);
    *rex = at && is_rex(code[at - 1]) ? code[at - 1] : 0;
    const uint8_t *op = code + at;
    if (len < at + 2 || op[0] != 0x0f)
        return 0;
    if (op[1] == 0x31) {
        *kind = SITE_RDTSC;
        return (uint8_t)(at + 2);
    }
    if (len < at + 3)
        return 0;
    if (op[1] == 0x01 && op[2] == 0xf9) {
        *kind = SITE_RDTSCP;
        return (uint8_t)(at + 3);
    }
    if ((op[1] != 0x20 && op[1] != 0x22) || (op[2] & 0x38) != 0x20 || *rex & REX_R)
        return 0;
    *kind = op[1] == 0x20 ? SITE_CR4_READ : SITE_CR4_WRITE;
    return (uint8_t)(at + 3);
}

/* The instruction with the opcode at `opcode`, with whatever prefixes it has. */
static bool find_site(const ZydisDecoder *decoder, const uint8_t *code, size_t len, size_t opcode,
                      struct code_site *site, unsigned *effort)
{
    uint8_t rex;

    for (size_t at = opcode;; at--) {
        const uint8_t site_len = candidate(code + at, len - at, &site->kind, &rex);
        if (!site_len || !*effort || !--*effort)
            return false;
        if (is_instruction_start(decoder, code, len, at)) {
            site->offset = at;
            site->len = site_len;
            return true;
        }
        if (!at || !is_prefix(code[at - 1], true))
            return false;
    }
}

size_t code_sites_find(const uint8_t *code, size_t len, uint64_t va, struct code_site *out,
                       size_t max, unsigned *effort)
{
    const ZydisDecoder decoder = new_decoder();
    size_t count = 0;

    for (size_t i = 0; i + 2 <= len && count < max && *effort; i++) {
        struct code_site site = {.va = va};

        if (code[i] != 0x0f || !find_site(&decoder, code, len, i, &site, effort))
            continue;
        site.va += site.offset;
        out[count++] = site;
    }
    return count;
}

unsigned code_calls_find(const uint8_t *code, size_t len, uint64_t va, uint64_t target, size_t *out,
                         unsigned max, unsigned *effort)
{
    const ZydisDecoder decoder = new_decoder();
    unsigned count = 0;

    for (size_t i = 0; i + CODE_REL_BYTES <= len && count < max; i++) {
        if (code[i] != CODE_CALL || code_target(code + i, va + i) != target)
            continue;
        if (!*effort || !--*effort)
            break;
        if (is_instruction_start(&decoder, code, len, i))
            out[count++] = i;
    }
    return count;
}

int code_sites_in_elf(const void *vmlinux, size_t len, struct code_site *out, size_t max,
                      size_t *count, bool *all, struct err *e)
{
    unsigned effort = CODE_SITE_EFFORT;
    struct elf_view elf;
    struct elf_extent code;
    unsigned position = 0;

    *count = 0;
    if (elf_open(&elf, vmlinux, len, "cannot look for RDTSC in the kernel", e) < 0)
        return -1;
    while (*count < max && elf_next_code(&elf, &position, &code)) {
        struct code_site *found = out + *count;
        size_t n = code_sites_find(elf.bytes + code.offset, code.len, code.va, found, max - *count,
                                   &effort);

        for (size_t i = 0; i < n; i++) {
            found[i].pa = code.pa ? code.pa + found[i].offset : 0;
            found[i].offset += code.offset;
        }
        *count += n;
    }
    *all = effort && *count < max;
    return 0;
}

size_t code_site_patch(const struct code_site *site, const uint8_t code[CODE_SITE_BYTES],
                       uint8_t patch[CODE_SITE_BYTES])
{
    enum code_site_kind kind;
    uint8_t rex;

    if (candidate(code, site->len, &kind, &rex) != site->len || kind != site->kind)
        return 0;
    memset(patch, NOP, site->len);
    switch (kind) {
    case SITE_RDTSC:
        patch[0] = 0xe5; /* in $imm8,%eax */
        patch[1] = RDTSC_PORT;
        return site->len;
    case SITE_RDTSCP:
        return 0;
    case SITE_CR4_READ:
    case SITE_CR4_WRITE:
        break;
    }
    /* out %eax,$imm8 with a REX prefix that does nothing: its low bits are the register's number.
     */
    patch[0] = (uint8_t)(REX | (rex & REX_B ? 8 : 0) | (code[site->len - 1] & 7));
    patch[1] = 0xe7;
    patch[2] = kind == SITE_CR4_READ ? CR4_READ_PORT : CR4_WRITE_PORT;
    return site->len;
}
