/*
 * ditto-syscalls N: N thousand rounds of cheap system calls (getppid, and now and then a pipe
 * write and read, an lseek and an fstat). The bench load for kernel entries; host state it would
 * leak: anything the kernel reads on its entry path, such as RDTSC for stack offset randomisation.
 */
#include "common.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    unsigned long rounds = count_argument(argc == 2 ? argv[1] : NULL, 100000000,
                                          "ditto-syscalls N (thousands of rounds)") *
                           1000;
    long long start = now_ms();
    uint64_t sum = CHECKSUM_START;
    int pipe_ends[2];

    if (pipe(pipe_ends) != 0)
        die("pipe");
    for (unsigned long i = 0; i < rounds; i++) {
        long parent = syscall(SYS_getppid);

        sum = checksum(sum, &parent, 1);
        if (i % 16 == 0) {
            unsigned long echo = 0;

            if (write(pipe_ends[1], &i, sizeof(i)) != sizeof(i) ||
                read(pipe_ends[0], &echo, sizeof(echo)) != sizeof(echo) || echo != i)
                die("pipe gave back something else");
            sum = checksum(sum, &echo, sizeof(echo));
        }
        if (i % 64 == 0) {
            struct stat status;

            if (fstat(pipe_ends[0], &status) != 0 || lseek(pipe_ends[0], 0, SEEK_SET) != -1)
                die("fstat or lseek on a pipe");
        }
    }
    printf("syscalls: %lu rounds, sum %016llx, %lld ms\n", rounds, (unsigned long long)sum,
           now_ms() - start);
    return 0;
}
