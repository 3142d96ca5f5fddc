#include "devices/calendar.h"

/* Whole days before each month of a year that begins in March, so that the leap day comes last. */
static const int days_before[12] = {0, 31, 61, 92, 122, 153, 184, 214, 245, 275, 306, 337};

#define DAYS_400_YEARS 146097
#define DAYS_100_YEARS 36524
#define DAYS_4_YEARS   1461
#define DAYS_TO_1970   719468 /* from 0000-03-01 */
#define DAY_SECONDS    86400

static int64_t clamp(int64_t seconds)
{
    if (seconds < CALENDAR_FIRST)
        return CALENDAR_FIRST;
    return seconds > CALENDAR_LAST ? CALENDAR_LAST : seconds;
}

struct calendar calendar_of(int64_t seconds)
{
    /* From -400-03-01 on everything is positive, and so division rounds the right way. */
    int64_t since = clamp(seconds) + (int64_t)(DAYS_TO_1970 + DAYS_400_YEARS) * DAY_SECONDS;
    int64_t days = since / DAY_SECONDS;
    unsigned rest = (unsigned)(since % DAY_SECONDS);
    struct calendar c = {
        .weekday = (unsigned)((days + 3) % 7) + 1, /* -400-03-01 was a Wednesday */
        .hour = rest / 3600,
        .minute = rest / 60 % 60,
        .second = rest % 60,
    };

    int eras = (int)(days / DAYS_400_YEARS), day = (int)(days % DAYS_400_YEARS);
    int centuries = day / DAYS_100_YEARS;
    if (centuries == 4) /* the leap day that only the fourth century has */
        centuries = 3;
    day -= centuries * DAYS_100_YEARS;
    int fours = day / DAYS_4_YEARS;
    day -= fours * DAYS_4_YEARS;
    int years = day / 365;
    if (years == 4)
        years = 3;
    day -= years * 365;
    unsigned month = 11;
    while (days_before[month] > day)
        month--;
    c.day = (unsigned)(day - days_before[month]) + 1;
    c.month = month < 10 ? month + 3 : month - 9;
    c.year = eras * 400 - 400 + centuries * 100 + fours * 4 + years + (month >= 10);
    return c;
}

int64_t calendar_seconds(const struct calendar *c)
{
    /* Months as March = 0, the year before for January and February. */
    int64_t months = (int64_t)c->year * 12 + (int64_t)c->month - 3 + 400 * 12;
    int64_t year = months / 12, days;

    days = year * 365 + year / 4 - year / 100 + year / 400 + days_before[months % 12] +
           (int64_t)c->day - 1 - DAYS_TO_1970 - DAYS_400_YEARS;
    return clamp(days * DAY_SECONDS + (int64_t)c->hour * 3600 + (int64_t)c->minute * 60 +
                 (int64_t)c->second);
}
