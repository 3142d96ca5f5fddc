/* replay/core_kernel.c, core_file.c and core_compressed.c: cores of made-up memory, read back by
 * the numbers of the ELF specification and of makedumpfile's, and what a hostile kernel says of
 * itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/x86.h"
#include "mmu/walk.h"
#include "replay/core_compressed.h"
#include "replay/core_file.h"
#include "tests/unit/random.h"

/* Some memory above 4 GiB, too. */
#define MEMORY   (MEMORY_HOLE_BASE + (64ull << 20))
#define ROOT     0x1800000ull
#define IMAGE    0xffffffff81000000ull
#define IMAGE_AT 0x1000000ull
#define DATA     (IMAGE + 0x900000)
#define INFO_AT  0x3000000ull
#define MAP      0xffff910000000000ull
#define STACK    0xffffc90000000000ull
#define TEXT     "OSRELEASE=6.1.0-made-up\nPAGESIZE=4096\n"

static struct guest_memory m;
static struct symbol_list symbols;
static struct core_kernel kernel;

static uint64_t *word(uint64_t gpa)
{
    return guest_memory_at(&m, gpa, 8);
}

static uint64_t *data(unsigned index)
{
    return word(DATA - IMAGE + IMAGE_AT + 8 * index);
}

static void name(uint64_t address, const char *text)
{
    struct symbol s = {.address = address, .type = 'D'};

    strcpy(s.name, text);
    assert_int_equal(symbol_list_add(&symbols, &s), 0);
}

/* The image at 16 MiB in pages of 2 MiB, and the first GiB of memory at MAP. */
static void make_tables(void)
{
    const uint64_t rw = PTE_PRESENT | PTE_WRITE;

    *word(ROOT + 511 * 8) = 0x1802000 | rw;
    *word(0x1802000 + 510 * 8) = 0x1803000 | rw;
    for (unsigned i = 0; i < 16; i++)
        *word(0x1803000 + (8 + i) * 8) = (IMAGE_AT + i * (2u << 20)) | rw | PTE_LARGE;
    *word(ROOT + (MAP >> 39 & 511) * 8) = 0x1804000 | rw;
    *word(0x1804000) = rw | PTE_LARGE;
    /* A stack of two pages, of which one is memory above 4 GiB; and a device. */
    *word(ROOT + (STACK >> 39 & 511) * 8) = 0x1805000 | rw;
    *word(0x1805000) = 0x1806000 | rw;
    *word(0x1806000) = 0x1807000 | rw;
    *word(0x1807008) = (MEMORY_HOLE_BASE - PAGE_BYTES) | rw;
    *word(0x1807010) = MEMORY_HIGH_BASE | rw;
    *word(0x1807018) = 0xfee00000 | rw;
}

/* CPU 0 runs the first task, CPU 1 that of PID 4321; there is a canary. */
static void make_tasks(void)
{
    uint64_t *task = data(0x1000 / 8), *other = task + 0x800 / 8, *by_cpu = data(0x4000 / 8);

    task[99] = 0xcafe;
    task[100] = task[101] = DATA + 0x1000;
    other[98] = 4321 | 4321ull << 32;
    by_cpu[0] = DATA + 0x5000;
    by_cpu[1] = DATA + 0x6000;
    *data((0x5000 + 0x40) / 8) = DATA + 0x1000;
    *data((0x6000 + 0x40) / 8) = DATA + 0x1800;
}

static int make(void **state)
{
    struct err e;

    (void)state;
    if (guest_memory_create(&m, MEMORY, &e) < 0)
        return -1;
    make_tables();
    name(IMAGE, "_text");
    name(IMAGE + ROOT - IMAGE_AT, "init_top_pgt");
    name(DATA, "page_offset_base");
    name(DATA + 8, "vmcoreinfo_data");
    name(DATA + 16, "vmcoreinfo_size");
    name(DATA + 24, "vmcoreinfo_note");
    name(DATA + 0x1000, "init_task");
    name(DATA + 0x4000, "__per_cpu_offset");
    name(0x40, "current_task");
    name(IMAGE + 0xa00123, "_end");
    make_tasks();
    *data(0) = MAP;
    *data(1) = MAP + INFO_AT;
    *data(2) = sizeof TEXT - 1;
    memcpy(word(INFO_AT), TEXT, sizeof TEXT);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    core_kernel_free(&kernel);
    guest_memory_destroy(&m);
    symbol_list_free(&symbols);
    return 0;
}

