/* vmm/points/site.c: what may be stepped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/x86.h"
#include "mmu/insn.h"
#include "mmu/walk.h"
#include "vmm/points/site.h"

#define CR3  0x1000u
#define CODE 0x5000u

static struct guest_memory m;

/* The first 2 MiB, where they are. */
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
    const struct kvm_regs regs = {.rip = CODE, .rsp = 0x8000, .rax = 0x8000, .rflags = 2};
    struct insn insn;

    memcpy(guest_memory_at(&m, CODE, len), code, len);
    assert_true(insn_decode(&m, &sregs, CODE, &insn));
    return site_can_step(&m, &insn, &regs, &sregs);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fpu_that_is_not_there, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
