#ifndef DEVICES_CALENDAR_H
#define DEVICES_CALENDAR_H

#include <stdint.h>

/* The proleptic Gregorian calendar in UTC, without leap seconds. */
struct calendar {
    int year;         /* 0 to 9999 */
    unsigned month;   /* 1 to 12 */
    unsigned day;     /* 1 to 31 */
    unsigned weekday; /* 1 (Sunday) to 7 */
    unsigned hour, minute, second;
};

#define CALENDAR_FIRST (-62167219200) /* 0000-01-01 00:00:00 */
#define CALENDAR_LAST  253402300799   /* 9999-12-31 23:59:59 */

/* The date and time that many seconds after 1970; out of range is brought to the nearest end. */
struct calendar calendar_of(int64_t seconds);
/*
 * The reverse. The weekday is not looked at. Fields out of range count on as far as they are
 * (February 30 is March 1 or 2); the result is brought into range. Fields are at most 255.
 */
int64_t calendar_seconds(const struct calendar *c);

#endif
