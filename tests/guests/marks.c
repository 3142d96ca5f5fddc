#include "tests/guests/guest.h"

#define MARK_PORT 0xd170

static void out_string(uint16_t port, const char *data, uint64_t n)
{
    __asm__ volatile("rep outsb" : "+S"(data), "+c"(n) : "d"(port) : "memory");
}

/* Marks by single bytes and by strings: two in one string, one with nothing printable in it, one
 * that is too long; and with many=N on the command line N more, all alike. */
void guest_main(void)
{
    static const char two[] = "again\nagain";
    static const char hostile[] = "\x1b[2J\xff\x80 @mark:x\n";
    static char wide[300];

    report("present", inb(MARK_PORT));
    for (const char *c = "first step\n"; *c; c++)
        outb(MARK_PORT, (uint8_t)*c);
    out_string(MARK_PORT, two, sizeof two); /* the NUL ends the second one */
    out_string(MARK_PORT, hostile, sizeof hostile - 1);
    for (unsigned i = 0; i < sizeof wide; i++)
        wide[i] = 'w';
    wide[sizeof wide - 1] = '\n';
    out_string(MARK_PORT, wide, sizeof wide);
    timer_start(100);
    UNTIL_TICKS(5, "");
    out_string(MARK_PORT, "last\n", 5);
    static char many[1000];
    for (unsigned i = 0; i < sizeof many; i++)
        many[i] = i % 2 ? '\n' : 'm';
    for (uint64_t n = parameter("many", 0); n; n = n > 500 ? n - 500 : 0)
        out_string(MARK_PORT, many, n > 500 ? sizeof many : 2 * n);
    put("marked\n");
}
