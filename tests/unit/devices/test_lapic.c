/* devices/lapic.c and apic_bus.c against Intel's SDM, volume 3, chapter 11. */
#include "tests/unit/devices/legacy_test.h"

#include <limits.h>

#include "devices/lapic.h"
#include "tests/unit/random.h"

#define CPUS 4u

struct request {
    unsigned cpu;
    enum cpu_request what;
    uint8_t vector;
};

struct fixture {
    struct fake_time time;
    struct apic_bus bus;
    struct bus mmio;
    struct lapic lapic[CPUS];
    struct request request[16];
    unsigned requests;
};

static void on_request(void *opaque, unsigned cpu, enum cpu_request what, uint8_t vector)
{
    struct fixture *f = opaque;

    assert_true(f->requests < 16);
    f->request[f->requests++] = (struct request){cpu, what, vector};
}

static void make(struct fixture *f)
{
    struct err e;

    *f = (struct fixture){.time = fake_time_at(5 * SECOND, 0)};
    apic_bus_init(&f->bus, (struct cpu_request_pin){on_request, f});
    for (unsigned i = 0; i < CPUS; i++)
        lapic_init(&f->lapic[i], &f->bus, &f->time.time);
    assert_int_equal(apic_bus_attach(&f->bus, &f->mmio, &e), 0);
}

/* Accesses as a CPU makes them. */
static void put(struct fixture *f, unsigned cpu, unsigned reg, uint32_t value)
{
    f->bus.accessing = cpu;
    bus_write(&f->mmio, APIC_BASE + reg * 16, 4, value);
}

static uint32_t get(struct fixture *f, unsigned cpu, unsigned reg)
{
    f->bus.accessing = cpu;
    return (uint32_t)bus_read(&f->mmio, APIC_BASE + reg * 16, 4);
}

static void make_enabled(struct fixture *f)
{
    make(f);
    for (unsigned cpu = 0; cpu < CPUS; cpu++) {
        put(f, cpu, LAPIC_SVR, 0x1ff);
        put(f, cpu, LAPIC_DFR, 0xffffffff);
        put(f, cpu, LAPIC_LDR, 1u << (24 + cpu));
    }
}

static void make_x2apic(struct fixture *f)
{
    make(f);
    for (unsigned cpu = 0; cpu < CPUS; cpu++) {
        uint64_t base;
        assert_true(lapic_read_msr(&f->lapic[cpu], MSR_IA32_APIC_BASE, &base));
        assert_true(lapic_write_msr(&f->lapic[cpu], MSR_IA32_APIC_BASE, base | 0x400));
        assert_true(lapic_write_msr(&f->lapic[cpu], 0x80f, 0x1ff));
    }
}

static void send(struct fixture *f, unsigned cpu, uint32_t destination, uint32_t icr)
{
    put(f, cpu, LAPIC_ICR_HIGH, destination << 24);
    put(f, cpu, LAPIC_ICR, icr);
}

/* Which CPUs have an interrupt, as a bit each; they take it. */
static unsigned take(struct fixture *f, uint8_t vector)
{
    unsigned got = 0;

    for (unsigned cpu = 0; cpu < CPUS; cpu++) {
        if (!lapic_pending(&f->lapic[cpu]))
            continue;
        assert_int_equal(lapic_acknowledge(&f->lapic[cpu]), vector);
        put(f, cpu, LAPIC_EOI, 0);
        assert_false(lapic_pending(&f->lapic[cpu]));
        got |= 1u << cpu;
    }
    return got;
}

/* 11.4.7.1 */
static void test_power_on(void **unused)
{
    struct fixture f;
    uint64_t base;

    (void)unused;
    make(&f);
    for (unsigned cpu = 0; cpu < CPUS; cpu++) {
        assert_int_equal(get(&f, cpu, LAPIC_ID), cpu << 24);
        assert_int_equal(get(&f, cpu, LAPIC_VERSION) & 0xff, 0x14);
        assert_int_equal(get(&f, cpu, LAPIC_SVR), 0xff);
        assert_int_equal(get(&f, cpu, LAPIC_DFR), UINT32_MAX);
        assert_int_equal(get(&f, cpu, LAPIC_LDR), 0);
        assert_int_equal(get(&f, cpu, LAPIC_TPR), 0);
        for (unsigned i = 0; i < LVT_COUNT; i++)
            assert_int_equal(get(&f, cpu, LAPIC_LVT + i), 0x10000);
        assert_true(lapic_read_msr(&f.lapic[cpu], MSR_IA32_APIC_BASE, &base));
        assert_int_equal(base, APIC_BASE | 0x800 | (cpu ? 0 : 0x100));
        lapic_accept(&f.lapic[cpu], 0x40, false); /* not while software has it disabled */
        assert_int_equal(get(&f, cpu, LAPIC_IRR + 2), 0);
    }
}

