/*
 * What the guest programs share: a running checksum, elapsed time, and errors that end the program.
 * They are built alone (gcc -static) and run inside the guest, so they use nothing of dittovm.
 */
#ifndef GUEST_PROGRAMS_COMMON_H
#define GUEST_PROGRAMS_COMMON_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECKSUM_START 0xcbf29ce484222325ull

/* Adds the bytes to a running FNV-1a checksum, which starts at CHECKSUM_START. */
static inline uint64_t checksum(uint64_t sum, const void *bytes, size_t length)
{
    const unsigned char *byte = bytes;

    for (size_t i = 0; i < length; i++)
        sum = (sum ^ byte[i]) * 0x100000001b3ull;
    return sum;
}

/* Prints "PROGRAM: WHAT: the errno message" and exits with 1. */
static inline _Noreturn void die(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
    exit(1);
}

/* Milliseconds of the monotonic clock. */
static inline long long now_ms(void)
{
    struct timespec now;

    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        die("clock_gettime");
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* The decimal number in text, 1..limit; otherwise prints the usage line and exits with 2. */
static inline unsigned long count_argument(const char *text, unsigned long limit, const char *usage)
{
    char *end = NULL;
    unsigned long count;

    errno = 0;
    count = text != NULL ? strtoul(text, &end, 10) : 0;
    if (text == NULL || errno != 0 || *end != '\0' || count == 0 || count > limit) {
        fprintf(stderr, "usage: %s\n", usage);
        exit(2);
    }
    return count;
}

#endif
