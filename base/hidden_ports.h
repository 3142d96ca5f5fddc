#ifndef BASE_HIDDEN_PORTS_H
#define BASE_HIDDEN_PORTS_H

/*
 * I/O ports that no device has: an instruction of the guest's that has to exit is replaced by an
 * access to one of them when its code is loaded (boot/code_sites.h, boot/kernel_code.h). Recordings
 * hold these exits, so a port never gets another meaning.
 */
#define RDTSC_PORT     0xe1 /* IN of 4 bytes: RDTSC (E5 ib has the length of 0F 31) */
#define CR4_WRITE_PORT 0xe2 /* OUT: MOV to CR4 (vmm/kvm/cr4.h); */
#define CR4_READ_PORT  0xe3 /* ... from CR4 */
#define MODULE_PORT    0xe4 /* OUT: the kernel has put together a module (boot/kernel_code.h) */
/* OUT: the kernel is about to start another one; that one is about to run (vmm/machine/kexec.h). */
#define KEXEC_PORT       0xe5
#define KEXEC_ENTRY_PORT 0xe6

#endif
