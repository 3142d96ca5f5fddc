/*
 * Stdin to port 0xe9, each byte of which Bochs writes to its own stdout (port_e9_hack). Then Bochs is told to end, by
 * the word that it waits for on another port.
 */
#include <stdio.h>
#include <sys/io.h>
#include <unistd.h>

#define PORT     0xe9
#define END_PORT 0x8900

static void write_port(short port, const char *bytes, ssize_t count)
{
    __asm__ volatile("rep outsb" : "+S"(bytes), "+c"(count) : "d"(port) : "memory");
}

int main(void)
{
    static char buffer[65536];
    static const char end[] = "Shutdown";
    ssize_t n;

    if (iopl(3) != 0) {
        perror("out");
        return 1;
    }
    while ((n = read(STDIN_FILENO, buffer, sizeof buffer)) > 0)
        write_port(PORT, buffer, n);
    write_port(END_PORT, end, sizeof end - 1);
    return 0;
}