static void test_priorities(void **unused)
{
    struct fixture f;
    struct lapic *l = &f.lapic[0];

    (void)unused;
    make_enabled(&f);
    assert_false(lapic_pending(l));
    lapic_accept(l, 0x51, false);
    lapic_accept(l, 0x52, false);
    lapic_accept(l, 0x61, false);
    assert_int_equal(lapic_acknowledge(l), 0x61);
    assert_false(lapic_pending(l)); /* of lower classes than what is in service */
    lapic_accept(l, 0x62, false);
    assert_false(lapic_pending(l)); /* of the same class */
    lapic_accept(l, 0x71, false);
    assert_int_equal(lapic_acknowledge(l), 0x71);
    assert_int_equal(get(&f, 0, LAPIC_PPR), 0x70);
    assert_int_equal(get(&f, 0, LAPIC_ISR + 3), 1u << 1 | 1u << 17);
    put(&f, 0, LAPIC_EOI, 0);
    put(&f, 0, LAPIC_EOI, 0);
    assert_int_equal(lapic_acknowledge(l), 0x62);
    put(&f, 0, LAPIC_EOI, 0);
    put(&f, 0, LAPIC_TPR, 0x5f);
    assert_int_equal(get(&f, 0, LAPIC_PPR), 0x5f);
    assert_false(lapic_pending(l)); /* 11.8.3.1: classes up to the task's wait */
    put(&f, 0, LAPIC_TPR, 0x4f);
    assert_int_equal(lapic_acknowledge(l), 0x52);
    assert_false(lapic_pending(l));
    put(&f, 0, LAPIC_EOI, 0);
    assert_int_equal(lapic_acknowledge(l), 0x51);
    put(&f, 0, LAPIC_EOI, 0);
    put(&f, 0, LAPIC_EOI, 0); /* one too many */
    assert_int_equal(get(&f, 0, LAPIC_PPR), 0x4f);
}

static void test_cr8_is_the_task_priority(void **unused)
{
    struct fixture f;

    (void)unused;
    make_enabled(&f);
    put(&f, 0, LAPIC_TPR, 0x37);
    assert_int_equal(lapic_cr8(&f.lapic[0]), 3);
    lapic_set_cr8(&f.lapic[0], 9);
    assert_int_equal(get(&f, 0, LAPIC_TPR), 0x90);
}

static void test_destinations(void **unused)
{
    struct fixture f;

    (void)unused;
    make_enabled(&f);
    send(&f, 0, 2, 0x4041); /* physical */
    assert_int_equal(take(&f, 0x41), 1u << 2);
    assert_int_equal(f.bus.signalled, 1u << 2);
    send(&f, 1, 0xff, 0x4041);
    assert_int_equal(take(&f, 0x41), 0xf);
    send(&f, 1, 9, 0x4041);
    assert_int_equal(take(&f, 0x41), 0);
    send(&f, 1, 0xa, 0x4841); /* logical, flat */
    assert_int_equal(take(&f, 0x41), 0xa);
    send(&f, 3, 0, 0x44041); /* shorthands */
    assert_int_equal(take(&f, 0x41), 1u << 3);
    send(&f, 3, 0, 0x84041);
    assert_int_equal(take(&f, 0x41), 0xf);
    send(&f, 3, 0, 0xc4041);
    assert_int_equal(take(&f, 0x41), 7);
    for (unsigned cpu = 0; cpu < CPUS; cpu++) { /* two clusters of two */
        put(&f, cpu, LAPIC_DFR, 0);
        put(&f, cpu, LAPIC_LDR, (cpu / 2 << 4 | 1u << cpu % 2) << 24);
    }
    send(&f, 0, 0x13, 0x4841);
    assert_int_equal(take(&f, 0x41), 0xc);
    send(&f, 0, 0x02, 0x4841);
    assert_int_equal(take(&f, 0x41), 2);
    assert_int_equal(get(&f, 0, LAPIC_ICR), 0x4841);
}

