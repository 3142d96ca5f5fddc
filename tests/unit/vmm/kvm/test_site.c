/* vmm/kvm/site.c: what may be stepped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/x86.h"
#include "mmu/insn.h"
#include "mmu/walk.h"
#include "vmm/kvm/site.h"

#define CR3  0x1000u
#define CODE 0x5000u
/* No memory, mapped at 2 MiB. */
#define DEVICE    0xd0000000u
#define DEVICE_VA 0x200000u

static struct guest_memory m;

/* The first 2 MiB, where they are, and a device behind them. */
static int make(void **state)
{
    const uint64_t user = PTE_PRESENT | PTE_WRITE | PTE_USER,
                   entry[] = {0x2000 | user, 0x3000 | user, PTE_LARGE | user};
    struct err e;

    (void)state;
    if (guest_memory_create(&m, 16 << 20, &e) < 0)
        return -1;
    for (unsigned i = 0; i < 3; i++)
        memcpy(guest_memory_at(&m, CR3 + i * PAGE_BYTES, sizeof *entry), &entry[i], sizeof *entry);
    const uint64_t device = DEVICE | user | PTE_LARGE;
    memcpy(guest_memory_at(&m, CR3 + 2 * PAGE_BYTES + sizeof device, sizeof device), &device,
           sizeof device);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    guest_memory_destroy(&m);
    return 0;
}

static bool can_step(uint64_t cr0, const void *code, size_t len)
{
    const struct kvm_sregs sregs = {
        .cr0 = CR0_PG | cr0, .cr3 = CR3, .efer = EFER_LMA, .cs = {.l = 1, .dpl = 3}, .ss.dpl = 3};
    const struct kvm_regs regs = {
        .rip = CODE, .rsp = 0x8000, .rax = 0x8000, .rdx = DEVICE_VA, .rflags = 2};
    struct insn insn;

    memcpy(guest_memory_at(&m, CODE, len), code, len);
    assert_true(insn_decode(&m, &sregs, CODE, &insn));
    return site_can_step(&m, &insn, &regs, &sregs);
}

/* The address of the memory operand. */
static uint64_t address_of(const char *code, size_t len, uint64_t rcx)
{
    const struct kvm_sregs sregs = {.efer = EFER_LMA, .cr3 = CR3, .cr0 = CR0_PG, .cs = {.l = 1}};
    const struct kvm_regs regs = {.rax = 0x8005, .rbx = 0x9000, .rcx = rcx};
    struct insn insn;
    uint64_t va = 0;

    memcpy(guest_memory_at(&m, CODE, len), code, len);
    assert_true(insn_decode(&m, &sregs, CODE, &insn));
    for (unsigned i = 0; i < insn.info.operand_count; i++)
        if (insn.operands[i].type == ZYDIS_OPERAND_TYPE_MEMORY)
            assert_true(insn_address(&insn, &insn.operands[i], &regs, &sregs, &va));
    return va;
}

static void test_addresses_with_a_part_that_is_hidden(void **state)
{
    (void)state;
    assert_int_equal(address_of("\x48\x0f\xa3\x08", 4, 0), 0x8005); /* bt %rcx, (%rax) */
    assert_int_equal(address_of("\x48\x0f\xa3\x08", 4, 130), 0x8005 + 16);
    assert_int_equal(address_of("\x48\x0f\xa3\x08", 4, -1ull), 0x8005 - 8);
    assert_int_equal(address_of("\x0f\xab\x08", 3, 0xffffffff), 0x8005 - 4); /* bts %ecx */
    assert_int_equal(address_of("\x0f\xab\x08", 3, 1ull << 32 | 63), 0x8005 + 4);
    assert_int_equal(address_of("\x66\x0f\xbb\x08", 4, 0x8000), 0x8005 - 0x1000); /* btc %cx */
    assert_int_equal(address_of("\x48\x0f\xba\x20\x3f", 5, 0), 0x8005); /* bt $63, (%rax) */
    assert_int_equal(address_of("\xd7", 1, 0), 0x9005);                 /* xlat */
}

/* Where the kernel gives a program the FPU when it asks for it, the first instruction that does is
 * an exception. */
