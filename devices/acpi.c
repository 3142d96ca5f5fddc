#include "devices/acpi.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "devices/aml.h"
#include "devices/apic_bus.h"
#include "devices/ioapic.h"
#include "devices/pmtimer.h"
#include "devices/rtc.h"

#define HEADER_BYTES    36
#define HEADER_LENGTH   4 /* offsets in the common table header (5.2.6) */
#define HEADER_CHECKSUM 9
#define RSDP_BYTES      36
#define RSDP_V1_BYTES   20
#define FACS_BYTES      64
#define FADT_REV3_BYTES 244
#define PCI_DEVICES     32
#define SPACE_IO        1 /* address space of a generic address structure (5.2.3.2) */

/* FADT flags, table 5.10 */
#define FADT_WBINVD       (1u << 0)
#define FADT_PROC_C1      (1u << 2)
#define FADT_SLEEP_BUTTON (1u << 5) /* there is no fixed sleep button */
#define FADT_TMR_VAL_EXT  (1u << 8) /* 32-bit timer */

/* FADT IAPC_BOOT_ARCH, table 5.11; without bit 1 there is no 8042 */
#define BOOT_LEGACY_DEVICES (1u << 0)
#define BOOT_VGA_ABSENT     (1u << 2)
#define BOOT_MSI_ABSENT     (1u << 3)

/* MADT: types of its structures (table 5.21) and flags */
enum { MADT_LOCAL_APIC = 0, MADT_IOAPIC = 1, MADT_OVERRIDE = 2, MADT_LOCAL_NMI = 4 };
#define MADT_PCAT_COMPAT (1u << 0) /* there are 8259s too */
#define MADT_ENABLED     (1u << 0)
#define MADT_LEVEL_HIGH  0x0du

unsigned acpi_pci_irq(unsigned device, unsigned pin)
{
    static const unsigned lines[] = {5, 10, 11};

    assert(device < PCI_DEVICES && pin < 4);
    return lines[(device + pin) % 3];
}

static void put_zeroes(struct bytes *out, size_t len)
{
    while (len--)
        bytes_put_u8(out, 0);
}

static void align(struct bytes *out, size_t start, size_t alignment)
{
    while ((out->len - start) % alignment)
        bytes_put_u8(out, 0);
}

/* The byte that makes the sum of them all 0. */
static uint8_t checksum(const uint8_t *data, size_t len)
{
    uint8_t sum = 0;

    while (len--)
        sum = (uint8_t)(sum + *data++);
    return (uint8_t)-sum;
}

/* The common header; end_table fills in the length and the checksum. */
static size_t begin_table(struct bytes *out, const char *signature, uint8_t revision)
{
    size_t at = out->len;

    bytes_put(out, signature, 4);
    bytes_put_u32(out, 0);
    bytes_put_u8(out, revision);
    bytes_put_u8(out, 0);
    bytes_put(out, "DITTO ", 6);
    bytes_put(out, "DITTOVM ", 8);
    bytes_put_u32(out, 1);
    bytes_put(out, "DITO", 4);
    bytes_put_u32(out, 1);
    return at;
}

static void end_table(struct bytes *out, size_t at)
{
    uint32_t len = (uint32_t)(out->len - at);

    for (unsigned i = 0; i < 4; i++)
        out->data[at + HEADER_LENGTH + i] = (uint8_t)(len >> (8 * i));
    out->data[at + HEADER_CHECKSUM] = checksum(out->data + at, len);
}

static void put_interrupt_routing(struct bytes *out)
{
    aml_name(out, "_PRT");
    size_t table = aml_begin_package(out, (PCI_DEVICES - 1) * 4);
    for (unsigned device = 1; device < PCI_DEVICES; device++) /* 0 is the host bridge */
        for (unsigned pin = 0; pin < 4; pin++) {
            size_t entry = aml_begin_package(out, 4);
            aml_integer(out, device << 16 | 0xffff); /* every function */
            aml_integer(out, pin);
            aml_integer(out, 0); /* no link device: the next is the interrupt itself */
            aml_integer(out, acpi_pci_irq(device, pin));
            aml_end(out, entry);
        }
    aml_end(out, table);
}

static void put_pci_bus(struct bytes *out)
{
    size_t device = aml_begin_device(out, "PCI0");

    aml_name(out, "_HID");
    aml_eisa_id(out, "PNP0A03");
    aml_name(out, "_UID");
    aml_integer(out, 0);
    aml_name(out, "_CRS");
    size_t resources = aml_begin_resources(out);
    aml_bus_window(out, 0, 0);
    aml_io(out, 0xcf8, 8); /* configuration mechanism #1, used up by the bridge itself */
    aml_io_window(out, 0, 0xcf7);
    aml_io_window(out, 0x1000, 0xffff);
    aml_memory_window(out, ACPI_PCI_WINDOW_BASE, ACPI_PCI_WINDOW_LAST);
    aml_end_resources(out, resources);
    put_interrupt_routing(out);
    aml_end(out, device);
}

