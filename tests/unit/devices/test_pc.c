/* devices/pc.c: the devices of machines with several CPUs. Those of machines with one are shown to
 * work by test_shadow.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "devices/pc.h"

#define VECTOR 0x34

static struct pc pc, other;
static unsigned requested[APIC_CPUS_MAX]; /* bit n: that cpu_request */
static struct dma no_dma;

static void on_request(void *opaque, enum machine_request request)
{
    (void)opaque;
    (void)request;
}

static void on_cpu_request(void *opaque, unsigned cpu, enum cpu_request request, uint8_t vector)
{
    (void)opaque;
    (void)vector;
    requested[cpu] |= 1u << request;
}

static void no_entropy(void *opaque, void *buf, size_t len)
{
    (void)opaque;
    memset(buf, 0, len);
}

static void make(struct pc *p, unsigned cpus)
{
    const struct pc_config config = {
        .dma = &no_dma,
        .entropy = no_entropy,
        .cpus = cpus,
        .request = on_request,
        .cpu_request = on_cpu_request,
    };
    struct err e;

    memset(requested, 0, sizeof requested);
    assert_int_equal(pc_init(p, &config, &e), 0);
}

/* An access of a CPU's; returns what it reads. */
static uint32_t serve(struct pc *p, unsigned cpu, bool mmio, bool write, uint64_t at, unsigned size,
                      uint32_t value)
{
    uint8_t data[4];
    const struct bus_access access = {
        .cpu = cpu, .mmio = mmio, .write = write, .at = at, .size = size, .count = 1, .data = data};

    memcpy(data, &value, sizeof data);
    (void)pc_serve(p, &access, 1000);
    memcpy(&value, data, sizeof data);
    return value;
}

static void put_lapic(struct pc *p, unsigned cpu, unsigned reg, uint32_t value)
{
    (void)serve(p, cpu, true, true, APIC_BASE + reg * 16, 4, value);
}

/* An edge-triggered interrupt of the IOAPIC's, for one CPU. */
static void route(struct pc *p, unsigned pin, unsigned cpu)
{
    const uint32_t entry[2] = {VECTOR, cpu << 24};

    for (unsigned i = 2; i--;) {
        (void)serve(p, 0, true, true, IOAPIC_BASE, 4, 0x10 + 2 * pin + i);
        (void)serve(p, 0, true, true, IOAPIC_BASE + 0x10, 4, entry[i]);
    }
}

/* The UART says that its transmitter is empty. */
static void raise_serial(struct pc *p)
{
    (void)serve(p, 0, false, true, SERIAL_COM1_PORT + 4, 1, 0x08); /* OUT2 */
    (void)serve(p, 0, false, true, SERIAL_COM1_PORT + 1, 1, 0x02);
}

static void wires_lead_to_the_ioapic(void **state)
{
    (void)state;
    make(&pc, 3);
    for (unsigned cpu = 0; cpu < 3; cpu++)
        put_lapic(&pc, cpu, LAPIC_SVR, 0x1ff);
    route(&pc, SERIAL_COM1_IRQ, 2);
    raise_serial(&pc);
    assert_false(pc_irq_pending(&pc, 0) || pc_irq_pending(&pc, 1));
    assert_true(pc_irq_pending(&pc, 2));
    assert_int_equal(pc_irq_acknowledge(&pc, 2), VECTOR);
    assert_false(pc_irq_pending(&pc, 2));
    /* Channel 0 of the 8254, in the mode in which its output is low until the count ends. */
    (void)serve(&pc, 0, false, true, 0x43, 1, 0x30);
    (void)serve(&pc, 0, false, true, 0x40, 1, 2);
    (void)serve(&pc, 0, false, true, 0x40, 1, 0);
    route(&pc, IOAPIC_TIMER_PIN, 1);
    pc_poll(&pc, 1000000);
    assert_true(pc_irq_pending(&pc, 1));
    assert_int_equal(pc_irq_acknowledge(&pc, 1), VECTOR);
}

