#ifndef DEVICES_PMTIMER_H
#define DEVICES_PMTIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/bus.h"
#include "devices/device.h"
#include "devices/device_request.h"

/*
 * The fixed ACPI hardware (ACPI 6.4, 4.8.3): PM1a event block, PM1a control block with the soft-off
 * state, the power button, the RTC's alarm, and the 32-bit PM timer. The machine is always in ACPI
 * mode (SCI_EN is 1 and there is no SMI command port). devices/acpi.c describes these ports to the
 * guest.
 */
#define PM_EVENT_PORT     0x600 /* status and enable, 2 bytes each */
#define PM_CONTROL_PORT   0x604 /* 2 bytes */
#define PM_TIMER_PORT     0x608 /* 4 bytes */
#define PM_TIMER_HZ       3579545u
#define PM_SLEEP_TYPE_OFF 5 /* SLP_TYP for S5, soft off */
#define PM_SCI_IRQ        9

struct pmtimer {
    struct device dev;
    struct irq_pin sci; /* level */
    struct device_time *time;
    struct machine_request_pin requests;
    uint16_t status, enable, control;
    bool carry; /* bit 31 of the timer when it was last looked at */
};

void pmtimer_init(struct pmtimer *pm, struct irq_pin sci, struct device_time *time,
                  struct machine_request_pin requests);
int pmtimer_attach(struct pmtimer *pm, struct bus *pio, struct err *e);

/* Somebody presses the power button: a guest that listens shuts down. */
void pmtimer_power_button(struct pmtimer *pm);
/* The RTC's alarm has come: what wakes a guest that is suspended to idle, whose IRQ 8 is off then.
 */
void pmtimer_rtc_alarm(struct pmtimer *pm);

#endif
