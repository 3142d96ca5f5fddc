/*
 * date [+FORMAT]: the time of day by strftime formats, and %N for nanoseconds, which busybox's date
 * lacks. Host state it would leak: the wall clock, as finely as the guest's clocksource counts.
 */
#include "common.h"

int main(int argc, char **argv)
{
    const char *format = argc == 2 && argv[1][0] == '+' ? argv[1] + 1 : "%a %b %e %H:%M:%S %Z %Y";
    char expanded[512], text[1024], *out = expanded;
    struct timespec now;

    if (argc > 2 || (argc == 2 && argv[1][0] != '+')) {
        fprintf(stderr, "usage: date [+FORMAT]\n");
        return 2;
    }
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        die("clock_gettime");
    for (const char *p = format; *p != '\0'; p++) {
        size_t left = sizeof(expanded) - (size_t)(out - expanded);

        if (left < 16) {
            fprintf(stderr, "date: the format is too long\n");
            return 2;
        }
        if (p[0] == '%' && p[1] == 'N') {
            out += snprintf(out, left, "%09ld", now.tv_nsec);
            p++;
        } else {
            *out++ = *p;
            if (p[0] == '%' && p[1] != '\0')
                *out++ = *++p;
        }
    }
    *out = '\0';
    if (*expanded != '\0' && strftime(text, sizeof(text), expanded, localtime(&now.tv_sec)) == 0) {
        fprintf(stderr, "date: the format gives nothing to print, or too much\n");
        return 2;
    }
    puts(*expanded != '\0' ? text : "");
    return 0;
}