static void test_lowest_priority(void **unused)
{
    struct fixture f;

    (void)unused;
    make_enabled(&f);
    put(&f, 0, LAPIC_TPR, 0x50);
    put(&f, 1, LAPIC_TPR, 0x20);
    put(&f, 2, LAPIC_TPR, 0x10);
    put(&f, 3, LAPIC_SVR, 0xff); /* off: takes no part */
    send(&f, 0, 0xff, 0x4971);
    assert_int_equal(take(&f, 0x71), 1u << 2);
    send(&f, 0, 0x3, 0x4971);
    assert_int_equal(take(&f, 0x71), 1u << 1);
}

static void test_requests(void **unused)
{
    struct fixture f;

    (void)unused;
    make_enabled(&f);
    put(&f, 1, LAPIC_TPR, 0x20);
    send(&f, 0, 1, 0xc500); /* INIT, level asserted */
    send(&f, 0, 1, 0x8500); /* and de-asserted: nothing */
    send(&f, 0, 1, 0x4608); /* start at 0x8000 */
    send(&f, 0, 2, 0x4400);
    assert_int_equal(f.requests, 3);
    assert_int_equal(f.request[0].cpu, 1);
    assert_int_equal(f.request[0].what, CPU_INIT);
    assert_int_equal(f.request[1].cpu, 1);
    assert_int_equal(f.request[1].what, CPU_STARTUP);
    assert_int_equal(f.request[1].vector, 8);
    assert_int_equal(f.request[2].cpu, 2);
    assert_int_equal(f.request[2].what, CPU_NMI);
    assert_int_equal(get(&f, 1, LAPIC_TPR), 0); /* INIT has reset it */
    assert_int_equal(get(&f, 1, LAPIC_SVR), 0xff);
    send(&f, 0, 0, 0x44500); /* to oneself: not valid */
    send(&f, 0, 0, 0x84500);
    assert_int_equal(f.requests, 3);
    send(&f, 0, 0, 0xc4500);
    assert_int_equal(f.requests, 6);
}

static void test_errors(void **unused)
{
    struct fixture f;

    (void)unused;
    make_enabled(&f);
    put(&f, 0, LAPIC_LVT + LVT_ERROR, 0xfe);
    send(&f, 0, 1, 0x400f); /* vectors below 16 are illegal */
    assert_int_equal(lapic_acknowledge(&f.lapic[0]), 0xfe);
    assert_false(lapic_pending(&f.lapic[1]));
    assert_int_equal(get(&f, 0, LAPIC_ESR), 0);
    put(&f, 0, LAPIC_ESR, 0);
    assert_int_equal(get(&f, 0, LAPIC_ESR), 0x20);
    put(&f, 0, LAPIC_ESR, 0);
    assert_int_equal(get(&f, 0, LAPIC_ESR), 0);
    lapic_accept(&f.lapic[0], 3, true);
    get(&f, 0, 0x3d); /* no such register */
    put(&f, 0, LAPIC_ESR, 0);
    assert_int_equal(get(&f, 0, LAPIC_ESR), 0xc0);
    put(&f, 0, LAPIC_LVT + LVT_ERROR, 3); /* an illegal vector there is no recursion */
    lapic_accept(&f.lapic[0], 3, true);
}

static void test_software_disable(void **unused)
{
    struct fixture f;

    (void)unused;
    make_enabled(&f);
    put(&f, 0, LAPIC_LVT + LVT_TIMER, 0x40);
    lapic_accept(&f.lapic[0], 0x50, false);
    put(&f, 0, LAPIC_SVR, 0xff);
    assert_int_equal(get(&f, 0, LAPIC_LVT + LVT_TIMER), 0x10040);
    put(&f, 0, LAPIC_LVT + LVT_TIMER, 0x40); /* stays masked */
    assert_int_equal(get(&f, 0, LAPIC_LVT + LVT_TIMER), 0x10040);
    assert_false(lapic_pending(&f.lapic[0])); /* what was pending is held */
    put(&f, 0, LAPIC_SVR, 0x1ff);
    assert_int_equal(lapic_acknowledge(&f.lapic[0]), 0x50);
}

