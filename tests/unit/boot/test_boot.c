#include <asm/bootparam.h>
#include <elf.h>
#include <lz4.h>
#include <lzma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "boot/boot.h"
#include "boot/boot_bzimage.h"
#include "tests/unit/random.h"

#define MIB      (1ull << 20)
#define LOAD_AT  0x1000000ull
#define CODE_LEN 5000u
#define BSS_LEN  3000u
#define SETUP    2560u /* the boot sector and four more */

static struct guest_memory memory;

static int make_memory(void **state)
{
    struct err e;

    (void)state;
    return guest_memory_create(&memory, 64 * MIB, &e);
}

static int drop_memory(void **state)
{
    (void)state;
    guest_memory_destroy(&memory);
    return 0;
}

/* A vmlinux of one segment of counted bytes and some bss. */
static struct bytes make_vmlinux(void)
{
    struct bytes b = {0};
    Elf64_Ehdr h = {.e_type = ET_EXEC,
                    .e_machine = EM_X86_64,
                    .e_entry = LOAD_AT + 64,
                    .e_phoff = sizeof(h),
                    .e_phnum = 1,
                    .e_phentsize = sizeof(Elf64_Phdr)};
    Elf64_Phdr p = {.p_type = PT_LOAD,
                    .p_flags = PF_R | PF_X,
                    .p_offset = sizeof(h) + sizeof(p),
                    .p_vaddr = 0xffffffff81000000,
                    .p_paddr = LOAD_AT,
                    .p_filesz = CODE_LEN,
                    .p_memsz = CODE_LEN + BSS_LEN};

    memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64;
    h.e_ident[EI_DATA] = ELFDATA2LSB;
    bytes_put(&b, &h, sizeof(h));
    bytes_put(&b, &p, sizeof(p));
    for (unsigned i = 0; i < CODE_LEN; i++)
        bytes_put_u8(&b, (uint8_t)(i * 31 >> 3));
    return b;
}

static void compress_gzip(struct bytes *out, const struct bytes *in)
{
    z_stream z = {.next_in = in->data, .avail_in = (uInt)in->len};

    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    bytes_reserve(out, in->len + 1000);
    z.next_out = out->data + out->len;
    z.avail_out = (uInt)in->len + 1000;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out->len += z.total_out;
    deflateEnd(&z);
}

static void compress_xz(struct bytes *out, const struct bytes *in)
{
    size_t end = out->len;

    bytes_reserve(out, in->len + 1000);
    assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC32, NULL, in->data, in->len,
                                             out->data, &end, out->len + in->len + 1000),
                     LZMA_OK);
    out->len = end;
    bytes_put_u32(out, (uint32_t)in->len);
}

static void compress_zstd(struct bytes *out, const struct bytes *in)
{
    bytes_reserve(out, in->len + 1000);

    size_t n = ZSTD_compress(out->data + out->len, in->len + 1000, in->data, in->len, 9);

    assert_false(ZSTD_isError(n));
    out->len += n;
    bytes_put_u32(out, (uint32_t)in->len);
}

static void compress_lz4(struct bytes *out, const struct bytes *in)
{
    char block[20000];
    int n = LZ4_compress_default((const char *)in->data, block, (int)in->len, sizeof(block));

    assert_true(n > 0);
    bytes_put_u32(out, 0x184c2102);
    bytes_put_u32(out, (uint32_t)n);
    bytes_put(out, block, (size_t)n);
    bytes_put_u32(out, (uint32_t)in->len);
}

static void compress_bzip2(struct bytes *out, const struct bytes *in)
{
    (void)in;
    bytes_put(out, "BZh91AY&SY..........", 20);
}

typedef void (*compressor)(struct bytes *out, const struct bytes *in);

static struct bytes make_bzimage(compressor compress)
{
    struct setup_header header = {.setup_sects = SETUP / 512 - 1,
                                  .boot_flag = 0xaa55,
                                  .jump = 0x66eb,
                                  .header = 0x53726448,
                                  .version = 0x020f,
                                  .kernel_version = 0x600 - 0x200,
                                  .loadflags = LOADED_HIGH,
                                  .initrd_addr_max = 0x7fffffff,
                                  .kernel_alignment = 0x200000,
                                  .xloadflags = XLF_KERNEL_64,
                                  .cmdline_size = 100,
                                  .payload_offset = 48,
                                  .pref_address = LOAD_AT,
                                  .init_size = 0x200000};
    struct bytes vmlinux = make_vmlinux(), b = {0};