static void find(uint64_t root)
{
    core_kernel_free(&kernel);
    core_kernel_find(&kernel, &m, &symbols, &root, 1, 2);
}

static void assert_all_found(void)
{
    assert_null(kernel.without);
    assert_int_equal(kernel.direct_map, MAP);
    assert_int_equal(kernel.image.va, IMAGE);
    assert_int_equal(kernel.image.gpa, IMAGE_AT);
    assert_int_equal(kernel.image.bytes, 0xa01000);
    /* The last is what lies in the image's last large page and behind it. */
    assert_int_equal(kernel.mapped.count, 3);
    assert_int_equal(kernel.mapped.at[0].va, STACK + PAGE_BYTES);
    assert_int_equal(kernel.mapped.at[0].gpa, MEMORY_HOLE_BASE - PAGE_BYTES);
    assert_int_equal(kernel.mapped.at[1].va, STACK + 2 * PAGE_BYTES);
    assert_int_equal(kernel.mapped.at[1].bytes, PAGE_BYTES);
    assert_int_equal(kernel.mapped.at[2].va, IMAGE + 0xa00000);
    assert_int_equal(kernel.info_len, sizeof TEXT - 1);
    assert_memory_equal(kernel.info, TEXT, sizeof TEXT - 1);
}

/* ---- the kernel ---- */

static void test_what_the_kernel_says(void **state)
{
    (void)state;
    find(ROOT);
    assert_all_found();
    find(ROOT | PAGE_BYTES | 0x7); /* user code's root, with a PCID */
    assert_all_found();
    find(0x5000000); /* no table at all */
    assert_all_found();
    core_kernel_free(&kernel);
    core_kernel_find(&kernel, &m, &symbols, NULL, 0, 2);
    assert_all_found();
}

static void test_the_note(void **state)
{
    static const uint32_t head[3] = {sizeof "VMCOREINFO", sizeof TEXT - 1, 0};
    uint8_t *at = guest_memory_at(&m, INFO_AT + PAGE_BYTES, PAGE_BYTES);

    (void)state;
    *data(1) = 0;
    *data(3) = MAP + INFO_AT + PAGE_BYTES;
    memcpy(at, head, sizeof head);
    memcpy(at + 12, "VMCOREINFO", 11);
    memcpy(at + 24, TEXT, sizeof TEXT - 1);
    find(ROOT);
    assert_all_found();
    at[4] = 0xff; /* more than there is room for */
    at[5] = 0xff;
    find(ROOT);
    assert_string_equal(kernel.without, "what its kernel points to is none");
}

static void test_without(void **state)
{
    struct symbol_list none = {0};

    (void)state;
    core_kernel_find(&kernel, &m, &none, NULL, 0, 2);
    assert_string_equal(kernel.without, "the recording has no symbols of its kernel");
    assert_int_equal(kernel.direct_map, CORE_DIRECT_MAP);
    assert_int_equal(kernel.image.bytes, 0);

    *data(1) = *data(2) = 0;
    find(ROOT);
    assert_string_equal(kernel.without, "its kernel has not made it yet at this place");
    assert_int_equal(kernel.image.bytes, 0xa01000);

    symbols.count = 3;
    find(ROOT);
    assert_string_equal(kernel.without, "its kernel has none (CONFIG_CRASH_CORE)");

    *word(ROOT + 511 * 8) = 0;
    find(ROOT);
    assert_string_equal(kernel.without, "no page tables of its kernel are there at this place");
}

static void test_tasks(void **state)
{
    uint64_t *task = data(0x1000 / 8);

    (void)state;
    find(ROOT);
    assert_true(kernel.has_pids);
    assert_int_equal(kernel.pids[0], 0);
    assert_int_equal(kernel.pids[1], 4321);
    /* Without a canary. */
    memmove(task + 99, task + 100, 16);
    task[101] = 0;
    find(ROOT);
    assert_true(kernel.has_pids);
    assert_int_equal(kernel.pids[1], 4321);
    task[98] = task[97] = 1;
    find(ROOT);
    assert_false(kernel.has_pids);
    task[98] = 0;
    *data((0x6000 + 0x40) / 8) = UINT64_MAX - 8;
    find(ROOT);
    assert_false(kernel.has_pids);
}