static void test_lint0(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    assert_false(lapic_passes_extint(&f.lapic[0]));
    lapic_virtual_wire(&f.lapic[0]);
    assert_true(lapic_passes_extint(&f.lapic[0]));
    put(&f, 0, LAPIC_LVT + LVT_LINT0, 0x10700);
    assert_false(lapic_passes_extint(&f.lapic[0]));
    put(&f, 0, LAPIC_LVT + LVT_LINT0, 0x00400);
    assert_false(lapic_passes_extint(&f.lapic[0]));
    assert_true(lapic_write_msr(&f.lapic[0], MSR_IA32_APIC_BASE, APIC_BASE | 0x100));
    assert_true(lapic_passes_extint(&f.lapic[0])); /* no APIC at all: LINT0 is INTR */
    assert_true(lapic_write_msr(&f.lapic[1], MSR_IA32_APIC_BASE, APIC_BASE));
    assert_false(lapic_passes_extint(&f.lapic[1]));
}

/* ---- the timer ---- */

static void poll(struct fixture *f)
{
    f->lapic[0].dev.ops->poll(&f->lapic[0].dev, f->time.now);
}

static uint64_t deadline(struct fixture *f)
{
    return f->lapic[0].dev.ops->deadline(&f->lapic[0].dev);
}

static void test_timer_one_shot(void **unused)
{
    struct fixture f;
    uint64_t start;

    (void)unused;
    make_enabled(&f);
    start = f.time.now;
    put(&f, 0, LAPIC_DIVIDE, 3); /* by 16 */
    put(&f, 0, LAPIC_LVT + LVT_TIMER, 0x40);
    assert_true(deadline(&f) == NEVER);
    put(&f, 0, LAPIC_INITIAL_COUNT, 1000);
    assert_true(deadline(&f) == start + 16000);
    f.time.now = start + 8000;
    poll(&f);
    assert_int_equal(get(&f, 0, LAPIC_CURRENT_COUNT), 500);
    assert_false(lapic_pending(&f.lapic[0]));
    f.time.now = start + 15999;
    assert_int_equal(get(&f, 0, LAPIC_CURRENT_COUNT), 1);
    f.time.now = start + 16000;
    poll(&f);
    assert_int_equal(lapic_acknowledge(&f.lapic[0]), 0x40);
    assert_int_equal(get(&f, 0, LAPIC_CURRENT_COUNT), 0);
    assert_int_equal(get(&f, 0, LAPIC_INITIAL_COUNT), 1000);
    assert_true(deadline(&f) == NEVER);
    put(&f, 0, LAPIC_EOI, 0);
    put(&f, 0, LAPIC_INITIAL_COUNT, 1000);
    put(&f, 0, LAPIC_INITIAL_COUNT, 0); /* stops it */
    f.time.now += SECOND;
    poll(&f);
    assert_false(lapic_pending(&f.lapic[0]));
}

static void test_timer_periodic(void **unused)
{
    struct fixture f;
    uint64_t start;

    (void)unused;
    make_enabled(&f);
    start = f.time.now;
    put(&f, 0, LAPIC_DIVIDE, 0xb); /* by 1 */
    put(&f, 0, LAPIC_LVT + LVT_TIMER, 0x20040);
    put(&f, 0, LAPIC_INITIAL_COUNT, 4000000);
    for (unsigned i = 1; i < 5; i++) {
        assert_true(deadline(&f) == start + i * 4000000ull);
        f.time.now = deadline(&f) + 17;
        poll(&f);
        assert_int_equal(take(&f, 0x40), 1);
    }
    f.time.now = start + 9 * 4000000ull + 5; /* periods that were missed are one interrupt */
    poll(&f);
    assert_int_equal(take(&f, 0x40), 1);
    assert_true(deadline(&f) == start + 10 * 4000000ull);
    assert_int_equal(get(&f, 0, LAPIC_CURRENT_COUNT), 4000000 - 5);
    put(&f, 0, LAPIC_LVT + LVT_TIMER, 0x30040); /* masked it counts on, and wakes nobody */
    assert_true(deadline(&f) == NEVER);
    f.time.now = start + 11 * 4000000ull + 7;
    poll(&f);
    assert_int_equal(take(&f, 0x40), 0);
    assert_int_equal(get(&f, 0, LAPIC_CURRENT_COUNT), 4000000 - 7);
}