    bytes_reserve(&b, SETUP + 48);
    memset(b.data, 0, SETUP + 48);
    memcpy(b.data + 0x600, "9.8.7-test #1", 14);
    b.len = SETUP + 48;
    compress(&b, &vmlinux);
    header.payload_length = (uint32_t)(b.len - SETUP - 48);
    memcpy(b.data + 0x1f1, &header, sizeof(header));
    bytes_free(&vmlinux);
    return b;
}

static int load(const struct bytes *kernel, const char *line, size_t initrd_len,
                struct boot_state *out, struct err *e)
{
    static const uint8_t initrd[8 << 20] = {'i', 'n', 'i', 't'};
    struct boot_config c = {.kernel = kernel->data,
                            .kernel_len = kernel->len,
                            .initrd = initrd,
                            .initrd_len = initrd_len,
                            .command_line = line,
                            .acpi_rsdp = 0xe0000};

    memset(e, 0, sizeof(*e));
    return boot_load(&c, &memory, out, e);
}

static const struct boot_params *zero_page(const struct boot_state *s)
{
    return guest_memory_at(&memory, s->rsi, sizeof(struct boot_params));
}

static void loads_every_compression(void **state)
{
    static const compressor all[] = {compress_gzip, compress_xz, compress_zstd, compress_lz4};
    struct bytes vmlinux = make_vmlinux();

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        struct bytes image = make_bzimage(all[i]);
        struct boot_state s;
        struct err e;

        memset(guest_memory_at(&memory, LOAD_AT, MIB), 0xee, MIB);
        assert_int_equal(load(&image, "quiet", 5000, &s, &e), 0);
        assert_int_equal(s.rip, LOAD_AT + 64);
        assert_int_equal(s.vmlinux_len, vmlinux.len);
        assert_memory_equal(s.vmlinux, vmlinux.data, vmlinux.len);
        assert_string_equal(s.version, "9.8.7-test #1");

        const uint8_t *code = guest_memory_at(&memory, LOAD_AT, CODE_LEN + BSS_LEN + 1);

        assert_memory_equal(code, vmlinux.data + vmlinux.len - CODE_LEN, CODE_LEN);
        for (unsigned k = 0; k < BSS_LEN; k++)
            assert_int_equal(code[CODE_LEN + k], 0);
        assert_int_equal(code[CODE_LEN + BSS_LEN], 0xee);
        free(s.vmlinux);
        bytes_free(&image);
    }
    bytes_free(&vmlinux);
}

static void zero_page_describes_the_machine(void **state)
{
    struct bytes image = make_bzimage(compress_gzip);
    struct boot_state s;
    struct err e;

    (void)state;
    assert_int_equal(load(&image, "console=ttyS0 quiet", 5000, &s, &e), 0);

    const struct boot_params *p = zero_page(&s);

    assert_int_equal(p->hdr.header, 0x53726448);
    assert_int_equal(p->hdr.type_of_loader, 0xff);
    assert_int_equal(p->hdr.kernel_alignment, 0x200000);
    assert_int_equal(p->acpi_rsdp_addr, 0xe0000);
    assert_string_equal(guest_memory_at(&memory, p->hdr.cmd_line_ptr, 20), "console=ttyS0 quiet");
    assert_int_equal(p->hdr.ramdisk_size, 5000);
    assert_int_equal(p->hdr.ramdisk_image, 62 * MIB + 2 * MIB - 8192);
    assert_int_equal(s.initrd_base, p->hdr.ramdisk_image);
    assert_memory_equal(guest_memory_at(&memory, s.initrd_base, 5), "init", 5);

    assert_int_equal(p->e820_entries, 4);
    assert_int_equal(p->e820_table[0].size, 0x9fc00);
    assert_int_equal(p->e820_table[1].addr, 0x9fc00);
    assert_int_equal(p->e820_table[1].type, 2);
    assert_int_equal(p->e820_table[2].addr, 0xe0000);
    assert_int_equal(p->e820_table[2].type, 2);
    assert_int_equal(p->e820_table[3].addr, MIB);
    assert_int_equal(p->e820_table[3].addr + p->e820_table[3].size, 64 * MIB);
    assert_int_equal(p->e820_table[3].type, 1);
    free(s.vmlinux);
    bytes_free(&image);
}

/* Walk the boot page tables as the processor would. */
static uint64_t translate(uint64_t cr3, uint64_t va)
{
    uint64_t entry = cr3;

    for (unsigned shift = 39; shift >= 21; shift -= 9) {
        const uint64_t *table = guest_memory_at(&memory, entry & ~0xfffull, PAGE_BYTES);

        assert_non_null(table);
        entry = table[va >> shift & 511];
        assert_true(entry & 1);
    }
    assert_true(entry & 0x80);
    return (entry & ~0x1fffffull) + (va & 0x1fffff);
}