static void test_hostile_pointers(void **state)
{
    static const uint64_t sizes[] = {0, 1, 10, CORE_INFO_MAX + 1, 1ull << 40, UINT64_MAX};
    static const uint64_t places[] = {1,   MAP + (1ull << 30) - 8, UINT64_MAX, UINT64_MAX - 8,
                                      MAP, 0x0000800000000000};

    (void)state;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        *data(2) = sizes[i];
        find(ROOT);
        assert_non_null(kernel.without);
        assert_int_equal(kernel.info_len, 0);
    }
    *data(2) = CORE_INFO_MAX;
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        *data(1) = *data(3) = places[i];
        find(ROOT);
        assert_string_equal(kernel.without, "what its kernel points to is none");
        assert_int_equal(kernel.info_len, 0);
    }
    *data(0) = UINT64_MAX << 30;
    find(ROOT);
    assert_int_equal(kernel.direct_map, CORE_DIRECT_MAP);
    *data(0) = MAP + 8;
    find(ROOT);
    assert_int_equal(kernel.direct_map, CORE_DIRECT_MAP);
    /* The image in two pieces, or beyond memory. */
    *word(0x1803000 + 9 * 8) += 4u << 20;
    find(ROOT);
    assert_int_equal(kernel.image.bytes, 0);
    *word(0x1803000 + 8 * 8) = 0xbfe00000 | PTE_PRESENT | PTE_LARGE;
    find(ROOT);
    assert_int_equal(kernel.image.bytes, 0);
}

static void test_any_memory(void **state)
{
    uint64_t x = 1;

    (void)state;
    for (unsigned round = 0; round < rounds(3000); round++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        *word(ROOT + (x >> 58 & 4) * 4096 + (x >> 40 & 511) * 8) = x * 0x9e3779b97f4a7c15ull;
        *data(x >> 33 & 3) ^= 1ull << (x >> 20 & 63);
        find(x >> 12);
        assert_true(kernel.info_len <= CORE_INFO_MAX && kernel.mapped.count <= CORE_MAPPED_MAX);
        for (size_t i = 0; i < kernel.mapped.count; i++)
            assert_non_null(
                guest_memory_at(&m, kernel.mapped.at[i].gpa, kernel.mapped.at[i].bytes));
        assert_true(!kernel.image.bytes ||
                    guest_memory_at(&m, kernel.image.gpa, kernel.image.bytes) != NULL);
    }
}

static void test_any_symbols(void **state)
{
    static const uint64_t ends[] = {0, 1, IMAGE, IMAGE - 1, IMAGE + (1ull << 30), UINT64_MAX};

    (void)state;
    for (unsigned i = 0; i < sizeof ends / sizeof *ends; i++) {
        symbols.at[symbols.count - 1].address = ends[i];
        find(ROOT);
        assert_int_equal(kernel.image.bytes, 0);
    }
    for (size_t i = 0; i < symbols.count; i++)
        symbols.at[i].address = UINT64_MAX - i;
    find(ROOT);
    assert_non_null(kernel.without);
}

/* ---- the file ---- */

static const uint8_t *file;
static size_t file_len;

static uint64_t get(uint64_t at, unsigned bytes)
{
    uint64_t value = 0;

    assert_true(at + bytes <= file_len);
    memcpy(&value, file + at, bytes);
    return value;
}

/* Program header `index`: p_type, p_offset, p_vaddr, p_paddr, p_filesz. */
static void assert_range(unsigned index, uint64_t va, uint64_t gpa, uint64_t bytes)
{
    const uint64_t at = 64 + 56 * index, offset = get(at + 8, 8);

    assert_int_equal(get(at, 4), 1);
    assert_int_equal(get(at + 16, 8), va);
    assert_int_equal(get(at + 24, 8), gpa);
    assert_int_equal(get(at + 32, 8), bytes);
    assert_int_equal(get(at + 40, 8), bytes);
    assert_int_equal(get(at + 48, 8), 0); /* p_align */
    assert_int_equal(offset % PAGE_BYTES, 0);
    assert_true(offset + bytes <= file_len);
    for (uint64_t page = 0; page < bytes; page += 8191 * PAGE_BYTES)
        assert_memory_equal(file + offset + page, guest_memory_at(&m, gpa + page, PAGE_BYTES),
                            PAGE_BYTES);
}

/* The note at *at is this one; its content's place, and *at behind it. */
static uint64_t take_note(uint64_t *at, const char *note, unsigned type, unsigned bytes)
{
    const uint64_t name_bytes = get(*at, 4), content = *at + 12 + (name_bytes + 3) / 4 * 4;

    assert_int_equal(name_bytes, strlen(note) + 1);
    assert_int_equal(get(*at + 4, 4), bytes);
    assert_int_equal(get(*at + 8, 4), type);
    assert_string_equal((const char *)file + *at + 12, note);
    *at = content + (bytes + 3) / 4 * 4;
    return content;
}

