#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "devices/pci.h"
#include "devices/virtio/virtio_pci.h"
#include "devices/virtio/virtio_rng.h"
#include "tests/unit/devices/virtio/virtio_rings.h"
#include "tests/unit/random.h"

#define DEVICES     8
#define BAR_0(slot) (0xc0000000u + ((slot)-1) * VIRTIO_PCI_BAR_BYTES)

static struct ram ram;
static struct bus pio, mmio;
static struct pci_bus pci;
static struct virtio_rng rng[DEVICES];
static struct virtio_pci vp[DEVICES];
static bool line[PCI_IRQS];
static unsigned resets;

static void set_line(void *chip, unsigned irq, bool level)
{
    ((bool *)chip)[irq] = level;
}

/* Slots 1 and 4, 2 and 5, ... share a line. */
static unsigned route(unsigned device, unsigned pin)
{
    static const unsigned lines[] = {5, 10, 11};

    return lines[(device + pin) % 3];
}

static void count_reset(void *opaque)
{
    ++*(unsigned *)opaque;
}

static void sevens(void *opaque, void *buf, size_t len)
{
    (void)opaque;
    memset(buf, 7, len);
}

static void add_device(unsigned i)
{
    struct err e;

    virtio_rng_init(&rng[i], &ram.dma, sevens, NULL);
    if (virtio_pci_attach(&vp[i], &rng[i].vd, "virtio-rng", &pci, &e) < 0)
        fail_msg("%s", e.text);
}

static int setup(void **state)
{
    struct irq_pin pins[PCI_IRQS];
    struct err e;

    (void)state;
    ram_init(&ram);
    memset(&pio, 0, sizeof pio);
    memset(&mmio, 0, sizeof mmio);
    memset(line, 0, sizeof line);
    resets = 0;
    for (unsigned i = 0; i < PCI_IRQS; i++)
        pins[i] = (struct irq_pin){.set = set_line, .chip = line, .irq = i};
    pci_init(&pci, &mmio, pins, route, count_reset, &resets);
    if (pci_attach(&pci, &pio, &e) < 0)
        return -1;
    for (unsigned i = 0; i < 4; i++)
        add_device(i);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ram_free(&ram);
    return 0;
}

static void aim(unsigned slot, unsigned offset)
{
    bus_write(&pio, 0xcf8, 4, 0x80000000u | slot << 11 | (offset & 0xfc));
}

static uint32_t config(unsigned slot, unsigned offset, unsigned size)
{
    aim(slot, offset);
    return (uint32_t)bus_read(&pio, 0xcfc + offset % 4, size);
}

static void set_config(unsigned slot, unsigned offset, unsigned size, uint32_t value)
{
    aim(slot, offset);
    bus_write(&pio, 0xcfc + offset % 4, size, value);
}

static void mechanism_1_is_found_as_linux_looks_for_it(void **state)
{
    (void)state;
    bus_write(&pio, 0xcfb, 1, 1); /* no effect */
    assert_int_equal(bus_read(&pio, 0xcf8, 4), 0);
    bus_write(&pio, 0xcf8, 4, 0x80000000);
    assert_int_equal(bus_read(&pio, 0xcf8, 4), 0x80000000);
    assert_int_equal(config(0, PCI_CLASS_INTERFACE, 1), 0);
    assert_int_equal(config(0, PCI_SUBCLASS, 2), 0x0600);
    bus_write(&pio, 0xcf8, 4, 0xffffffff);
    assert_int_equal(bus_read(&pio, 0xcf8, 4), 0x80fffffc);
}

static void absent_functions_read_as_ones(void **state)
{
    (void)state;
    assert_int_equal(config(5, 0, 4), 0xffffffff);
    assert_int_equal(config(31, 0, 2), 0xffff);
    bus_write(&pio, 0xcf8, 4, 0x80000000u | 1 << 11 | 1 << 8); /* function 1 */
    assert_int_equal(bus_read(&pio, 0xcfc, 4), 0xffffffff);
    bus_write(&pio, 0xcf8, 4, 0x80010000u | 1 << 11); /* bus 1 */
    assert_int_equal(bus_read(&pio, 0xcfc, 4), 0xffffffff);
    bus_write(&pio, 0xcf8, 4, 1 << 11); /* not enabled */
    assert_int_equal(bus_read(&pio, 0xcfc, 4), 0xffffffff);
    bus_write(&pio, 0xcfc, 4, 0);
}