static void test_timer_divide(void **unused)
{
    static const unsigned codes[] = {0xb, 0, 1, 2, 3, 8, 9, 0xa};
    struct fixture f;

    (void)unused;
    make_enabled(&f);
    put(&f, 0, LAPIC_LVT + LVT_TIMER, 0x40);
    for (unsigned i = 0; i < 8; i++) {
        put(&f, 0, LAPIC_DIVIDE, codes[i]);
        put(&f, 0, LAPIC_INITIAL_COUNT, 1000000);
        assert_true(deadline(&f) - f.time.now == 1000000ull << i);
    }
    /* Changed on the way: what is left is counted at the new pace. */
    f.time.now += 64000000;
    put(&f, 0, LAPIC_DIVIDE, 0xb);
    assert_int_equal(get(&f, 0, LAPIC_CURRENT_COUNT), 500000);
    assert_true(deadline(&f) - f.time.now == 500000);
}

/* ---- x2APIC ---- */

static void test_base_transitions(void **unused)
{
    struct fixture f;
    struct lapic *l = &f.lapic[1];

    (void)unused;
    make(&f);
    assert_false(lapic_write_msr(l, MSR_IA32_APIC_BASE, APIC_BASE | 0x400));
    assert_true(lapic_write_msr(l, MSR_IA32_APIC_BASE, APIC_BASE));
    assert_false(lapic_write_msr(l, MSR_IA32_APIC_BASE, APIC_BASE | 0xc00));
    assert_true(lapic_write_msr(l, MSR_IA32_APIC_BASE, APIC_BASE | 0x800));
    assert_true(lapic_write_msr(l, MSR_IA32_APIC_BASE, APIC_BASE | 0xc00));
    assert_false(lapic_write_msr(l, MSR_IA32_APIC_BASE, APIC_BASE | 0x800));
    assert_true(lapic_write_msr(l, MSR_IA32_APIC_BASE, APIC_BASE | 0xc00));
    assert_true(lapic_write_msr(l, MSR_IA32_APIC_BASE, APIC_BASE));
    assert_false(lapic_write_msr(l, MSR_IA32_APIC_BASE, 0xfef00000 | 0x800));
    assert_false(lapic_write_msr(l, MSR_IA32_APIC_BASE, APIC_BASE | 0x801));
}

static void test_x2apic_messages(void **unused)
{
    struct fixture f;
    uint64_t value;

    (void)unused;
    make_x2apic(&f);
    assert_true(lapic_read_msr(&f.lapic[2], 0x802, &value));
    assert_int_equal(value, 2);
    assert_true(lapic_read_msr(&f.lapic[2], 0x80d, &value));
    assert_int_equal(value, 4);
    assert_true(lapic_write_msr(&f.lapic[0], 0x830, 3ull << 32 | 0x41));
    assert_int_equal(f.lapic[3].irr[2], 2);
    assert_true(lapic_pending(&f.lapic[3]));
    assert_int_equal(lapic_acknowledge(&f.lapic[3]), 0x41);
    assert_true(lapic_write_msr(&f.lapic[3], 0x80b, 0));
    assert_true(lapic_read_msr(&f.lapic[3], 0x814 - 0x802 + 0x800, &value)); /* ISR 2 */
    assert_int_equal(value, 0);
    assert_true(lapic_read_msr(&f.lapic[0], 0x830, &value));
    assert_true(value == (3ull << 32 | 0x41));
    assert_true(lapic_write_msr(&f.lapic[0], 0x830, 6ull << 32 | 0x841)); /* logical */
    assert_false(lapic_pending(&f.lapic[0]) || lapic_pending(&f.lapic[3]));
    assert_true(lapic_pending(&f.lapic[1]) && lapic_pending(&f.lapic[2]));
    assert_true(lapic_write_msr(&f.lapic[0], 0x830, 0x10001ull << 32 | 0x841)); /* cluster 1 */
    assert_false(lapic_pending(&f.lapic[0]));
    assert_true(lapic_write_msr(&f.lapic[0], 0x83f, 0x55));
    assert_int_equal(lapic_acknowledge(&f.lapic[0]), 0x55);
}