static void test_fpu_that_is_not_there(void **state)
{
    static const struct {
        const char *code;
        size_t len;
        bool fpu;
    } insn[] = {
        {"\x0f\x28\xc1", 3, true},  /* movaps %xmm1, %xmm0 */
        {"\x0f\x29\x00", 3, true},  /* movaps %xmm0, (%rax) */
        {"\x0f\xfc\xc1", 3, true},  /* paddb %mm1, %mm0 */
        {"\x0f\x77", 2, true},      /* emms */
        {"\x0f\xae\x10", 3, true},  /* ldmxcsr (%rax) */
        {"\x0f\xae\x00", 3, true},  /* fxsave (%rax) */
        {"\xd9\xe8", 2, true},      /* fld1 */
        {"\xda\xc1", 2, true},      /* fcmovb %st(1), %st */
        {"\xdd\x00", 2, true},      /* fldl (%rax) */
        {"\xff\xc0", 2, false},     /* inc %eax */
        {"\x48\x63\xd0", 3, false}, /* movslq %eax, %rdx */
    };

    (void)state;
    for (unsigned i = 0; i < sizeof insn / sizeof *insn; i++) {
        assert_true(can_step(0, insn[i].code, insn[i].len));
        assert_int_equal(can_step(CR0_TS, insn[i].code, insn[i].len), !insn[i].fpu);
        assert_int_equal(can_step(CR0_EM, insn[i].code, insn[i].len), !insn[i].fpu);
    }
}

/* What is behind a STI in kernels, whatever its registers are. */
static void test_behind_a_sti(void **state)
{
    static const struct {
        const char *code;
        size_t len;
        bool hidden;
    } insn[] = {
        {"\x0f\x1f\x44\x18\x00", 5, true}, /* nopl (%rax,%rbx) */
        {"\xf4", 1, true},                 /* hlt */
        {"\xfa", 1, true},                 /* cli */
        {"\xc3", 1, true},                 /* ret */
        {"\xe4\xe1", 2, true},             /* in $0xe1, %al */
        {"\x0f\x32", 2, true},             /* rdmsr */
        {"\x0f\x01\xf8", 3, true},         /* swapgs */
        {"\xe8\x00\x00\x00\x00", 5, true}, /* call */
        {"\x0f\x22\xd8", 3, true},         /* mov %rax, %cr3 */
        {"\x9c", 1, false},                /* pushf */
        {"\x9d", 1, false},                /* popf */
        {"\x48\xcf", 2, false},            /* iretq */
        {"\xcc", 1, false},                /* int3 */
        {"\x0f\x0b", 2, false},            /* ud2 */
        {"\x48\x8b\x03", 3, false},        /* mov (%rbx), %rax: not mapped */
        {"\x48\x89\x02", 3, true},         /* mov %rax, (%rdx): a device */
        {"\x8e\xd0", 2, false},            /* mov %eax, %ss */
    };
    const struct kvm_sregs sregs = {.cr0 = CR0_PG, .cr3 = CR3, .efer = EFER_LMA, .cs = {.l = 1}};
    const struct kvm_regs regs = {
        .rip = CODE, .rsp = 0x8000, .rbx = 1ull << 40, .rdx = DEVICE_VA, .rflags = 2};

    (void)state;
    for (unsigned i = 0; i < sizeof insn / sizeof *insn; i++) {
        struct insn decoded;
        memcpy(guest_memory_at(&m, CODE, insn[i].len), insn[i].code, insn[i].len);
        assert_true(insn_decode(&m, &sregs, CODE, &decoded));
        if (site_hides_step(&m, &decoded, &regs, &sregs) != insn[i].hidden)
            fail_msg("instruction %u", i);
    }
}

static void test_what_may_be_an_exception(void **state)
{
    static const struct {
        const char *code;
        size_t len;
        bool can;
    } insn[] = {
        {"\x0f\x28\x40\x10", 4, true},      /* movaps 16(%rax), %xmm0 */
        {"\x0f\x28\x40\x08", 4, false},     /* movaps 8(%rax), %xmm0 */
        {"\x48\x89\x02", 3, false},         /* mov %rax, (%rdx): a device */
        {"\xc5\xf8\x58\xc1", 4, false},     /* vaddps %xmm1, %xmm0, %xmm0 */
        {"\xc4\xe2\x78\xf2\xc1", 5, false}, /* andn %ecx, %eax, %eax */
        {"\x0f\x0f\xc1\x9e", 4, false},     /* pfadd %mm1, %mm0 */
    };

    (void)state;
    for (unsigned i = 0; i < sizeof insn / sizeof *insn; i++)
        assert_int_equal(can_step(0, insn[i].code, insn[i].len), insn[i].can);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fpu_that_is_not_there, make, drop),
        cmocka_unit_test_setup_teardown(test_what_may_be_an_exception, make, drop),
        cmocka_unit_test_setup_teardown(test_behind_a_sti, make, drop),
        cmocka_unit_test_setup_teardown(test_addresses_with_a_part_that_is_hidden, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