static void check_notes(const struct vcpu_state *cpus, uint64_t at, uint64_t len)
{
    const uint64_t end = at + len;

    for (unsigned i = 0; i < 2; i++) {
        const uint64_t status = take_note(&at, "CORE", 1, 336);
        assert_int_equal(get(status + 32, 4), i ? 4321 : 0);      /* pr_pid */
        assert_int_equal(get(status + 112, 8), cpus[i].regs.r15); /* the first register */
        assert_int_equal(get(status + 112 + 80, 8), cpus[i].regs.rax);
        assert_int_equal(get(status + 112 + 128, 8), cpus[i].regs.rip);
        assert_int_equal(get(status + 112 + 136, 8), cpus[i].sregs.cs.selector);
        assert_int_equal(get(status + 112 + 144, 8), 0x246); /* without RF */
        assert_int_equal(get(status + 112 + 152, 8), cpus[i].regs.rsp);
        assert_int_equal(get(status + 112 + 176, 8), cpus[i].sregs.gs.base);
    }
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t qemu = take_note(&at, "QEMU", 0, 440);
        assert_int_equal(get(qemu, 4), 1);
        assert_int_equal(get(qemu + 4, 4), 440);
        assert_int_equal(get(qemu + 8, 8), cpus[i].regs.rax);
        assert_int_equal(get(qemu + 8 + 16 * 8, 8), cpus[i].regs.rip);
        assert_int_equal(get(qemu + 152, 4), 0x10);
        assert_int_equal(get(qemu + 152 + 8, 4), 0xa09b00); /* 64-bit code */
        assert_int_equal(get(qemu + 440 - 24, 8), ROOT);    /* CR3 */
    }
    assert_memory_equal(file + take_note(&at, "VMCOREINFO", 0, sizeof TEXT - 1), TEXT,
                        sizeof TEXT - 1);
    assert_int_equal(at, end);
}

static int write_core(const struct vcpu_state *cpus, bool compressed, struct core_output *out,
                      struct err *e)
{
    const struct core core = {.memory = &m, .cpus = cpus, .cpu_count = 2, .kernel = &kernel};

    return compressed ? core_compressed_write(&core, out, e) : core_file_write(&core, out, e);
}

static void write_file(const struct vcpu_state *cpus, bool compressed)
{
    struct core_output out = {.fd = memfd_create("core", MFD_CLOEXEC), .path = "x"};
    struct stat st;
    struct err e;

    assert_int_equal(write_core(cpus, compressed, &out, &e), 0);
    assert_int_equal(fstat(out.fd, &st), 0);
    file_len = (size_t)st.st_size;
    assert_true((uint64_t)st.st_blocks * 512 < out.bytes + (compressed ? 32u << 20 : 1u << 20));
    assert_true(out.bytes % PAGE_BYTES == 0 && out.bytes < 64 * PAGE_BYTES);
    file = mmap(NULL, file_len, PROT_READ, MAP_SHARED, out.fd, 0);
    assert_ptr_not_equal(file, MAP_FAILED);
    close(out.fd);
}

static void make_cpus(struct vcpu_state cpus[2])
{
    for (unsigned i = 0; i < 2; i++) {
        uint64_t *r = (uint64_t *)&cpus[i].regs;
        for (unsigned j = 0; j < sizeof cpus[i].regs / 8; j++)
            r[j] = 0x1000 * (i + 1) + j;
        cpus[i].regs.rflags = 0x246 | RFLAGS_RF;
        cpus[i].sregs.cs = (struct kvm_segment){
            .selector = 0x10, .type = 11, .s = 1, .present = 1, .l = 1, .g = 1};
        cpus[i].sregs.gs.base = 0xffff888000000000 + i;
        cpus[i].sregs.cr3 = ROOT;
    }
}