static void every_access_size_reads_the_same_registers(void **state)
{
    uint32_t whole;

    (void)state;
    assert_int_equal(config(1, PCI_VENDOR_ID, 4), 0x10441af4);
    assert_int_equal(config(1, PCI_VENDOR_ID, 2), 0x1af4);
    assert_int_equal(config(1, PCI_DEVICE_ID, 2), 0x1044);
    assert_int_equal(config(1, PCI_VENDOR_ID + 1, 1), 0x1a);
    assert_int_equal(config(1, PCI_REVISION, 1), 1);
    for (unsigned at = 0; at < 256; at += 4) {
        whole = config(1, at, 4);
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(config(1, at + i, 1), whole >> (8 * i) & 0xff);
        assert_int_equal(config(1, at + 2, 2), whole >> 16);
    }
    set_config(1, PCI_INTERRUPT_LINE, 1, 99);
    assert_int_equal(config(1, PCI_INTERRUPT_LINE, 1), 99);
    set_config(1, PCI_VENDOR_ID, 4, 0);
    assert_int_equal(config(1, PCI_VENDOR_ID, 4), 0x10441af4);
}

static void devices_are_ready_without_firmware(void **state)
{
    (void)state;
    for (unsigned slot = 1; slot <= 4; slot++) {
        assert_int_equal(config(slot, PCI_BAR_0, 4), BAR_0(slot));
        assert_int_equal(config(slot, PCI_COMMAND, 2), 6);
        assert_int_equal(config(slot, PCI_INTERRUPT_LINE, 1), route(slot, 0));
        assert_int_equal(config(slot, PCI_INTERRUPT_PIN, 1), 1);
        assert_int_equal(bus_read(&mmio, BAR_0(slot) + COMMON_QUEUES, 2), 1);
    }
    assert_int_equal(bus_read(&mmio, BAR_0(5), 4), 0xffffffff);
}

static void bar_tells_its_size(void **state)
{
    (void)state;
    set_config(1, PCI_BAR_0, 4, 0xffffffff);
    assert_int_equal(config(1, PCI_BAR_0, 4), 0xffffc000);
    assert_int_equal(bus_read(&mmio, BAR_0(1) + COMMON_QUEUES, 2), 0xffff);
    set_config(1, PCI_BAR_0, 4, BAR_0(1));
    assert_int_equal(bus_read(&mmio, BAR_0(1) + COMMON_QUEUES, 2), 1);
    set_config(1, PCI_BAR_0 + 4, 4, 0xffffffff); /* there is no BAR 1, and no ROM */
    assert_int_equal(config(1, PCI_BAR_0 + 4, 4), 0);
    set_config(1, 0x30, 4, 0xffffffff);
    assert_int_equal(config(1, 0x30, 4), 0);
}

static void bar_can_be_moved_and_switched_off(void **state)
{
    (void)state;
    set_config(2, PCI_BAR_0, 4, 0xd0004000);
    assert_int_equal(bus_read(&mmio, BAR_0(2) + COMMON_QUEUES, 2), 0xffff);
    assert_int_equal(bus_read(&mmio, 0xd0004000 + COMMON_QUEUES, 2), 1);
    set_config(2, PCI_COMMAND, 2, 0);
    assert_int_equal(bus_read(&mmio, 0xd0004000 + COMMON_QUEUES, 2), 0xffff);
    set_config(2, PCI_COMMAND, 2, PCI_COMMAND_MEMORY);
    assert_int_equal(bus_read(&mmio, 0xd0004000 + COMMON_QUEUES, 2), 1);
    /* over RAM, or over the fixed addresses: not decoded */
    set_config(2, PCI_BAR_0, 4, 0x00100000);
    assert_int_equal(mmio.count, 3);
    set_config(2, PCI_BAR_0, 4, 0xfec00000);
    assert_int_equal(mmio.count, 3);
    set_config(2, PCI_BAR_0, 4, 0xfebfc000);
    assert_int_equal(mmio.count, 4);
    pci_reset(&pci);
    assert_int_equal(bus_read(&mmio, BAR_0(2) + COMMON_QUEUES, 2), 1);
    assert_int_equal(mmio.count, 4);
}

