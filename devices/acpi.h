#ifndef DEVICES_ACPI_H
#define DEVICES_ACPI_H

#include <stdint.h>

#include "base/bytes.h"

/*
 * The ACPI tables of the machine (ACPI 6.4): RSDP, RSDT, XSDT, FADT revision 3, FACS and DSDT.
 * They describe the PC as it is: 8259 interrupts, and with several CPUs a MADT of their APICs and
 * the IOAPIC; the fixed hardware of devices/pmtimer.h, COM1 and the RTC where they always are, and
 * one PCI root bus.
 */
#define ACPI_PCI_WINDOW_BASE 0xc0000000u /* memory for PCI BARs, up to the last byte */
#define ACPI_PCI_WINDOW_LAST 0xfebfffffu

/*
 * Append the tables to out, as they are to stand in guest memory from base on; the RSDP is the
 * first thing there. base is a multiple of 64 below 4 GiB - 1 MiB, and within 0xe0000-0xfffff if
 * the guest is to find the RSDP by searching. The tables take less than 8 KiB.
 * cpus: 1 is a machine without APICs.
 */
void acpi_build(struct bytes *out, uint32_t base, unsigned cpus);

/*
 * The IRQ that a PCI interrupt pin is wired to: device 0 to 31 on bus 0, pin 0 (INTA) to 3 (INTD).
 * (device + pin) mod 3 selects IRQ 5, 10 or 11. The only truth about it: the DSDT's _PRT and the
 * PCI interrupt line registers both come from here.
 */
unsigned acpi_pci_irq(unsigned device, unsigned pin);

#endif
