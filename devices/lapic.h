#ifndef DEVICES_LAPIC_H
#define DEVICES_LAPIC_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/apic_bus.h"
#include "devices/device.h"

/*
 * The local APIC of one CPU (Intel SDM vol. 3, chapter 11), as xAPIC, by MMIO, and as x2APIC, by
 * MSRs. Version 0x14 with six local vectors: timer (one-shot and periodic; the CPU model has no
 * TSC for deadlines), thermal, performance, LINT0, LINT1 and error. Of these only timer and error
 * ever have anything to say; LINT0 is where the 8259 is wired to, and works as ExtINT.
 *
 * Like the 8259s it says by a pure function of its state whether it has an interrupt for the CPU,
 * and the owner of the vCPU acknowledges exactly when it injects the vector.
 */
#define LAPIC_HZ 1000000000u /* of the timer, before it is divided */

#define MSR_IA32_APIC_BASE 0x1bu
#define MSR_X2APIC_FIRST   0x800u
#define MSR_X2APIC_LAST    0x8ffu

/* Numbers of registers: MMIO offset / 16, MSR - 0x800. */
enum {
    LAPIC_ID = 0x02,
    LAPIC_VERSION = 0x03,
    LAPIC_TPR = 0x08,
    LAPIC_APR = 0x09,
    LAPIC_PPR = 0x0a,
    LAPIC_EOI = 0x0b,
    LAPIC_RRD = 0x0c,
    LAPIC_LDR = 0x0d,
    LAPIC_DFR = 0x0e,
    LAPIC_SVR = 0x0f,
    LAPIC_ISR = 0x10, /* eight of each */
    LAPIC_TMR = 0x18,
    LAPIC_IRR = 0x20,
    LAPIC_ESR = 0x28,
    LAPIC_ICR = 0x30,
    LAPIC_ICR_HIGH = 0x31,
    LAPIC_LVT = 0x32, /* six: the enumeration below */
    LAPIC_INITIAL_COUNT = 0x38,
    LAPIC_CURRENT_COUNT = 0x39,
    LAPIC_DIVIDE = 0x3e,
    LAPIC_SELF_IPI = 0x3f,
};

enum { LVT_TIMER, LVT_THERMAL, LVT_PERFORMANCE, LVT_LINT0, LVT_LINT1, LVT_ERROR, LVT_COUNT };

struct lapic {
    struct device dev;
    struct apic_bus *bus;
    struct device_time *time;
    unsigned cpu;  /* its number, and the APIC ID */
    uint64_t base; /* IA32_APIC_BASE */
    uint8_t tpr;
    uint32_t ldr, dfr; /* of the xAPIC */
    uint32_t svr, icr, icr_high;
    uint32_t lvt[LVT_COUNT];
    uint8_t esr, errors; /* errors: since the last write of ESR */
    uint32_t irr[8], isr[8], tmr[8];
    /* The timer: it had `left` to count at `since` (ns of device time). */
    bool counting;
    uint32_t initial, left;
    uint64_t since;
    uint8_t divide; /* the register: 0 to 3, 8 to 11 */
};

/* Power-on state. The bus gets it as its next CPU, in order of their numbers. */
void lapic_init(struct lapic *lapic, struct apic_bus *bus, struct device_time *time);
/* INIT: everything but APIC base and ID. */
void lapic_reset(struct lapic *lapic);
/* What firmware leaves behind on the first CPU (MP specification 1.4, 3.6.2.2): the 8259 comes
 * through LINT0. */
void lapic_virtual_wire(struct lapic *lapic);

/* ---- the CPU's side ---- */

/* Whether it has an interrupt for the CPU. */
bool lapic_pending(const struct lapic *lapic);
/* The vector to deliver, which comes into service; something must be pending. */
uint8_t lapic_acknowledge(struct lapic *lapic);
/* Whether the 8259's interrupts get through to this CPU. */
bool lapic_passes_extint(const struct lapic *lapic);
/* Bits 7:4 of the task priority are the CPU's CR8. */
uint8_t lapic_cr8(const struct lapic *lapic);
void lapic_set_cr8(struct lapic *lapic, uint8_t cr8);

uint32_t lapic_read(struct lapic *lapic, unsigned reg);
void lapic_write(struct lapic *lapic, unsigned reg, uint32_t value);
/* IA32_APIC_BASE and the x2APIC's registers; false: #GP. */
bool lapic_read_msr(struct lapic *lapic, uint32_t msr, uint64_t *value);
bool lapic_write_msr(struct lapic *lapic, uint32_t msr, uint64_t value);

/* ---- the bus's side ---- */

/* An interrupt for this CPU. */
void lapic_accept(struct lapic *lapic, uint8_t vector, bool level);
/* Whether a message with this destination is for it too (11.6.2). */
bool lapic_is_meant(const struct lapic *lapic, bool logical, uint32_t destination);
/* Enabled by IA32_APIC_BASE and by software. */
bool lapic_is_enabled(const struct lapic *lapic);
/* PPR: only vectors of a higher class (bits 7:4) are delivered. */
uint8_t lapic_priority(const struct lapic *lapic);

#endif
