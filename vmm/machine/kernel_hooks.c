#include "vmm/machine/kernel_hooks.h"

#include "base/hidden_ports.h"
#include "vmm/machine/kexec.h"

static bool is_module(const struct machine *m, const struct vcpu *vcpu,
                      const struct vcpu_exit *exit)
{
    return exit->kind == EXIT_PIO_OUT && exit->at == MODULE_PORT && m->kernel_code.module_hook &&
           vcpu->regs->rip == m->kernel_code.module_hook;
}

bool kernel_hook_exit(const struct machine *m, const struct vcpu *vcpu,
                      const struct vcpu_exit *exit)
{
    return is_module(m, vcpu, exit) || kexec_exit(m, vcpu, exit);
}

void kernel_hook_serve(struct machine *m, struct vcpu *vcpu, const struct vcpu_exit *exit)
{
    if (is_module(m, vcpu, exit))
        kernel_hook_module(m, vcpu);
    else
        kexec_serve(m, vcpu, exit);
}

void kernel_hook_module(struct machine *m, struct vcpu *vcpu)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    if (!kernel_code_load_module(&m->vm.memory, sregs.cr3, vcpu->regs->rdi, vcpu->regs->rsi,
                                 &m->dma.dma))
        machine_doubt(m, "RDTSC in a module's code may not have been found: not all of that was "
                         "looked at");
}
