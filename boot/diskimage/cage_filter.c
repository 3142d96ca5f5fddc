#include "boot/diskimage/cage_filter.h"

#include <assert.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define X32_BIT 0x40000000u

/* Starting, memory, and looking at files that are open or whether they exist. Descriptors other
 * than the disk's are of files that were opened while the keeper still allowed it. */
static const uint16_t allowed[] = {
    SYS_close,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_stat,
    SYS_lstat,
    SYS_statx,
    SYS_statfs,
    SYS_access,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlink,
    SYS_readlinkat,
    SYS_getcwd,
    SYS_getdents64,
    SYS_mmap,
    SYS_mprotect,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_arch_prctl,
    SYS_set_tid_address,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_futex,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_getrandom,
    SYS_clock_gettime,
    SYS_gettimeofday,
    SYS_time,
    SYS_uname,
    SYS_sysinfo,
    SYS_getpid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
    SYS_sendmsg,
};
static const uint16_t asked[] = {SYS_openat, SYS_open, SYS_execve};

#define COUNT(list) (sizeof(list) / sizeof *(list))

struct filter {
    struct sock_filter code[192];
    unsigned short len;
};

static void put(struct filter *f, uint16_t code, uint8_t yes, uint8_t no, uint32_t k)
{
    assert(f->len < COUNT(f->code));
    f->code[f->len++] = (struct sock_filter)BPF_JUMP(code, k, yes, no);
}

static void put_load(struct filter *f, size_t offset)
{
    put(f, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

static void put_return(struct filter *f, uint32_t action)
{
    put(f, BPF_RET | BPF_K, 0, 0, action);
}

/* For each of these system calls: this action. */
static void put_calls(struct filter *f, const uint16_t *calls, size_t count, uint32_t action)
{
    for (size_t i = 0; i < count; i++) {
        put(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, calls[i]);
        put_return(f, action);
    }
}

/* The low half of an argument that is a descriptor: the kernel looks at no more of it. */
static void put_descriptor(struct filter *f, unsigned argument)
{
    put_load(f, offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t));
}

static void put_reading_and_writing(struct filter *f)
{
    /* read: of the disk by the keeper, else as it is */
    put(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_read);
    put_descriptor(f, 0);
    put(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, CAGE_DISK_FD);
    put_return(f, SECCOMP_RET_USER_NOTIF);
    put_return(f, SECCOMP_RET_ALLOW);
    /* pread64: of libraries, as the dynamic linker does; the disk's file is empty behind the keeper
     */
    put(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_pread64);
    put_descriptor(f, 0);
    put(f, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, CAGE_DISK_FD);
    put_return(f, SECCOMP_RET_ALLOW);
    put_return(f, SECCOMP_RET_ERRNO | EPERM);
    /* write: to standard output and standard error */
    put(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_write);
    put_descriptor(f, 0);
    put(f, BPF_JMP | BPF_JGT | BPF_K, 1, 0, STDERR_FILENO);
    put_return(f, SECCOMP_RET_ALLOW);
    put_return(f, SECCOMP_RET_ERRNO | EPERM);
}

int cage_filter_install(void)
{
    struct filter f = {.len = 0};

    put_load(&f, offsetof(struct seccomp_data, arch));
    put(&f, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AUDIT_ARCH_X86_64);
    put_return(&f, SECCOMP_RET_KILL_PROCESS);
    put_load(&f, offsetof(struct seccomp_data, nr));
    put(&f, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
    put_return(&f, SECCOMP_RET_KILL_PROCESS);
    put_calls(&f, asked, COUNT(asked), SECCOMP_RET_USER_NOTIF);
    put_calls(&f, allowed, COUNT(allowed), SECCOMP_RET_ALLOW);
    put_reading_and_writing(&f);
    put_return(&f, SECCOMP_RET_ERRNO | EPERM);

    const struct sock_fprog program = {.len = f.len, .filter = f.code};

    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &program);
}
