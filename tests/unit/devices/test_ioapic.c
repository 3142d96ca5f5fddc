/* devices/ioapic.c against the data sheet of Intel's 82093AA. */
#include "tests/unit/devices/legacy_test.h"

#include "devices/ioapic.h"
#include "devices/lapic.h"
#include "tests/unit/random.h"

struct fixture {
    struct fake_time time;
    struct apic_bus bus;
    struct bus mmio;
    struct lapic lapic[2];
    struct ioapic ioapic;
};

static void put(struct fixture *f, unsigned reg, uint32_t value)
{
    bus_write(&f->mmio, IOAPIC_BASE, 4, reg);
    bus_write(&f->mmio, IOAPIC_BASE + 0x10, 4, value);
}

static uint32_t get(struct fixture *f, unsigned reg)
{
    bus_write(&f->mmio, IOAPIC_BASE, 4, reg);
    return (uint32_t)bus_read(&f->mmio, IOAPIC_BASE + 0x10, 4);
}

static void route(struct fixture *f, unsigned pin, uint32_t low, unsigned cpu)
{
    put(f, 0x11 + 2 * pin, cpu << 24);
    put(f, 0x10 + 2 * pin, low);
}

static void make(struct fixture *f)
{
    struct err e;

    *f = (struct fixture){.time = fake_time_at(0, 0)};
    apic_bus_init(&f->bus, (struct cpu_request_pin){0});
    for (unsigned i = 0; i < 2; i++) {
        lapic_init(&f->lapic[i], &f->bus, &f->time.time);
        lapic_write(&f->lapic[i], LAPIC_SVR, 0x1ff);
    }
    ioapic_init(&f->ioapic, &f->bus, 2);
    assert_int_equal(ioapic_attach(&f->ioapic, &f->mmio, &e), 0);
}

/* The vector a CPU has to take, 0 for none. */
static unsigned take(struct fixture *f, unsigned cpu)
{
    return lapic_pending(&f->lapic[cpu]) ? lapic_acknowledge(&f->lapic[cpu]) : 0;
}

static void test_registers(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    assert_int_equal(get(&f, 0), 2 << 24);
    assert_int_equal(get(&f, 1), 0x170011);
    for (unsigned pin = 0; pin < IOAPIC_PINS; pin++) {
        assert_int_equal(get(&f, 0x10 + 2 * pin), 0x10000);
        assert_int_equal(get(&f, 0x11 + 2 * pin), 0);
    }
    put(&f, 0x10, 0xffffffff);
    put(&f, 0x11, 0xffffffff);
    assert_int_equal(get(&f, 0x10), 0x1afff); /* 3.2.4: all but the two status bits */
    assert_int_equal(get(&f, 0x11), 0xff000000);
    put(&f, 0, 0x05000000);
    assert_int_equal(get(&f, 0), 0x05000000);
    assert_int_equal(get(&f, 0x40), 0xffffffff);
    put(&f, 0x40, 1);
}

static void test_edges(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    ioapic_set(&f.ioapic, 4, true); /* an edge while it is masked is lost */
    route(&f, 4, 0x34, 1);
    assert_int_equal(take(&f, 1), 0);
    ioapic_set(&f.ioapic, 4, true);
    assert_int_equal(take(&f, 1), 0);
    ioapic_set(&f.ioapic, 4, false);
    ioapic_set(&f.ioapic, 4, true);
    assert_int_equal(take(&f, 0), 0);
    assert_int_equal(take(&f, 1), 0x34);
    lapic_write(&f.lapic[1], LAPIC_EOI, 0);
    assert_int_equal(take(&f, 1), 0);
    assert_int_equal(get(&f, 0x18) & 0x4000, 0);
}

static void test_levels(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    route(&f, 10, 0x18000 | 0x41, 0);
    ioapic_set(&f.ioapic, 10, true);
    assert_int_equal(take(&f, 0), 0);
    route(&f, 10, 0x08000 | 0x41, 0); /* unmasked while it asserts */
    assert_int_equal(take(&f, 0), 0x41);
    assert_int_equal(get(&f, 0x24) & 0x4000, 0x4000); /* remote IRR */
    ioapic_set(&f.ioapic, 10, false);
    ioapic_set(&f.ioapic, 10, true); /* not again before its EOI */
    lapic_write(&f.lapic[0], LAPIC_TPR, 0);
    assert_false(lapic_pending(&f.lapic[0]));
    lapic_write(&f.lapic[0], LAPIC_EOI, 0);
    assert_int_equal(take(&f, 0), 0x41); /* it still asserts */
    ioapic_set(&f.ioapic, 10, false);
    lapic_write(&f.lapic[0], LAPIC_EOI, 0);
    assert_int_equal(take(&f, 0), 0);
    assert_int_equal(get(&f, 0x24) & 0x4000, 0);
}

/* Linux masks a pin and makes it an edge for a moment to get rid of a stuck remote IRR. */
static void test_edge_clears_remote_irr(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    route(&f, 10, 0x08041, 0);
    ioapic_set(&f.ioapic, 10, true);
    assert_int_equal(get(&f, 0x24) & 0x4000, 0x4000);
    route(&f, 10, 0x10041, 0);
    assert_int_equal(get(&f, 0x24) & 0x4000, 0);
    ioapic_set(&f.ioapic, 10, false);
    route(&f, 10, 0x18041, 0);
    assert_int_equal(get(&f, 0x24), 0x18041);
}

static void test_rough_use(void **unused)
{
    uint64_t random = 0x9e3779b97f4a7c15ull;
    struct fixture f;

    (void)unused;
    make(&f);
    for (unsigned i = 0; i < rounds(1000000); i++) {
        const uint64_t r = next_random(&random);
        if (r & 1)
            ioapic_set(&f.ioapic, (unsigned)(r >> 8) % IOAPIC_PINS, r >> 16 & 1);
        else if (r & 2)
            bus_write(&f.mmio, IOAPIC_BASE + (r >> 8 & 0x1f), 1u << (r >> 16 & 3), r >> 20);
        else if (r & 4)
            put(&f, (unsigned)(r >> 8) & 0x7f, (uint32_t)(r >> 16));
        else if (take(&f, r >> 8 & 1) && (r >> 9 & 1))
            lapic_write(&f.lapic[r >> 8 & 1], LAPIC_EOI, 0);
        if (i % 64 == 0)
            exercise(&f.ioapic.dev, 0);
    }
}

static void test_states(void **unused)
{
    struct fixture f, other;

    (void)unused;
    make(&f);
    make(&other);
    route(&f, 10, 0x08041, 0);
    ioapic_set(&f.ioapic, 10, true);
    check_round_trip(&f.ioapic.dev, &other.ioapic.dev);
    restore_garbage(&f.ioapic.dev, &other.ioapic.dev, &f.time);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registers), cmocka_unit_test(test_edges),
        cmocka_unit_test(test_levels),    cmocka_unit_test(test_edge_clears_remote_irr),
        cmocka_unit_test(test_rough_use), cmocka_unit_test(test_states),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
