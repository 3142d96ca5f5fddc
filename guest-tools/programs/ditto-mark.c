/*
 * ditto-mark TEXT: names this moment in the recording of the machine (docs/control.md). It stands
 * alone, so that it can be taken into any guest:
 *     gcc -O2 -static -o ditto-mark ditto-mark.c
 * It needs root, and uses /dev/port, or where the kernel has none iopl(). Exit status 0: it was
 * said; 1: it could not be.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/io.h>
#include <unistd.h>

#define MARK_PORT    0xd170
#define MARK_PRESENT 0xd1

static int ports = -1; /* /dev/port */

/* QEMU's emulation of guests in guests lets no program use ports, whatever iopl() says. */
static void on_fault(int signal)
{
    static const char text[] =
        "ditto-mark: this CPU lets no program use ports; a kernel with /dev/port "
        "would\n";

    _exit(write(2, text, sizeof text - 1) > 0 ? 1 : signal);
}

static int in(unsigned char *byte)
{
    if (ports >= 0)
        return pread(ports, byte, 1, MARK_PORT) == 1 ? 0 : -1;
    *byte = inb(MARK_PORT);
    return 0;
}

/* One byte at a time: the next would go to the next port. */
static int out(char byte)
{
    if (ports >= 0)
        return pwrite(ports, &byte, 1, MARK_PORT) == 1 ? 0 : -1;
    outb((unsigned char)byte, MARK_PORT);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned char answer;

    if (argc != 2 || !argv[1][0]) {
        fprintf(stderr, "usage: ditto-mark TEXT\n");
        return 2;
    }
    signal(SIGSEGV, on_fault);
    ports = open("/dev/port", O_RDWR);
    if ((ports < 0 && iopl(3) != 0) || in(&answer) != 0) {
        perror("ditto-mark: ports cannot be used");
        return 1;
    }
    if (answer != MARK_PRESENT) {
        fprintf(stderr, "ditto-mark: this machine is none of dittovm's, or of an older one\n");
        return 1;
    }
    for (const char *c = argv[1]; *c; c++)
        if (out(*c) != 0)
            return 1;
    return out('\0') != 0;
}
