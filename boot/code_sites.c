#include "boot/code_sites.h"

#include <string.h>

#include <Zydis/Zydis.h>

#include "base/hidden_ports.h"
#include "boot/boot_elf.h"

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

#define REX   0x40u
#define REX_R 0x4u
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

/* What the bytes at `code` may be, if an instruction starts there; its length, or 0. */
static uint8_t candidate(const uint8_t *code, size_t len, enum code_site_kind *kind)
{
    const bool rex = len > 0 && (code[0] & 0xf0) == REX;
    const uint8_t *op = code + rex;

    if (len < 2u + rex || op[0] != 0x0f)
        return 0;
    if (!rex && op[1] == 0x31) {
        *kind = SITE_RDTSC;
        return 2;
    }
    if (len < 3u + rex)
        return 0;
    if (!rex && op[1] == 0x01 && op[2] == 0xf9) {
        *kind = SITE_RDTSCP;
        return 3;
    }
    if ((op[1] != 0x20 && op[1] != 0x22) || (op[2] & 0xf8) != 0xe0 || (rex && code[0] & REX_R))
        return 0;
    *kind = op[1] == 0x20 ? SITE_CR4_READ : SITE_CR4_WRITE;
    return 3 + rex;
}

size_t code_sites_find(const uint8_t *code, size_t len, uint64_t va, struct code_site *out,
                       size_t max)
{
    const ZydisDecoder decoder = new_decoder();
    size_t count = 0, candidates = 0;

    for (size_t i = 0; i + 2 <= len && count < max && candidates < CANDIDATES_MAX; i++) {
        enum code_site_kind kind;
        uint8_t site_len;
        size_t at = i;

        if (code[i] != 0x0f || !(site_len = candidate(code + i, len - i, &kind)))
            continue;
        candidates++;
        if (!is_instruction_start(&decoder, code, len, at)) {
            /* It may be the rest of one with a REX prefix. */
            if (at-- == 0 || !(site_len = candidate(code + at, len - at, &kind)) ||
                !is_instruction_start(&decoder, code, len, at))
                continue;
        }
        out[count++] =
            (struct code_site){.kind = kind, .va = va + at, .offset = at, .len = site_len};
    }
    return count;
}

int code_sites_in_elf(const void *vmlinux, size_t len, struct code_site *out, size_t max,
                      size_t *count, struct err *e)
{
    struct elf_view elf;
    struct elf_extent code;
    unsigned position = 0;

    *count = 0;
    if (elf_open(&elf, vmlinux, len, "cannot look for RDTSC in the kernel", e) < 0)
        return -1;
    while (*count < max && elf_next_code(&elf, &position, &code)) {
        struct code_site *found = out + *count;
        size_t n = code_sites_find(elf.bytes + code.offset, code.len, code.va, found, max - *count);

        for (size_t i = 0; i < n; i++) {
            found[i].pa = code.pa ? code.pa + found[i].offset : 0;
            found[i].offset += code.offset;
        }
        *count += n;
    }
    return 0;
}

size_t code_site_patch(const struct code_site *site, const uint8_t code[CODE_SITE_BYTES],
                       uint8_t patch[CODE_SITE_BYTES])
{
    enum code_site_kind kind;

    if (candidate(code, site->len, &kind) != site->len || kind != site->kind)
        return 0;
    switch (kind) {
    case SITE_RDTSC:
        patch[0] = 0xe5; /* in $imm8,%eax */
        patch[1] = RDTSC_PORT;
        return 2;
    case SITE_RDTSCP:
        return 0;
    case SITE_CR4_READ:
    case SITE_CR4_WRITE:
        break;
    }
    /* out %eax,$imm8 with a REX prefix that does nothing: its low bits are the register's number.
     */
    const bool rex = site->len == 4;
    const uint8_t reg = (uint8_t)((rex && code[0] & 1 ? 8 : 0) | (code[site->len - 1] & 7));

    patch[0] = REX | reg;
    patch[1] = 0xe7;
    patch[2] = kind == SITE_CR4_READ ? CR4_READ_PORT : CR4_WRITE_PORT;
    patch[3] = NOP;
    return site->len;
}
