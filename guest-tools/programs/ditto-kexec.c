/*
 * ditto-kexec [-p] KERNEL INITRD COMMANDLINE: has the kernel load another one, by
 * kexec_file_load(), and starts it; with -p it is the one that a crash starts, and the kernel
 * crashes. Host state it would leak: RDTSC of the new kernel and of its decompressor.
 */
#include "common.h"

#include <fcntl.h>
#include <linux/kexec.h>
#include <linux/reboot.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        die(path);
    return fd;
}

static void crash(void)
{
    int fd = open("/proc/sysrq-trigger", O_WRONLY);

    if (fd < 0 || write(fd, "c", 1) != 1)
        die("/proc/sysrq-trigger");
}

int main(int argc, char **argv)
{
    const bool for_crash = argc == 5 && strcmp(argv[1], "-p") == 0;

    if (argc != 4 + for_crash) {
        fprintf(stderr, "usage: ditto-kexec [-p] KERNEL INITRD COMMANDLINE\n");
        return 2;
    }
    argv += for_crash;
    if (syscall(SYS_kexec_file_load, open_file(argv[1]), open_file(argv[2]), strlen(argv[3]) + 1,
                argv[3], for_crash ? KEXEC_FILE_ON_CRASH : 0) != 0)
        die("kexec_file_load");
    sync();
    if (for_crash)
        crash();
    else
        syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_KEXEC, NULL);
    die("the other kernel was not started");
}