static void page_tables_and_gdt_are_for_64_bit_mode(void **state)
{
    struct bytes image = make_bzimage(compress_gzip);
    struct boot_state s;
    struct err e;

    (void)state;
    assert_int_equal(load(&image, NULL, 0, &s, &e), 0);
    assert_int_equal(translate(s.cr3, 0), 0);
    assert_int_equal(translate(s.cr3, LOAD_AT + 123), LOAD_AT + 123);
    assert_int_equal(translate(s.cr3, 0xfee00010), 0xfee00010);
    assert_true(s.gdt_limit >= BOOT_DS + 7);

    const uint64_t *gdt = guest_memory_at(&memory, s.gdt_base, s.gdt_limit + 1u);

    assert_true(gdt[BOOT_CS / 8] >> 53 & 1);  /* L: 64-bit */
    assert_false(gdt[BOOT_CS / 8] >> 54 & 1); /* D must be clear then */
    assert_true(gdt[BOOT_CS / 8] >> 43 & 1);  /* code */
    assert_false(gdt[BOOT_DS / 8] >> 43 & 1);
    assert_int_equal(zero_page(&s)->hdr.ramdisk_size, 0);
    assert_int_equal(zero_page(&s)->hdr.ramdisk_image, 0);
    free(s.vmlinux);
    bytes_free(&image);
}

static void high_memory_is_in_the_map(void **state)
{
    struct bytes kernel = make_vmlinux();
    struct boot_config c = {.kernel = kernel.data, .kernel_len = kernel.len};
    struct guest_memory m;
    struct boot_state s;
    struct err e;

    (void)state;
    assert_int_equal(guest_memory_create(&m, 4096 * MIB, &e), 0);
    assert_int_equal(boot_load(&c, &m, &s, &e), 0);

    const struct boot_params *p = guest_memory_at(&m, s.rsi, sizeof(*p));

    assert_int_equal(p->e820_entries, 5);
    assert_int_equal(p->e820_table[3].size, 3071 * MIB);
    assert_int_equal(p->e820_table[4].addr, 4096 * MIB);
    assert_int_equal(p->e820_table[4].size, 1024 * MIB);
    assert_int_equal(p->hdr.header, 0x53726448);
    free(s.vmlinux);
    guest_memory_destroy(&m);
    bytes_free(&kernel);
}

static void refuses_with_advice(void **state)
{
    struct bytes image = make_bzimage(compress_gzip), bzip2 = make_bzimage(compress_bzip2);
    struct bytes text = {0};
    struct boot_state s;
    struct err e;
    char line[102];

    (void)state;
    bytes_put(&text, "#!/bin/sh\n", 10);
    assert_int_equal(load(&text, NULL, 0, &s, &e), -1);
    assert_non_null(strstr(e.text, "not a Linux kernel"));
    assert_null(s.vmlinux);
    assert_int_equal(load(&bzip2, NULL, 0, &s, &e), -1);
    assert_non_null(strstr(e.text, "bzip2"));

    memset(line, 'x', sizeof(line));
    line[101] = 0;
    assert_int_equal(load(&image, line, 0, &s, &e), -1);
    assert_non_null(strstr(e.text, "takes 100"));
    line[100] = 0;
    assert_int_equal(load(&image, line, 0, &s, &e), 0);
    free(s.vmlinux);

    struct guest_memory all = memory;

    memory.size = memory.low_size = 20 * MIB;
    assert_int_equal(load(&image, NULL, 8 * MIB, &s, &e), -1);
    assert_string_equal(e.text, "kernel and initrd need at least 26 MiB of memory; give --memory");
    memory.size = memory.low_size = 16 * MIB;
    assert_int_equal(load(&image, NULL, 0, &s, &e), -1);
    assert_non_null(strstr(e.text, "18 MiB"));
    memory = all;

    image.data[0x236] = 0; /* xloadflags */
    assert_int_equal(load(&image, NULL, 0, &s, &e), -1);
    assert_non_null(strstr(e.text, "64-bit"));
    image.data[0x236] = XLF_KERNEL_64;
    image.len -= 100;
    assert_int_equal(load(&image, NULL, 0, &s, &e), -1);
    assert_non_null(strstr(e.text, "cut short"));
    memset(image.data + 0x24c, 0, 4); /* payload_length */
    assert_int_equal(load(&image, NULL, 0, &s, &e), -1);
    assert_non_null(strstr(e.text, "not a Linux kernel"));
    bytes_free(&image);
    bytes_free(&bzip2);
    bytes_free(&text);
}