static void one_bar_over_another_waits_for_its_place(void **state)
{
    uint64_t second = BAR_0(1) + COMMON_QUEUE_SELECT;

    (void)state;
    rng[0].vd.queue_select = 100;
    rng[1].vd.queue_select = 200;
    set_config(2, PCI_BAR_0, 4, BAR_0(1));
    assert_int_equal(mmio.count, 3);
    assert_int_equal(bus_read(&mmio, second, 2), 100);
    set_config(1, PCI_BAR_0, 4, 0xd0000000);
    assert_int_equal(mmio.count, 4);
    assert_int_equal(bus_read(&mmio, second, 2), 200);
}

static void reset_control_asks_for_a_reset(void **state)
{
    (void)state;
    bus_write(&pio, 0xcf9, 1, 0x02);
    assert_int_equal(resets, 0);
    assert_int_equal(bus_read(&pio, 0xcf9, 1), 0x02);
    bus_write(&pio, 0xcf9, 1, 0x06);
    assert_int_equal(resets, 1);
    bus_write(&pio, 0xcf9, 1, 0x0e);
    assert_int_equal(resets, 2);
    bus_write(&pio, 0xcf8, 4, 0x80000600); /* CONFIG_ADDRESS is another register */
    assert_int_equal(resets, 2);
}

static void shared_lines_are_the_or_of_their_devices(void **state)
{
    unsigned irq = route(1, 0);

    (void)state;
    assert_int_equal(irq, route(4, 0));
    pci_set_intx(&vp[0].pci, true);
    assert_true(line[irq]);
    pci_set_intx(&vp[3].pci, true);
    pci_set_intx(&vp[0].pci, false);
    assert_true(line[irq]);
    assert_false(line[route(2, 0)]);
    assert_int_equal(config(4, PCI_STATUS, 2), 0x18);
    set_config(4, PCI_COMMAND, 2, 6 | PCI_COMMAND_INTX_OFF);
    assert_false(line[irq]);
    assert_int_equal(config(4, PCI_STATUS, 2), 0x18);
    set_config(4, PCI_COMMAND, 2, 6);
    assert_true(line[irq]);
    pci_set_intx(&vp[3].pci, false);
    assert_false(line[irq]);
    assert_int_equal(config(4, PCI_STATUS, 2), 0x10);
}

static void slots_run_out(void **state)
{
    struct virtio_pci more = {0};
    struct err e;

    (void)state;
    for (unsigned i = 4; i < DEVICES; i++)
        add_device(i);
    assert_int_equal(virtio_pci_attach(&more, &rng[0].vd, "one more", &pci, &e), -1);
    assert_string_equal(e.text, "no PCI slot is left for one more: give at most 8 devices");
    assert_int_equal(config(8, PCI_BAR_0, 4), BAR_0(8));
}

/* As a driver finds them: walk the capability list. */
static unsigned find_capability(unsigned slot, unsigned type)
{
    unsigned at = config(slot, PCI_CAPABILITIES, 1);

    for (unsigned n = 0; at && n < 16; n++) {
        assert_int_equal(config(slot, at, 1), 0x09);
        if (config(slot, at + 3, 1) == type)
            return at;
        at = config(slot, at + 1, 1);
    }
    return 0;
}

