#include "vmm/machine/kernel_hooks.h"

#include "base/hidden_ports.h"
#include "vmm/machine/kexec.h"

static bool is_module(const struct machine *m, enum exit_kind kind, uint64_t at, uint64_t rip)
{
    return kind == EXIT_PIO_OUT && at == MODULE_PORT && m->kernel_code.module_hook &&
           rip == m->kernel_code.module_hook;
}

bool kernel_hook_exit(const struct machine *m, const struct vcpu *vcpu,
                      const struct vcpu_exit *exit)
{
    return is_module(m, exit->kind, exit->at, vcpu->regs->rip) || kexec_exit(m, vcpu, exit);
}

static void load_module(struct machine *m, struct vcpu *vcpu)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    if (!kernel_code_load_module(&m->vm.memory, sregs.cr3, vcpu->regs->rdi, vcpu->regs->rsi,
                                 &m->dma.dma))
        machine_doubt(m, "RDTSC in a module's code may not have been found: not all of that was "
                         "looked at");
}

void kernel_hook_serve(struct machine *m, struct vcpu *vcpu, const struct vcpu_exit *exit)
{
    if (is_module(m, exit->kind, exit->at, vcpu->regs->rip))
        load_module(m, vcpu);
    else
        kexec_serve(m, vcpu, exit);
}

void kernel_hook_go_on(struct machine *m, struct vcpu *vcpu, const struct sync_point *from)
{
    if (is_module(m, from->kind, from->at, from->regs[REGISTER_RIP]))
        load_module(m, vcpu);
}
