/*
 * ditto-mark TEXT: names this moment in the recording of the machine (docs/control.md). It stands
 * alone, so that it can be taken into any guest:
 *     gcc -O2 -static -o ditto-mark ditto-mark.c
 * It needs root (or CAP_SYS_RAWIO). Exit status 0: it was said; 1: nobody listens there.
 */
#include <stdio.h>
#include <sys/io.h>

#define MARK_PORT    0xd170
#define MARK_PRESENT 0xd1

int main(int argc, char **argv)
{
    if (argc != 2 || !argv[1][0]) {
        fprintf(stderr, "usage: ditto-mark TEXT\n");
        return 2;
    }
    if (iopl(3) != 0) {
        perror("ditto-mark: ports cannot be used");
        return 1;
    }
    if (inb(MARK_PORT) != MARK_PRESENT) {
        fprintf(stderr, "ditto-mark: this machine is none of dittovm's, or an old one\n");
        return 1;
    }
    for (const char *c = argv[1]; *c; c++)
        outb((unsigned char)*c, MARK_PORT);
    outb(0, MARK_PORT);
    return 0;
}