static void capabilities_describe_the_bar(void **state)
{
    static const uint8_t bytes[] = {1, 2, 3, 4};
    struct err e;
    unsigned cap;

    (void)state;
    virtio_init(&rng[4].vd, rng[0].vd.device.ops, rng[0].vd.kind, &ram.dma, 0, bytes, 4);
    assert_int_equal(virtio_pci_attach(&vp[4], &rng[4].vd, "with config", &pci, &e), 0);
    cap = find_capability(5, 1);
    assert_int_equal(config(5, cap + 2, 1), 16);
    assert_int_equal(config(5, cap + 8, 4), VIRTIO_PCI_COMMON);
    assert_int_equal(config(5, cap + 12, 4), 56);
    cap = find_capability(5, 2);
    assert_int_equal(config(5, cap + 2, 1), 20);
    assert_int_equal(config(5, cap + 8, 4), VIRTIO_PCI_NOTIFY);
    assert_int_equal(config(5, cap + 12, 4), 4);
    assert_int_equal(config(5, cap + 16, 4), 4);
    cap = find_capability(5, 3);
    assert_int_equal(config(5, cap + 8, 4), VIRTIO_PCI_ISR);
    cap = find_capability(5, 4);
    assert_int_equal(config(5, cap + 8, 4), VIRTIO_PCI_DEVICE);
    assert_int_equal(config(5, cap + 12, 4), 4);
    assert_int_equal(bus_read(&mmio, BAR_0(5) + VIRTIO_PCI_DEVICE, 4), 0x04030201);
    assert_int_equal(bus_read(&mmio, BAR_0(5) + VIRTIO_PCI_DEVICE + 3, 1), 4);
    assert_int_equal(bus_read(&mmio, BAR_0(5) + VIRTIO_PCI_DEVICE + 4, 1), 0);
    assert_int_equal(find_capability(1, 4), 0); /* the rng has no configuration */
    assert_true(find_capability(1, 5));
}

static void common(unsigned offset, unsigned size, uint32_t value)
{
    bus_write(&mmio, BAR_0(1) + offset, size, value);
}

static uint32_t get_common(unsigned offset, unsigned size)
{
    return (uint32_t)bus_read(&mmio, BAR_0(1) + offset, size);
}

/* The whole life of a device, through the registers only (section 3.1). */
static void drive_by_registers(void)
{
    common(COMMON_STATUS, 1, 0);
    assert_int_equal(get_common(COMMON_STATUS, 1), 0);
    common(COMMON_STATUS, 1, 1);
    common(COMMON_STATUS, 1, 3);
    common(COMMON_OFFERED_SELECT, 4, 1);
    assert_int_equal(get_common(COMMON_OFFERED, 4), 1); /* VERSION_1 */
    common(COMMON_OFFERED_SELECT, 4, 2);
    assert_int_equal(get_common(COMMON_OFFERED, 4), 0);
    common(COMMON_ACCEPTED_SELECT, 4, 1);
    common(COMMON_ACCEPTED, 4, 1);
    assert_int_equal(get_common(COMMON_ACCEPTED, 4), 1);
    common(COMMON_STATUS, 1, 11);
    assert_int_equal(get_common(COMMON_STATUS, 1), 11);
    common(COMMON_CONFIG_VECTOR, 2, 0);
    assert_int_equal(get_common(COMMON_CONFIG_VECTOR, 2), 0xffff);
    common(COMMON_QUEUE_SELECT, 2, 1);
    assert_int_equal(get_common(COMMON_QUEUE_SIZE, 2), 0);
    common(COMMON_QUEUE_DESC, 4, 1); /* of no queue */
    common(COMMON_QUEUE_SELECT, 2, 0);
    assert_int_equal(get_common(COMMON_QUEUE_SIZE, 2), 64);
    common(COMMON_QUEUE_SIZE, 2, 8);
    common(COMMON_QUEUE_DESC, 4, RING_DESC);
    common(COMMON_QUEUE_DESC + 4, 4, 0);
    common(COMMON_QUEUE_AVAIL, 4, RING_AVAIL);
    common(COMMON_QUEUE_AVAIL + 4, 4, 0);
    common(COMMON_QUEUE_USED, 4, RING_USED);
    common(COMMON_QUEUE_USED + 4, 4, 0);
    assert_int_equal(get_common(COMMON_QUEUE_USED, 4), RING_USED);
    common(COMMON_QUEUE_ENABLE, 2, 1);
    assert_int_equal(get_common(COMMON_QUEUE_ENABLE, 2), 1);
    common(COMMON_QUEUE_DESC, 4, 0x5000); /* too late */
    assert_int_equal(get_common(COMMON_QUEUE_DESC, 4), RING_DESC);
    common(COMMON_STATUS, 1, 15);
    assert_int_equal(get_common(COMMON_STATUS, 1), 15);
}