/* 11.12.1.2 */
static void test_x2apic_faults(void **unused)
{
    static const struct {
        uint32_t msr;
        uint64_t value;
    } refused[] = {
        {0x802, 0},       {0x803, 0},     {0x808, 0x100}, {0x80a, 0},          {0x80b, 1},
        {0x80d, 0},       {0x80e, 0},     {0x80f, 0x400}, {0x810, 0},          {0x828, 1},
        {0x830, 1 << 12}, {0x831, 0},     {0x832, 0x100}, {0x838, 1ull << 32}, {0x839, 0},
        {0x83e, 4},       {0x83f, 0x100}, {0x8ff, 0},
    };
    static const uint32_t unreadable[] = {0x80b, 0x80e, 0x831, 0x83f, 0x800, 0x8ff};
    struct fixture f;
    uint64_t value;

    (void)unused;
    make_x2apic(&f);
    for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_false(lapic_write_msr(&f.lapic[0], refused[i].msr, refused[i].value));
    for (unsigned i = 0; i < sizeof unreadable / sizeof *unreadable; i++)
        assert_false(lapic_read_msr(&f.lapic[0], unreadable[i], &value));
    make_enabled(&f); /* as xAPIC it has no MSRs */
    assert_false(lapic_read_msr(&f.lapic[0], 0x802, &value));
    assert_false(lapic_write_msr(&f.lapic[0], 0x808, 0));
}

/* ---- hostile use ---- */

static void test_rough_use(void **unused)
{
    uint64_t random = 0x9e3779b97f4a7c15ull, value;
    struct fixture f;

    (void)unused;
    make_enabled(&f);
    f.bus.requests = (struct cpu_request_pin){0};
    for (unsigned i = 0; i < rounds(1000000); i++) {
        const uint64_t r = next_random(&random), v = next_random(&random);
        struct lapic *l = &f.lapic[r >> 8 & 3];
        f.bus.accessing = r >> 8 & 3;
        switch (r & 7) {
        case 0:
            lapic_write_msr(l, r & 0x800 ? MSR_IA32_APIC_BASE : 0x800 + (r >> 12 & 0xff),
                            r & 0x100000 ? v : (APIC_BASE | (v & 0xc00)));
            break;
        case 1:
            lapic_read_msr(l, 0x800 + (r >> 12 & 0xff), &value);
            break;
        case 2:
            if (lapic_pending(l))
                lapic_acknowledge(l);
            break;
        case 3:
            bus_read(&f.mmio, APIC_BASE + (r >> 12 & 0xfff), 1u << (r >> 24 & 3));
            break;
        default:
            bus_write(&f.mmio, APIC_BASE + (r >> 12 & 0xfff & (r >> 30 & 1 ? 0xff0u : 0xfffu)), 4,
                      v);
        }
        f.time.now += r >> 30 & 0xffff;
        if (i % 64 == 0)
            exercise(&l->dev, f.time.now);
    }
}

static void test_states(void **unused)
{
    struct fixture f, other;

    (void)unused;
    make_enabled(&f);
    make(&other);
    put(&f, 0, LAPIC_LVT + LVT_TIMER, 0x20040);
    put(&f, 0, LAPIC_INITIAL_COUNT, 4000);
    lapic_accept(&f.lapic[0], 0x51, true);
    lapic_acknowledge(&f.lapic[0]);
    check_round_trip(&f.lapic[0].dev, &other.lapic[0].dev);
    assert_int_equal(lapic_priority(&other.lapic[0]), 0x50);
    restore_garbage(&f.lapic[0].dev, &other.lapic[0].dev, &f.time);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_on),
        cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_cr8_is_the_task_priority),
        cmocka_unit_test(test_destinations),
        cmocka_unit_test(test_lowest_priority),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_software_disable),
        cmocka_unit_test(test_lint0),
        cmocka_unit_test(test_timer_one_shot),
        cmocka_unit_test(test_timer_periodic),
        cmocka_unit_test(test_timer_divide),
        cmocka_unit_test(test_base_transitions),
        cmocka_unit_test(test_x2apic_messages),
        cmocka_unit_test(test_x2apic_faults),
        cmocka_unit_test(test_rough_use),
        cmocka_unit_test(test_states),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
