#include "tests/unit/devices/legacy_test.h"

#include "devices/acpi.h"
#include "devices/aml.h"
#include "devices/pmtimer.h"

#define BASE 0xe0000u

static uint64_t number(const uint8_t *at, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static uint8_t sum(const uint8_t *at, size_t len)
{
    uint8_t total = 0;

    while (len--)
        total = (uint8_t)(total + *at++);
    return total;
}

/* The table at a guest address, its signature, bounds and checksum checked. */
static const uint8_t *table(const struct bytes *tables, uint64_t address, const char *signature)
{
    assert_in_range(address, BASE, BASE + tables->len - 36);
    const uint8_t *at = tables->data + (address - BASE);
    assert_memory_equal(at, signature, 4);
    uint64_t len = number(at + 4, 4);
    assert_in_range(len, 36, BASE + tables->len - address);
    if (strcmp(signature, "FACS") != 0)
        assert_int_equal(sum(at, len), 0);
    return at;
}

static const uint8_t *find(const uint8_t *at, size_t len, const void *what, size_t what_len)
{
    const uint8_t *found = memmem(at, len, what, what_len);

    assert_non_null(found);
    return found;
}

static void test_root_leads_to_every_table(void **unused)
{
    struct bytes tables = {0};

    (void)unused;
    acpi_build(&tables, BASE, 1);
    assert_true(tables.len < 8192);
    assert_memory_equal(tables.data, "RSD PTR ", 8);
    assert_int_equal(sum(tables.data, 20), 0);
    assert_int_equal(sum(tables.data, 36), 0);
    assert_int_equal(tables.data[15], 2);
    const uint8_t *rsdt = table(&tables, number(tables.data + 16, 4), "RSDT");
    const uint8_t *xsdt = table(&tables, number(tables.data + 24, 8), "XSDT");
    assert_int_equal(number(rsdt + 4, 4), 36 + 4);
    assert_int_equal(number(xsdt + 4, 4), 36 + 8);
    assert_int_equal(number(rsdt + 36, 4), number(xsdt + 36, 8));

    const uint8_t *fadt = table(&tables, number(xsdt + 36, 8), "FACP");
    assert_int_equal(number(fadt + 4, 4), 244);
    assert_int_equal(number(fadt + 36, 4) % 64, 0);
    assert_int_equal(number(fadt + 36, 4), number(fadt + 132, 8));
    assert_int_equal(number(fadt + 40, 4), number(fadt + 140, 8));
    table(&tables, number(fadt + 36, 4), "FACS");
    table(&tables, number(fadt + 40, 4), "DSDT");
    bytes_free(&tables);
}

/* 5.2.12: four CPUs, the IOAPIC, and what is wired otherwise than one would think. */
static void test_madt_describes_the_apics(void **unused)
{
    static const uint8_t expected[] = {
        0x00, 0x00, 0xe0, 0xfe, 1,    0,    0,    0,                   /* local APICs; 8259s too */
        0,    8,    0,    0,    1,    0,    0,    0,                   /* CPU 0 */
        0,    8,    1,    1,    1,    0,    0,    0,                   /* CPU 1 */
        0,    8,    2,    2,    1,    0,    0,    0,                   /* CPU 2 */
        1,    12,   3,    0,    0x00, 0x00, 0xc0, 0xfe, 0,    0, 0, 0, /* IOAPIC, ID 3 */
        2,    10,   0,    0,    2,    0,    0,    0,    0,    0,       /* IRQ 0 is at pin 2 */
        2,    10,   0,    9,    9,    0,    0,    0,    0x0d, 0,       /* IRQ 9 by level, high */
        4,    6,    0xff, 0,    0,    1,                               /* NMI at LINT1 */
    };
    struct bytes tables = {0};

    (void)unused;
    acpi_build(&tables, BASE, 3);
    const uint8_t *rsdt = table(&tables, number(tables.data + 16, 4), "RSDT");
    const uint8_t *xsdt = table(&tables, number(tables.data + 24, 8), "XSDT");
    assert_int_equal(number(rsdt + 4, 4), 36 + 2 * 4);
    assert_int_equal(number(rsdt + 40, 4), number(xsdt + 44, 8));
    const uint8_t *madt = table(&tables, number(rsdt + 40, 4), "APIC");
    assert_int_equal(number(madt + 4, 4), 36 + sizeof expected);
    assert_memory_equal(madt + 36, expected, sizeof expected);
    bytes_free(&tables);
}

static void test_fadt_describes_the_fixed_hardware(void **unused)
{
    struct bytes tables = {0};

    (void)unused;
    acpi_build(&tables, BASE, 1);
    const uint8_t *rsdt = table(&tables, number(tables.data + 16, 4), "RSDT");
    const uint8_t *fadt = table(&tables, number(rsdt + 36, 4), "FACP");
    assert_int_equal(number(fadt + 46, 2), PM_SCI_IRQ);
    assert_int_equal(number(fadt + 112, 4) & 1u << 6, 0); /* the RTC's alarm is a fixed event */
    assert_int_equal(number(fadt + 48, 4), 0);            /* no SMI command port */
    assert_int_equal(number(fadt + 56, 4), PM_EVENT_PORT);
    assert_int_equal(number(fadt + 64, 4), PM_CONTROL_PORT);
    assert_int_equal(number(fadt + 76, 4), PM_TIMER_PORT);
    assert_int_equal(fadt[88], 4);
    assert_int_equal(fadt[89], 2);
    assert_int_equal(fadt[91], 4);
    assert_int_equal(fadt[108], 0x32);
    assert_int_equal(number(fadt + 109, 2) & 0x02, 0);    /* no 8042 */
    assert_int_equal(number(fadt + 112, 4) >> 8 & 1, 1);  /* 32-bit timer */
    assert_int_equal(number(fadt + 112, 4) >> 20 & 1, 0); /* not hardware-reduced */
    assert_int_equal(fadt[148], 1);
    assert_int_equal(number(fadt + 152, 8), PM_EVENT_PORT);
    assert_int_equal(number(fadt + 176, 8), PM_CONTROL_PORT);
    assert_int_equal(fadt[209], 32);
    assert_int_equal(number(fadt + 212, 8), PM_TIMER_PORT);
    bytes_free(&tables);
}

static void test_dsdt_routes_every_pin(void **unused)
{
    struct bytes tables = {0};

    (void)unused;
    acpi_build(&tables, BASE, 1);
    const uint8_t *rsdt = table(&tables, number(tables.data + 16, 4), "RSDT");
    const uint8_t *fadt = table(&tables, number(rsdt + 36, 4), "FACP");
    const uint8_t *dsdt = table(&tables, number(fadt + 40, 4), "DSDT");
    size_t len = number(dsdt + 4, 4);

    find(dsdt, len, "\x08\\_S5_\x12\x07\x04\x0a\x05\x00\x00\x00", 14);
    find(dsdt, len, "\x08_HID\x0c\x41\xd0\x0a\x03", 10);
    const uint8_t *at = find(dsdt, len, "\x08_PRT\x12", 6) + 6;
    at += 1 + (*at >> 6); /* PkgLength */
    assert_int_equal(*at++, 31 * 4);
    for (unsigned device = 1; device < 32; device++)
        for (unsigned pin = 0; pin < 4; pin++) {
            struct bytes entry = {0};
            size_t begin = aml_begin_package(&entry, 4);
            aml_integer(&entry, device << 16 | 0xffff);
            aml_integer(&entry, pin);
            aml_integer(&entry, 0);
            aml_integer(&entry, acpi_pci_irq(device, pin));
            aml_end(&entry, begin);
            assert_memory_equal(at, entry.data, entry.len);
            at += entry.len;
            bytes_free(&entry);
        }
    assert_ptr_equal(at, dsdt + len); /* it is the last term */
    bytes_free(&tables);
}

static void test_pins_use_three_lines(void **unused)
{
    unsigned used = 0;

    (void)unused;
    for (unsigned device = 0; device < 32; device++)
        for (unsigned pin = 0; pin < 4; pin++) {
            unsigned irq = acpi_pci_irq(device, pin);
            assert_true(irq == 5 || irq == 10 || irq == 11);
            used |= 1u << irq;
        }
    assert_int_equal(used, 1u << 5 | 1u << 10 | 1u << 11);
    assert_int_equal(acpi_pci_irq(1, 0), 10);
    assert_int_equal(acpi_pci_irq(2, 0), 11);
    assert_int_equal(acpi_pci_irq(3, 0), 5);
}

static void test_tables_can_follow_other_bytes(void **unused)
{
    struct bytes alone = {0}, after = {0};

    (void)unused;
    acpi_build(&alone, BASE, 1);
    bytes_put(&after, "xyz", 3);
    acpi_build(&after, BASE, 1);
    assert_int_equal(after.len, alone.len + 3);
    assert_memory_equal(after.data + 3, alone.data, alone.len);
    bytes_free(&alone);
    bytes_free(&after);
}

static void test_package_lengths(void **unused)
{
    static const struct {
        size_t body;
        uint8_t encoded[3];
        unsigned bytes;
    } cases[] = {
        {0, {0x01}, 1},
        {62, {0x3f}, 1},
        {63, {0x41, 0x04}, 2},
        {4093, {0x4f, 0xff}, 2},
        {4094, {0x81, 0x00, 0x01}, 3},
    };

    (void)unused;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct bytes out = {0};
        bytes_put(&out, "ab", 2);
        size_t begin = out.len;
        for (size_t j = 0; j < cases[i].body; j++)
            bytes_put_u8(&out, (uint8_t)j);
        aml_end(&out, begin);
        assert_int_equal(out.len, 2 + cases[i].bytes + cases[i].body);
        assert_memory_equal(out.data, "ab", 2);
        assert_memory_equal(out.data + 2, cases[i].encoded, cases[i].bytes);
        for (size_t j = 0; j < cases[i].body; j++)
            assert_int_equal(out.data[2 + cases[i].bytes + j], j & 0xff);
        bytes_free(&out);
    }
}

static void test_resources(void **unused)
{
    static const uint8_t expected[] = {
        0x11, 0x0d, 0x0a, 0x0a,                         /* Buffer (10) */
        0x47, 0x01, 0xf8, 0x03, 0xf8, 0x03, 0x01, 0x08, /* IO */
        0x79, 0x00,
    };
    struct bytes out = {0};

    (void)unused;
    size_t begin = aml_begin_resources(&out);
    aml_io(&out, 0x3f8, 8);
    aml_end_resources(&out, begin);
    assert_int_equal(out.len, sizeof(expected));
    assert_memory_equal(out.data, expected, sizeof(expected));
    bytes_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_root_leads_to_every_table),
        cmocka_unit_test(test_madt_describes_the_apics),
        cmocka_unit_test(test_fadt_describes_the_fixed_hardware),
        cmocka_unit_test(test_dsdt_routes_every_pin),
        cmocka_unit_test(test_pins_use_three_lines),
        cmocka_unit_test(test_tables_can_follow_other_bytes),
        cmocka_unit_test(test_package_lengths),
        cmocka_unit_test(test_resources),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
