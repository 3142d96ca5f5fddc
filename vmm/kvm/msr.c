#include "vmm/kvm/msr.h"

#include <errno.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>

int msr_filter_install(int vm_fd, struct err *e)
{
    struct kvm_enable_cap cap = {
        .cap = KVM_CAP_X86_USER_SPACE_MSR,
        /* The filter does not reach the x2APIC's MSRs: they exit because KVM has no APIC. */
        .args = {KVM_MSR_EXIT_REASON_FILTER | KVM_MSR_EXIT_REASON_INVAL},
    };
    /* One bitmap a range, bit n = first + n; a set bit lets KVM handle the access. */
    uint8_t sysenter = 0x07, pat = 0x01, syscall_bits = 0x1f, bases = 0x07;
    const uint32_t both = KVM_MSR_FILTER_READ | KVM_MSR_FILTER_WRITE;
    struct kvm_msr_filter filter = {
        .flags = KVM_MSR_FILTER_DEFAULT_DENY,
        .ranges =
            {
                {.flags = both, .base = 0x174, .nmsrs = 3, .bitmap = &sysenter},
                {.flags = both, .base = 0x277, .nmsrs = 1, .bitmap = &pat},
                {.flags = both, .base = 0xc0000080, .nmsrs = 5, .bitmap = &syscall_bits},
                {.flags = both, .base = 0xc0000100, .nmsrs = 3, .bitmap = &bases},
            },
    };

    if (ioctl(vm_fd, KVM_ENABLE_CAP, &cap) < 0 || ioctl(vm_fd, KVM_X86_SET_MSR_FILTER, &filter) < 0)
        return err_set(e, STATUS_ERROR,
                       "this KVM has no MSR filter (%s); Linux 5.10 or later is needed",
                       strerror(errno));
    return 0;
}

/* Constants of the model, as a quiet machine of AMD's would have them after its firmware ran. */
static const struct {
    uint32_t index;
    uint64_t value;
} model[] = {
    {0x0000001b, 0},          /* IA32_APIC_BASE: no local APIC */
    {0x0000008b, 0x01000000}, /* microcode patch level */
    {0xc0010015, 1ull << 24}, /* HWCR: TscFreqSel */
    {0xc001001f, 0},          /* NB_CFG */
    {0xc0010055, 0},          /* interrupt pending message: no C1E */
    {0xc0010010, 0},          /* SYSCFG */
    {0xc0010117, 0},          /* VM_HSAVE_PA */
    {0xc0011029, 0x2},        /* DE_CFG: LFENCE is serialising */
    {0xc001102a, 0},          /* BU_CFG2 */
};

bool msr_model_read(uint32_t index, uint64_t *value)
{
    for (unsigned i = 0; i < sizeof model / sizeof *model; i++) {
        if (model[i].index == index) {
            *value = model[i].value;
            return true;
        }
    }
    *value = 0;
    return false;
}

bool msr_model_write(uint32_t index, uint64_t value)
{
    uint64_t unused;

    (void)value;
    return index == MSR_IA32_TSC || msr_model_read(index, &unused);
}