/* A vmlinux with a table of so many program headers or sections, all the same. */
static struct bytes make_tables(unsigned segments, unsigned sections)
{
    struct bytes b = make_vmlinux();
    Elf64_Ehdr h;
    Elf64_Phdr p;
    const Elf64_Shdr s = {.sh_type = SHT_PROGBITS,
                          .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                          .sh_addr = 0xffffffff81000000,
                          .sh_offset = sizeof h + sizeof p,
                          .sh_size = CODE_LEN};

    memcpy(&h, b.data, sizeof h);
    memcpy(&p, b.data + sizeof h, sizeof p);
    if (segments) {
        h.e_phoff = b.len;
        h.e_phnum = (Elf64_Half)segments;
    }
    for (unsigned i = 0; i < segments; i++)
        bytes_put(&b, &p, sizeof p);
    h.e_shoff = b.len;
    h.e_shnum = (Elf64_Half)sections;
    h.e_shentsize = sizeof s;
    for (unsigned i = 0; i < sections; i++)
        bytes_put(&b, &s, sizeof s);
    memcpy(b.data, &h, sizeof h);
    return b;
}

/* Files that would be looked at many times over: each segment for each section, or the same bytes.
 */
static void refuses_work_without_end(void **state)
{
    static const struct {
        unsigned segments, sections;
        const char *text;
    } cases[] = {
        {65535, 0, "65535 program headers"},
        {0, 65535, "code overlap"},
        {2, 0, "code overlap"},
        {2, 1, "segments overlap in memory"},
        {0, 1, NULL},
    };

    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes file = make_tables(cases[i].segments, cases[i].sections);
        struct boot_state s;
        struct err e = {0};
        const int rc = load(&file, NULL, 0, &s, &e);
        assert_int_equal(rc, cases[i].text ? -1 : 0);
        if (cases[i].text && !strstr(e.text, cases[i].text))
            fail_msg("'%s' lacks '%s'", e.text, cases[i].text);
        if (rc == 0)
            free(s.vmlinux);
        bytes_free(&file);
    }
}

static void survives_damaged_files(void **state)
{
    static const compressor all[] = {compress_gzip, compress_xz, compress_zstd, compress_lz4};

    (void)state;
    srand(1);
    for (unsigned i = 0; i < rounds(2000); i++) {
        struct bytes file = i % 5 == 4 ? make_vmlinux() : make_bzimage(all[i % 5]);
        /* Half the damage goes to where the headers are. */
        size_t where = i % 5 == 4 ? 0 : 0x1f1;
        struct boot_state s;
        struct err e;

        for (unsigned k = 0; k < 3; k++)
            file.data[k < 2 ? where + (size_t)rand() % 120 : (size_t)rand() % file.len] ^=
                (uint8_t)(1 << rand() % 8);
        if (i % 7 == 0)
            file.len = 1 + (size_t)rand() % file.len;
        if (load(&file, "quiet", 100, &s, &e) == 0) {
            assert_non_null(guest_memory_at(&memory, s.rip, 1));
            free(s.vmlinux);
        } else {
            assert_true(e.text[0]);
            assert_null(s.vmlinux);
        }
        bytes_free(&file);
    }
}

/* The kernel of a kexec says in guest memory how long it is. */
static void refuses_payloads_that_are_too_short(void **state)
{
    static const char *const magics[] = {"\x1f\x8b",
                                         "\xfd"
                                         "7zXZ",
                                         "\x28\xb5\x2f\xfd", "\x02\x21\x4c\x18",
                                         "\x7f"
                                         "ELF"};
    uint8_t *out;
    size_t out_len;
    struct err e;

    (void)state;
    for (unsigned i = 0; i < sizeof magics / sizeof magics[0]; i++)
        for (size_t len = 0; len < BOOT_PAYLOAD_MIN; len++) {
            uint8_t *payload = calloc(1, len ? len : 1); /* so that a sanitizer sees its end */
            assert_non_null(payload);
            memcpy(payload, magics[i], len < strlen(magics[i]) ? len : strlen(magics[i]));
            assert_int_equal(boot_decompress(payload, len, &out, &out_len, &e), -1);
            free(payload);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_every_compression),
        cmocka_unit_test(zero_page_describes_the_machine),
        cmocka_unit_test(page_tables_and_gdt_are_for_64_bit_mode),
        cmocka_unit_test(high_memory_is_in_the_map),
        cmocka_unit_test(refuses_with_advice),
        cmocka_unit_test(refuses_payloads_that_are_too_short),
        cmocka_unit_test(refuses_work_without_end),
        cmocka_unit_test(survives_damaged_files),
    };

    return cmocka_run_group_tests(tests, make_memory, drop_memory);
}