static void each_cpu_sees_its_own_apic(void **state)
{
    (void)state;
    make(&pc, 2);
    for (unsigned cpu = 0; cpu < 2; cpu++)
        assert_int_equal(serve(&pc, cpu, true, false, APIC_BASE + LAPIC_ID * 16, 4, 0), cpu << 24);
    assert_ptr_equal(pc_lapic(&pc, 1), &pc.lapics[1]);
    assert_null(pc_lapic(&pc, 2));
    put_lapic(&pc, 0, LAPIC_SVR, 0x1ff);
    put_lapic(&pc, 0, LAPIC_ICR_HIGH, 1u << 24);
    put_lapic(&pc, 0, LAPIC_ICR, 0x4500); /* INIT */
    assert_int_equal(requested[0], 0);
    assert_int_equal(requested[1], 1u << CPU_INIT);
}

/* An access of CPU 1's. */
static bool msr(struct pc *p, bool write, uint32_t at, uint64_t *value, bool *ok)
{
    assert_true(pc_has_msr(p, at));
    return pc_serve_msr(p, 1, at, write, 5000, value, ok);
}

/* What shows them the time is told, as of the other accesses. */
static void msrs_of_the_x2apic(void **state)
{
    uint64_t value;
    bool ok;

    (void)state;
    make(&pc, 2);
    assert_false(msr(&pc, false, MSR_X2APIC_FIRST + LAPIC_ID, &value, &ok));
    assert_false(ok); /* it is in xAPIC mode */
    assert_false(msr(&pc, false, MSR_IA32_APIC_BASE, &value, &ok));
    assert_true(ok);
    value |= 1u << 10;
    (void)msr(&pc, true, MSR_IA32_APIC_BASE, &value, &ok);
    assert_true(ok);
    assert_false(msr(&pc, false, MSR_X2APIC_FIRST + LAPIC_ID, &value, &ok));
    assert_true(ok && value == 1);
    value = 1000;
    assert_true(msr(&pc, true, MSR_X2APIC_FIRST + LAPIC_INITIAL_COUNT, &value, &ok));
    assert_true(ok);
    assert_false(pc_has_msr(&pc, 0x10));
}

static void one_cpu_has_no_apic(void **state)
{
    (void)state;
    make(&pc, 1);
    assert_null(pc_lapic(&pc, 0));
    assert_false(pc_has_msr(&pc, MSR_IA32_APIC_BASE));
    assert_int_equal(serve(&pc, 0, true, false, APIC_BASE + LAPIC_VERSION * 16, 4, 0), UINT32_MAX);
}

static void state_round_trip(void **state)
{
    struct bytes first = {0}, second = {0};

    (void)state;
    make(&pc, 3);
    put_lapic(&pc, 1, LAPIC_SVR, 0x1ff);
    put_lapic(&pc, 1, LAPIC_TPR, 0x20);
    route(&pc, SERIAL_COM1_IRQ, 1);
    raise_serial(&pc);
    pc_save(&pc, &first);
    make(&other, 3);
    struct cursor in = cursor_of(first.data, first.len);
    assert_int_equal(pc_restore(&other, &in), 0);
    pc_save(&other, &second);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);
    assert_true(pc_irq_pending(&other, 1));
    assert_int_equal(pc_irq_acknowledge(&other, 1), VECTOR);
    /* Of a machine with other CPUs. */
    for (unsigned cpus = 1; cpus <= 4; cpus++) {
        make(&other, cpus);
        in = cursor_of(first.data, first.len);
        assert_int_equal(pc_restore(&other, &in), cpus == 3 ? 0 : -1);
    }
    bytes_free(&first);
    bytes_free(&second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wires_lead_to_the_ioapic), cmocka_unit_test(each_cpu_sees_its_own_apic),
        cmocka_unit_test(msrs_of_the_x2apic),       cmocka_unit_test(one_cpu_has_no_apic),
        cmocka_unit_test(state_round_trip),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
