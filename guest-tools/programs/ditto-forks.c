/*
 * ditto-forks N: forks N children, each of which dirties its own copy of a page and exits with a
 * code the parent checks; every eighth one executes a program instead. The bench load for page
 * tables and copy-on-write; host state it would leak: scheduling order and process start times.
 */
#include "common.h"

#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    unsigned long forks = count_argument(argc == 2 ? argv[1] : NULL, 10000000, "ditto-forks N");
    long long start = now_ms();
    uint64_t sum = CHECKSUM_START;
    static volatile unsigned char page[4096];

    for (unsigned long i = 0; i < forks; i++) {
        int status, expected = i % 8 == 7 ? 0 : (int)(i & 0x7f);
        pid_t child = fork();

        if (child < 0)
            die("fork");
        if (child == 0) {
            if (i % 8 == 7) {
                execl("/bin/true", "true", (char *)NULL);
                _exit(127);
            }
            page[i % sizeof(page)] = (unsigned char)i;
            _exit(page[i % sizeof(page)] & 0x7f);
        }
        if (waitpid(child, &status, 0) != child)
            die("waitpid");
        if (!WIFEXITED(status) || WEXITSTATUS(status) != expected || page[i % sizeof(page)] != 0) {
            fprintf(stderr, "ditto-forks: child %lu ended with status %#x\n", i, (unsigned)status);
            return 1;
        }
        sum = checksum(sum, &status, sizeof(status));
    }
    printf("forks: %lu children, sum %016llx, %lld ms\n", forks, (unsigned long long)sum,
           now_ms() - start);
    return 0;
}