static void put_dsdt(struct bytes *out)
{
    size_t table = begin_table(out, "DSDT", 2);

    aml_name(out, "\\_S5_"); /* the values for SLP_TYP that switch the machine off */
    size_t s5 = aml_begin_package(out, 4);
    aml_integer(out, PM_SLEEP_TYPE_OFF); /* PM1a */
    for (unsigned i = 0; i < 3; i++)     /* PM1b, which there is not, and two reserved */
        aml_integer(out, 0);
    aml_end(out, s5);

    size_t system_bus = aml_begin_scope(out, "\\_SB_");
    put_pci_bus(out);
    aml_end(out, system_bus);
    end_table(out, table);
}

static void put_facs(struct bytes *out)
{
    bytes_put(out, "FACS", 4);
    bytes_put_u32(out, FACS_BYTES);
    put_zeroes(out, FACS_BYTES - 8);
}

static void put_io_address(struct bytes *out, unsigned port, unsigned bytes)
{
    bytes_put_u8(out, bytes ? SPACE_IO : 0);
    bytes_put_u8(out, (uint8_t)(bytes * 8));
    bytes_put_u8(out, 0); /* bit offset */
    bytes_put_u8(out, 0); /* access size as suits the register */
    bytes_put_u64(out, port);
}

/* Table 5.9, in the order of its fields; revision 3 ends with X_GPE1_BLK. */
static void put_fadt(struct bytes *out, uint32_t facs, uint32_t dsdt)
{
    size_t table = begin_table(out, "FACP", 3);

    bytes_put_u32(out, facs);
    bytes_put_u32(out, dsdt);
    bytes_put_u8(out, 0); /* reserved */
    bytes_put_u8(out, 0); /* preferred power profile: unspecified */
    bytes_put_u16(out, PM_SCI_IRQ);
    bytes_put_u32(out, 0); /* SMI_CMD: always in ACPI mode */
    put_zeroes(out, 4);    /* ACPI_ENABLE, ACPI_DISABLE, S4BIOS_REQ, PSTATE_CNT */
    bytes_put_u32(out, PM_EVENT_PORT);
    bytes_put_u32(out, 0); /* PM1b_EVT_BLK */
    bytes_put_u32(out, PM_CONTROL_PORT);
    bytes_put_u32(out, 0); /* PM1b_CNT_BLK */
    bytes_put_u32(out, 0); /* PM2_CNT_BLK */
    bytes_put_u32(out, PM_TIMER_PORT);
    put_zeroes(out, 8);         /* GPE0_BLK, GPE1_BLK */
    bytes_put_u8(out, 4);       /* lengths: PM1_EVT */
    bytes_put_u8(out, 2);       /* PM1_CNT */
    bytes_put_u8(out, 0);       /* PM2_CNT */
    bytes_put_u8(out, 4);       /* PM_TMR */
    put_zeroes(out, 4);         /* GPE0_BLK_LEN, GPE1_BLK_LEN, GPE1_BASE, CST_CNT */
    bytes_put_u16(out, 0xffff); /* P_LVL2_LAT: no C2 */
    bytes_put_u16(out, 0xffff); /* P_LVL3_LAT: no C3 */
    put_zeroes(out, 4);         /* FLUSH_SIZE, FLUSH_STRIDE */
    put_zeroes(out, 2);         /* DUTY_OFFSET, DUTY_WIDTH */
    put_zeroes(out, 2);         /* DAY_ALRM, MON_ALRM */
    bytes_put_u8(out, RTC_CENTURY);
    bytes_put_u16(out, BOOT_LEGACY_DEVICES | BOOT_VGA_ABSENT | BOOT_MSI_ABSENT);
    bytes_put_u8(out, 0); /* reserved */
    bytes_put_u32(out, FADT_WBINVD | FADT_PROC_C1 | FADT_SLEEP_BUTTON | FADT_TMR_VAL_EXT);
    put_io_address(out, 0, 0); /* RESET_REG: not supported */
    bytes_put_u8(out, 0);      /* RESET_VALUE */
    put_zeroes(out, 3);        /* ARM_BOOT_ARCH, FADT minor version */
    bytes_put_u64(out, facs);
    bytes_put_u64(out, dsdt);
    put_io_address(out, PM_EVENT_PORT, 4);
    put_io_address(out, 0, 0); /* X_PM1b_EVT_BLK */
    put_io_address(out, PM_CONTROL_PORT, 2);
    put_io_address(out, 0, 0); /* X_PM1b_CNT_BLK */
    put_io_address(out, 0, 0); /* X_PM2_CNT_BLK */
    put_io_address(out, PM_TIMER_PORT, 4);
    put_io_address(out, 0, 0); /* X_GPE0_BLK */
    put_io_address(out, 0, 0); /* X_GPE1_BLK */
    assert(out->len - table == FADT_REV3_BYTES);
    end_table(out, table);
}