static void a_driver_gets_its_bytes_and_its_interrupt(void **state)
{
    unsigned irq = route(1, 0);

    (void)state;
    drive_by_registers();
    put_desc(&ram, RING_DESC, 0, RING_DATA, 16, D_WRITE, 0);
    put_avail(&ram, 8, 0);
    set_config(1, PCI_COMMAND, 2, PCI_COMMAND_MEMORY); /* no bus master, no DMA */
    bus_write(&mmio, BAR_0(1) + VIRTIO_PCI_NOTIFY, 2, 0);
    assert_int_equal(ram.written, 0);
    set_config(1, PCI_COMMAND, 2, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
    bus_write(&mmio, BAR_0(1) + VIRTIO_PCI_NOTIFY, 2, 0);
    assert_int_equal(used_index(&ram), 1);
    assert_int_equal(ram.bytes[RING_DATA + 15], 7);
    assert_true(line[irq]);
    assert_int_equal(bus_read(&mmio, BAR_0(1) + VIRTIO_PCI_ISR, 1), 1);
    assert_false(line[irq]);
    assert_int_equal(bus_read(&mmio, BAR_0(1) + VIRTIO_PCI_ISR, 1), 0);
}

static void a_broken_ring_is_seen_in_the_registers(void **state)
{
    (void)state;
    drive_by_registers();
    put(&ram, RING_AVAIL + 2, 2, 9);
    bus_write(&mmio, BAR_0(1) + VIRTIO_PCI_NOTIFY, 2, 0);
    assert_int_equal(get_common(COMMON_STATUS, 1), 15 | VIRTIO_NEEDS_RESET);
    assert_true(line[route(1, 0)]);
    assert_int_equal(bus_read(&mmio, BAR_0(1) + VIRTIO_PCI_ISR, 1), 2);
    common(COMMON_STATUS, 1, 0);
    assert_int_equal(get_common(COMMON_STATUS, 1), 0);
}

static void the_bar_can_be_reached_through_configuration_space(void **state)
{
    unsigned cap = find_capability(1, 5);

    (void)state;
    set_config(1, cap + 4, 1, 0);
    set_config(1, cap + 8, 4, COMMON_QUEUES);
    set_config(1, cap + 12, 4, 2);
    assert_int_equal(config(1, cap + 16, 2), 1);
    set_config(1, cap + 8, 4, COMMON_QUEUE_SELECT);
    set_config(1, cap + 16, 2, 0x1234);
    assert_int_equal(rng[0].vd.queue_select, 0x1234);
    assert_int_equal(config(1, cap + 16, 2), 0x1234);
    /* aimed wrongly: plain bytes */
    set_config(1, cap + 8, 4, VIRTIO_PCI_BAR_BYTES);
    set_config(1, cap + 16, 4, 0xffffffff);
    set_config(1, cap + 8, 4, COMMON_QUEUE_SELECT + 1);
    set_config(1, cap + 16, 2, 0);
    set_config(1, cap + 12, 4, 3);
    set_config(1, cap + 16, 2, 0);
    set_config(1, cap + 4, 1, 1);
    set_config(1, cap + 16, 2, 0);
    assert_int_equal(rng[0].vd.queue_select, 0x1234);
}

static void state_goes_round(void **state)
{
    struct bytes saved = {0}, again = {0};
    struct cursor in;

    (void)state;
    /* slot 2's BAR lies over slot 1's, which came first */
    set_config(2, PCI_BAR_0, 4, 0xd0000000);
    set_config(1, PCI_BAR_0, 4, 0xd0000000);
    pci_set_intx(&vp[2].pci, true);
    pci.device.ops->save(&pci.device, &saved);
    pci_reset(&pci);
    assert_false(line[route(3, 0)]);
    in = cursor_of(saved.data, saved.len);
    assert_int_equal(pci.device.ops->restore(&pci.device, &in), 0);
    assert_int_equal(cursor_left(&in), 0);
    assert_true(line[route(3, 0)]);
    assert_int_equal(mmio.count, 3);
    assert_int_equal(vp[0].pci.bar[0].mapped, 0);
    assert_int_equal(vp[1].pci.bar[0].mapped, 0xd0000000);
    pci.device.ops->save(&pci.device, &again);
    assert_int_equal(again.len, saved.len);
    assert_memory_equal(again.data, saved.data, saved.len);
    for (size_t len = 0; len < saved.len; len += 13) {
        in = cursor_of(saved.data, len);
        assert_int_equal(pci.device.ops->restore(&pci.device, &in), -1);
        assert_int_equal(config(1, PCI_BAR_0, 4), BAR_0(1));
        assert_int_equal(mmio.count, 4);
    }
    bytes_free(&saved);
    bytes_free(&again);
}

static void hostile_state_never_crashes(void **state)
{
    struct bytes saved = {0};
    uint64_t seed = 9;

    (void)state;
    pci.device.ops->save(&pci.device, &saved);
    for (unsigned i = 0; i < 2000; i++) {
        uint8_t bytes[2048];
        struct cursor in = cursor_of(bytes, saved.len);

        assert_true(saved.len <= sizeof bytes);
        memcpy(bytes, saved.data, saved.len);
        for (unsigned n = 0; n < (i % 4 ? 3 : saved.len); n++)
            bytes[random_next(&seed) % saved.len] = (uint8_t)(random_next(&seed) >> 20);
        pci.device.ops->restore(&pci.device, &in);
        assert_int_equal(config(1, PCI_VENDOR_ID, 4), 0x10441af4);
        assert_true(mmio.count <= 4);
    }
    bytes_free(&saved);
}

static void hostile_accesses_never_crash(void **state)
{
    uint64_t seed = 21;

    (void)state;
    for (unsigned i = 0; i < rounds(1000000); i++) {
        uint64_t r = random_next(&seed);
        unsigned size = 1u << (r & 3);
        unsigned port_size = size < 8 ? size : 4;
        uint64_t value = random_next(&seed) >> (r >> 2 & 63);
        uint64_t in_bar = BAR_0(1) + (r >> 8 & 0x13fff);

        if (r >> 40 & 1)
            in_bar = BAR_0(1) + VIRTIO_PCI_NOTIFY * (r >> 41 & 3) + (r >> 8 & 0x3f);
        switch (r >> 60 & 7) {
        case 0:
            aim((unsigned)(r >> 8 & 7), (unsigned)(r >> 16 & 0xff));
            break;
        case 1:
            bus_write(&pio, 0xcf8 + (r >> 8 & 7), port_size, value);
            break;
        case 2:
            bus_read(&pio, 0xcf8 + (r >> 8 & 7), port_size);
            break;
        case 3:
            bus_read(&mmio, in_bar, size);
            break;
        default:
            bus_write(&mmio, in_bar, size, value);
        }
        if (i % 1000 == 0)
            pci_reset(&pci); /* find the BARs again */
    }
    for (unsigned slot = 1; slot <= 4; slot++)
        assert_int_equal(config(slot, PCI_VENDOR_ID, 4), 0x10441af4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(mechanism_1_is_found_as_linux_looks_for_it),
        TEST(absent_functions_read_as_ones),
        TEST(every_access_size_reads_the_same_registers),
        TEST(devices_are_ready_without_firmware),
        TEST(bar_tells_its_size),
        TEST(bar_can_be_moved_and_switched_off),
        TEST(one_bar_over_another_waits_for_its_place),
        TEST(reset_control_asks_for_a_reset),
        TEST(shared_lines_are_the_or_of_their_devices),
        TEST(slots_run_out),
        TEST(capabilities_describe_the_bar),
        TEST(a_driver_gets_its_bytes_and_its_interrupt),
        TEST(a_broken_ring_is_seen_in_the_registers),
        TEST(the_bar_can_be_reached_through_configuration_space),
        TEST(state_goes_round),
        TEST(hostile_state_never_crashes),
        TEST(hostile_accesses_never_crash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