static void test_a_core(void **state)
{
    static struct vcpu_state cpus[2];

    (void)state;
    make_cpus(cpus);
    *word(0) = 1;
    *word(MEMORY_HOLE_BASE - 8) = 2;
    *word(MEMORY_HIGH_BASE) = 3;
    *word(MEMORY_HIGH_BASE + (64u << 20) - 8) = 4;
    *word(0x5000000) = 0; /* touched, and zero */
    find(ROOT);
    write_file(cpus, false);
    assert_memory_equal(file, "\177ELF\2\1\1", 7);
    assert_int_equal(get(16, 2), 4);  /* ET_CORE */
    assert_int_equal(get(18, 2), 62); /* x86-64 */
    assert_int_equal(get(56, 2), 7);  /* e_phnum */
    assert_int_equal(get(64, 4), 4);
    check_notes(cpus, get(64 + 8, 8), get(64 + 32, 8));
    assert_range(1, MAP, 0, MEMORY_HOLE_BASE);
    assert_range(2, MAP + MEMORY_HIGH_BASE, MEMORY_HIGH_BASE, 64u << 20);
    assert_range(3, IMAGE, IMAGE_AT, 0xa01000);
    assert_range(4, STACK + PAGE_BYTES, MEMORY_HOLE_BASE - PAGE_BYTES, PAGE_BYTES);
    assert_range(5, STACK + 2 * PAGE_BYTES, MEMORY_HIGH_BASE, PAGE_BYTES);
    assert_range(6, IMAGE + 0xa00000, IMAGE_AT + 0xa00000, 0x1600000);
    assert_int_equal(get(file_len - 8, 8), 4);
    munmap((void *)(uintptr_t)file, file_len);
}

/* The page of this number among those of RAM is what memory has. */
static void assert_packed(uint64_t descriptors, uint64_t index, const void *page)
{
    const uint64_t at = descriptors + index * 24, len = get(at + 8, 4);
    uint8_t unpacked[PAGE_BYTES];
    uLongf bytes = sizeof unpacked;

    if (get(at + 12, 4) == 0) {
        assert_int_equal(len, PAGE_BYTES);
        assert_memory_equal(file + get(at, 8), page, PAGE_BYTES);
        return;
    }
    assert_int_equal(get(at + 12, 4), 1); /* by zlib */
    assert_int_equal(uncompress(unpacked, &bytes, file + get(at, 8), len), Z_OK);
    assert_int_equal(bytes, PAGE_BYTES);
    assert_memory_equal(unpacked, page, PAGE_BYTES);
}

static void test_a_compressed_core(void **state)
{
    static struct vcpu_state cpus[2];
    const uint64_t pages = MEMORY / PAGE_BYTES, hole = MEMORY_HOLE_BASE / PAGE_BYTES;
    const uint64_t end = (MEMORY_HIGH_BASE + (64u << 20)) / PAGE_BYTES;
    uint8_t noise[PAGE_BYTES];
    uint64_t seed = RANDOM_SEED;

    (void)state;
    make_cpus(cpus);
    for (unsigned i = 0; i < PAGE_BYTES; i++)
        noise[i] = (uint8_t)(random_next(&seed) >> 32);
    memcpy(word(0x5000000), noise, PAGE_BYTES); /* nothing makes that smaller */
    *word(MEMORY_HIGH_BASE + (64u << 20) - 8) = 4;
    find(ROOT);
    write_file(cpus, true);
    assert_memory_equal(file, "KDUMP   ", 8);
    assert_int_equal(get(8, 4), 6);
    assert_string_equal((const char *)file + 12, "Linux");
    assert_string_equal((const char *)file + 12 + 2 * 65, "6.1.0-made-up");
    assert_int_equal(get(428, 4), PAGE_BYTES);
    assert_int_equal(get(440, 4), end); /* max_mapnr */
    assert_int_equal(get(460, 4), 2);
    assert_int_equal(get(PAGE_BYTES, 8), IMAGE_AT - (IMAGE - 0xffffffff80000000));
    assert_memory_equal(file + get(PAGE_BYTES + 32, 8), TEXT, sizeof TEXT - 1);
    assert_int_equal(get(PAGE_BYTES + 40, 8), sizeof TEXT - 1);
    check_notes(cpus, get(PAGE_BYTES + 48, 8), get(PAGE_BYTES + 56, 8));
    assert_int_equal(get(PAGE_BYTES + 96, 8), end);

    const uint64_t bitmap = (1 + get(432, 4)) * PAGE_BYTES, blocks = get(436, 4);
    const uint64_t descriptors = bitmap + blocks * PAGE_BYTES;
    assert_int_equal(blocks, 2 * ((end + 8 * PAGE_BYTES - 1) / (8 * PAGE_BYTES)));
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t at = bitmap + i * blocks / 2 * PAGE_BYTES;
        assert_int_equal(get(at, 1), 0xff);
        assert_int_equal(get(at + hole / 8 - 1, 1), 0xff);
        assert_int_equal(get(at + hole / 8, 1), 0);
        assert_int_equal(get(at + MEMORY_HIGH_BASE / PAGE_BYTES / 8 - 1, 1), 0);
        assert_int_equal(get(at + end / 8 - 1, 1), 0xff);
    }
    assert_packed(descriptors, 0x5000, noise);
    assert_packed(descriptors, IMAGE_AT / PAGE_BYTES, word(IMAGE_AT));
    assert_packed(descriptors, 0x1803, word(0x1803000));
    assert_packed(descriptors, pages - 1, word(MEMORY_HIGH_BASE + (64u << 20) - PAGE_BYTES));
    assert_packed(descriptors, 0x6000, word(0x6000000));
    assert_int_equal(get(descriptors + 0x6000 * 24, 8), get(descriptors + 0x6001 * 24, 8));
    assert_true(get(descriptors + 0x5000 * 24, 8) >= descriptors + pages * 24);
    munmap((void *)(uintptr_t)file, file_len);
}

