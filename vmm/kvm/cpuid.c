#include "vmm/kvm/cpuid.h"

#include <assert.h>
#include <errno.h>
#include <linux/kvm.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>

/* CPUID.1:EDX and its AMD twin in 8000_0001:EDX share these bits. */
enum {
    EDX_FPU = 1 << 0,
    EDX_VME = 1 << 1,
    EDX_DE = 1 << 2,
    EDX_PSE = 1 << 3,
    EDX_MSR = 1 << 5,
    EDX_PAE = 1 << 6,
    EDX_CX8 = 1 << 8,
    EDX_APIC = 1 << 9,
    EDX_SEP = 1 << 11, /* SYSCALL in 8000_0001 */
    EDX_PGE = 1 << 13,
    EDX_CMOV = 1 << 15,
    EDX_PAT = 1 << 16,
    EDX_PSE36 = 1 << 17,
    EDX_CLFLUSH = 1 << 19,
    EDX_MMX = 1 << 23,
    EDX_FXSR = 1 << 24,
    EDX_SSE = 1 << 25,
    EDX_SSE2 = 1 << 26,
    EDX_HTT = 1 << 28,
};
#define EDX_SHARED                                                                                 \
    (EDX_FPU | EDX_VME | EDX_DE | EDX_PSE | EDX_MSR | EDX_PAE | EDX_CX8 | EDX_SEP | EDX_PGE |      \
     EDX_CMOV | EDX_PAT | EDX_PSE36 | EDX_MMX | EDX_FXSR)

enum {
    ECX_SSE3 = 1 << 0,
    ECX_SSSE3 = 1 << 9,
    ECX_CX16 = 1 << 13,
    ECX_SSE41 = 1 << 19,
    ECX_SSE42 = 1 << 20,
    ECX_X2APIC = 1 << 21,
    ECX_POPCNT = 1 << 23,
};
#define ECX_HYPERVISOR (1u << 31)
#define ECX_CMP_LEGACY (1u << 1) /* in 8000_0001: the logical CPUs are cores, not threads */
#define EAX_ARAT       (1u << 2) /* in leaf 6: the APIC timer never stops */

/* The signature is of AMD's family 0x14: of all families the one for which Linux has the fewest
 * quirks and mitigations. */

#define TEXT4(a, b, c, d)                                                                          \
    ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

static void put_text(struct kvm_cpuid_entry2 *leaf, const char text[16])
{
    memcpy(&leaf->eax, text, 4);
    memcpy(&leaf->ebx, text + 4, 4);
    memcpy(&leaf->ecx, text + 8, 4);
    memcpy(&leaf->edx, text + 12, 4);
}

/* Leaf 0xb: one level of the topology in each subleaf. */
enum { LEVEL_NONE, LEVEL_THREAD, LEVEL_CORE };
static void topology_leaf(struct kvm_cpuid_entry2 *leaf, unsigned number, unsigned id_bits,
                          unsigned cpus, unsigned level, unsigned apic_id)
{
    *leaf = (struct kvm_cpuid_entry2){
        .function = 0xb,
        .index = number,
        .flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
        .eax = id_bits,
        .ebx = cpus,
        .ecx = number | level << 8,
        .edx = apic_id,
    };
}

int cpuid_install_ditto_v1(int vcpu_fd, unsigned cpu_index, unsigned cpu_count, struct err *e)
{
    static const char brand[48] = "dittovm virtual CPU, model ditto-v1";
    struct {
        struct kvm_cpuid2 head;
        struct kvm_cpuid_entry2 leaf[32];
    } cpuid = {0};
    const bool smp = cpu_count > 1;
    const uint32_t apic = smp ? EDX_APIC : 0;
    unsigned n = 0, core_bits = 0;

    while (1u << core_bits < cpu_count)
        core_bits++;
#define LEAF(number, a, b, c, d)                                                                   \
    cpuid.leaf[n++] = (struct kvm_cpuid_entry2){                                                   \
        .function = (number), .eax = (a), .ebx = (b), .ecx = (c), .edx = (d)}

    LEAF(0, smp ? 0xb : 7, TEXT4('A', 'u', 't', 'h'), TEXT4('c', 'A', 'M', 'D'),
         TEXT4('e', 'n', 't', 'i'));
    LEAF(1, CPUID_SIGNATURE, cpu_index << 24 | cpu_count << 16 | 8 << 8,
         ECX_SSE3 | ECX_SSSE3 | ECX_CX16 | ECX_SSE41 | ECX_SSE42 | ECX_POPCNT | ECX_HYPERVISOR |
             (smp ? ECX_X2APIC : 0),
         EDX_SHARED | EDX_CLFLUSH | EDX_SSE | EDX_SSE2 | apic | (smp ? EDX_HTT : 0));
    for (unsigned leaf = 2; leaf <= (smp ? 10 : 7); leaf++)
        LEAF(leaf, leaf == 6 && smp ? EAX_ARAT : 0, 0, 0, 0);
    if (smp) {
        topology_leaf(&cpuid.leaf[n++], 0, 0, 1, LEVEL_THREAD, cpu_index);
        topology_leaf(&cpuid.leaf[n++], 1, core_bits, cpu_count, LEVEL_CORE, cpu_index);
        topology_leaf(&cpuid.leaf[n++], 2, 0, 0, LEVEL_NONE, cpu_index);
    }
    LEAF(0x40000000, 0x40000000, TEXT4('D', 'i', 't', 't'), TEXT4('o', 'V', 'M', ' '),
         TEXT4('v', '1', 0, 0));
    LEAF(0x80000000, 0x80000008, TEXT4('A', 'u', 't', 'h'), TEXT4('c', 'A', 'M', 'D'),
         TEXT4('e', 'n', 't', 'i'));
    LEAF(0x80000001, CPUID_SIGNATURE, 0, 1 /* LAHF */ | (smp ? ECX_CMP_LEGACY : 0),
         EDX_SHARED | apic | 1u << 20 /* NX */ | 1u << 29 /* LM */);
    for (unsigned i = 0; i < 3; i++) {
        LEAF(0x80000002 + i, 0, 0, 0, 0);
        put_text(&cpuid.leaf[n - 1], brand + 16 * i);
    }
    LEAF(0x80000005, 0xff08ff08, 0xff20ff20, 0x20080140,
         0x20080140);                               /* L1: 32 KiB, 64-byte lines */
    LEAF(0x80000006, 0, 0x42004200, 0x02008140, 0); /* L2: 512 KiB */
    LEAF(0x80000007, 0, 0, 0, 0);
    LEAF(0x80000008, 39 | 48 << 8, 0, (cpu_count - 1) | core_bits << 12, 0);
#undef LEAF
    assert(n <= sizeof cpuid.leaf / sizeof *cpuid.leaf);
    cpuid.head.nent = n;
    if (ioctl(vcpu_fd, KVM_SET_CPUID2, &cpuid) < 0)
        return err_set(e, STATUS_ERROR, "KVM refuses the ditto-v1 CPU model: %s", strerror(errno));
    return 0;
}