/* RSDT and XSDT list the same tables, with 32 and 64 bits for each address. */
static void put_root_table(struct bytes *out, const char *signature, bool wide,
                           const uint32_t *tables, unsigned count)
{
    size_t table = begin_table(out, signature, 1);

    for (unsigned i = 0; i < count; i++) {
        bytes_put_u32(out, tables[i]);
        if (wide)
            bytes_put_u32(out, 0);
    }
    end_table(out, table);
}

/* 5.2.5.3. It is written last, at the place kept for it: it refers to all the others. */
static void fill_rsdp(uint8_t *at, uint32_t rsdt, uint32_t xsdt)
{
    struct bytes rsdp = {0};

    bytes_put(&rsdp, "RSD PTR ", 8);
    bytes_put_u8(&rsdp, 0); /* checksum of the part that ACPI 1.0 knew */
    bytes_put(&rsdp, "DITTO ", 6);
    bytes_put_u8(&rsdp, 2); /* revision */
    bytes_put_u32(&rsdp, rsdt);
    bytes_put_u32(&rsdp, RSDP_BYTES);
    bytes_put_u64(&rsdp, xsdt);
    bytes_put_u32(&rsdp, 0); /* checksum of the whole, reserved */
    assert(rsdp.len == RSDP_BYTES);
    rsdp.data[8] = checksum(rsdp.data, RSDP_V1_BYTES);
    rsdp.data[32] = checksum(rsdp.data, RSDP_BYTES);
    memcpy(at, rsdp.data, rsdp.len);
    bytes_free(&rsdp);
}

/* An ISA interrupt that is wired, or works, otherwise than one would think. */
static void put_override(struct bytes *out, uint8_t irq, uint32_t pin, uint16_t flags)
{
    bytes_put_u8(out, MADT_OVERRIDE);
    bytes_put_u8(out, 10);
    bytes_put_u8(out, 0); /* ISA */
    bytes_put_u8(out, irq);
    bytes_put_u32(out, pin);
    bytes_put_u16(out, flags);
}

/* 5.2.12: one local APIC a CPU, with its number as its ID, and the IOAPIC, which comes behind them.
 */
static void put_madt(struct bytes *out, unsigned cpus)
{
    size_t table = begin_table(out, "APIC", 3);

    bytes_put_u32(out, APIC_BASE);
    bytes_put_u32(out, MADT_PCAT_COMPAT);
    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        bytes_put_u8(out, MADT_LOCAL_APIC);
        bytes_put_u8(out, 8);
        bytes_put_u8(out, (uint8_t)cpu); /* of the processor */
        bytes_put_u8(out, (uint8_t)cpu); /* of the APIC */
        bytes_put_u32(out, MADT_ENABLED);
    }
    bytes_put_u8(out, MADT_IOAPIC);
    bytes_put_u8(out, 12);
    bytes_put_u8(out, (uint8_t)cpus);
    bytes_put_u8(out, 0);
    bytes_put_u32(out, IOAPIC_BASE);
    bytes_put_u32(out, 0); /* its pin 0 is interrupt 0 */
    put_override(out, 0, IOAPIC_TIMER_PIN, 0);
    put_override(out, PM_SCI_IRQ, PM_SCI_IRQ, MADT_LEVEL_HIGH);
    bytes_put_u8(out, MADT_LOCAL_NMI);
    bytes_put_u8(out, 6);
    bytes_put_u8(out, 0xff); /* all CPUs */
    bytes_put_u16(out, 0);
    bytes_put_u8(out, 1); /* LINT1 */
    end_table(out, table);
}

void acpi_build(struct bytes *out, uint32_t base, unsigned cpus)
{
    size_t start = out->len;

    assert(base % 64 == 0 && base < UINT32_MAX - 0xfffff);
    put_zeroes(out, RSDP_BYTES);
    align(out, start, 64); /* the FACS needs it */
    uint32_t facs = base + (uint32_t)(out->len - start);
    put_facs(out);
    uint32_t dsdt = base + (uint32_t)(out->len - start);
    put_dsdt(out);

    /* What the root tables list. */
    uint32_t tables[2];
    unsigned count = 0;
    align(out, start, 16);
    tables[count++] = base + (uint32_t)(out->len - start);
    put_fadt(out, facs, dsdt);
    if (cpus > 1) {
        align(out, start, 16);
        tables[count++] = base + (uint32_t)(out->len - start);
        put_madt(out, cpus);
    }

    align(out, start, 16);
    uint32_t rsdt = base + (uint32_t)(out->len - start);
    put_root_table(out, "RSDT", false, tables, count);
    align(out, start, 16);
    uint32_t xsdt = base + (uint32_t)(out->len - start);
    put_root_table(out, "XSDT", true, tables, count);
    fill_rsdp(out->data + start, rsdt, xsdt);
}