struct told {
    uint64_t done;
    unsigned times;
    atomic_int stop;
    unsigned stop_at;
};

static void tell(void *opaque, uint64_t done)
{
    struct told *told = opaque;

    assert_true(done >= told->done);
    told->done = done;
    if (++told->times == told->stop_at)
        told->stop = 1;
}

/* More pieces than there are threads that write. */
static void test_many_pieces(void **state)
{
    static struct vcpu_state cpus[2];
    const uint64_t from = 0x4000000, bytes = 96u << 20;
    struct told told = {0};
    struct core_output out = {.path = "x", .stop = &told.stop, .progress = tell, .opaque = &told};
    struct err e;

    (void)state;
    find(ROOT);
    for (uint64_t at = from; at < from + bytes; at += PAGE_BYTES)
        *word(at) = at % (3 * PAGE_BYTES) ? at : 0;
    out.fd = memfd_create("core", MFD_CLOEXEC);
    assert_int_equal(write_core(cpus, false, &out, &e), 0);
    assert_true(out.bytes > bytes / 2 && out.bytes < bytes);
    assert_true(told.times > 12 && told.done >= from + bytes);
    uint8_t page[PAGE_BYTES];
    const off_t start = lseek(out.fd, 0, SEEK_END) - (off_t)MEMORY;
    for (uint64_t at = from; at < from + bytes; at += PAGE_BYTES) {
        assert_int_equal(pread(out.fd, page, sizeof page, start + (off_t)at), sizeof page);
        assert_memory_equal(page, word(at), PAGE_BYTES);
    }
    close(out.fd);
    told = (struct told){.stop_at = 5};
    out.fd = memfd_create("core", MFD_CLOEXEC);
    assert_int_equal(write_core(cpus, false, &out, &e), -1);
    assert_string_equal(e.text, "interrupted before x was written");
    assert_in_range(told.times, 5, 6); /* the other thread's piece */
    close(out.fd);
}

static void test_errors(void **state)
{
    static const atomic_int stop = 1;
    static struct vcpu_state cpus[2];
    struct err e;

    (void)state;
    find(ROOT);
    for (int compressed = 0; compressed < 2; compressed++) {
        struct core_output out = {.fd = -1, .path = "x"};
        assert_int_equal(write_core(cpus, compressed, &out, &e), -1);
        assert_string_equal(e.text, "cannot write to x: Bad file descriptor");
        out.fd = memfd_create("core", MFD_CLOEXEC);
        out.stop = &stop;
        assert_int_equal(write_core(cpus, compressed, &out, &e), -1);
        assert_string_equal(e.text, "interrupted before x was written");
        close(out.fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_the_kernel_says, make, drop),
        cmocka_unit_test_setup_teardown(test_the_note, make, drop),
        cmocka_unit_test_setup_teardown(test_without, make, drop),
        cmocka_unit_test_setup_teardown(test_tasks, make, drop),
        cmocka_unit_test_setup_teardown(test_hostile_pointers, make, drop),
        cmocka_unit_test_setup_teardown(test_any_memory, make, drop),
        cmocka_unit_test_setup_teardown(test_any_symbols, make, drop),
        cmocka_unit_test_setup_teardown(test_a_core, make, drop),
        cmocka_unit_test_setup_teardown(test_a_compressed_core, make, drop),
        cmocka_unit_test_setup_teardown(test_many_pieces, make, drop),
        cmocka_unit_test_setup_teardown(test_errors, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
