#ifndef DEVICES_RTC_H
#define DEVICES_RTC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/bus.h"
#include "devices/device.h"

/*
 * The real-time clock and CMOS memory of a PC: a Motorola MC146818 with 128 bytes behind ports
 * 0x70 (index) and 0x71 (data), IRQ 8, and the century in BCD at 0x32.
 *
 * Its time is the wall clock of struct device_time plus an offset in whole seconds, which the guest
 * changes by setting the time. There is no update cycle to wait for: UIP always reads 0. Periodic
 * interrupts follow device time.
 */
#define RTC_PORT    0x70
#define RTC_IRQ     8
#define RTC_CENTURY 0x32 /* index; devices/acpi.c tells the guest */
#define RTC_BYTES   128

struct rtc {
    struct device dev;
    struct irq_pin irq;
    struct irq_pin wake; /* set at each alarm whose interrupt is enabled, never cleared */
    struct device_time *time;
    uint8_t index;
    /* Registers A to D, the alarm and memory; the time of day only while REG_B.SET stops it. */
    uint8_t ram[RTC_BYTES];
    int64_t offset;       /* seconds, rtc time - wall time */
    int64_t second_seen;  /* rtc time, seconds since 1970, up to which flags are worked out */
    uint64_t period_seen; /* number of the last periodic tick worked out */
    int64_t alarm_at;     /* the first matching second after second_seen */
};

void rtc_init(struct rtc *rtc, struct irq_pin irq, struct irq_pin wake, struct device_time *time);
/* The wall clock of its struct device_time is another now: no alarm goes off for what lies between.
 */
void rtc_wall_changed(struct rtc *rtc);
int rtc_attach(struct rtc *rtc, struct bus *pio, struct err *e);

#endif
