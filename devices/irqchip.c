#include "devices/irqchip.h"

#include <assert.h>

#include "devices/byte_ports.h"

#define CASCADE  2
#define NO_LEVEL 8 /* one past the lowest priority */

/* Inputs that are wired for edges on every PC: timer, keyboard and cascade; RTC and FPU. */
static const uint8_t elcr_writable[2] = {0xf8, 0xde};

/* The distance of the highest priority bit in set from the top, or NO_LEVEL. */
static unsigned rank_of(const struct pic *pic, uint8_t set)
{
    for (unsigned rank = 0; rank < 8; rank++)
        if (set & (1u << ((pic->top + rank) & 7)))
            return rank;
    return NO_LEVEL;
}

static uint8_t requests(const struct pic *pic)
{
    return (uint8_t)((pic->latch & ~pic->elcr) | (pic->line & pic->elcr));
}

/*
 * The input to serve next, or NO_LEVEL. cascaded says that the chip's IR2 is another chip: its
 * request is not latched but follows the other chip's output, so that a second interrupt behind
 * the same wire cannot be lost.
 */
static unsigned next_level(const struct pic *pic, bool cascaded)
{
    if (pic->icw_next)
        return NO_LEVEL;

    unsigned wanted = rank_of(pic, (uint8_t)(requests(pic) & ~pic->imr));
    if (wanted == NO_LEVEL)
        return NO_LEVEL;
    unsigned level = (pic->top + wanted) & 7;
    /* In special mask mode a level in service holds others back only while it is not masked. */
    uint8_t holding = pic->special_mask ? (uint8_t)(pic->isr & ~pic->imr) : pic->isr;
    unsigned busy = rank_of(pic, holding);
    if (wanted < busy)
        return level;
    /* Special fully nested mode lets a slave interrupt its own handler. */
    if (pic->special_nested && cascaded && level == CASCADE && wanted == busy)
        return level;
    return NO_LEVEL;
}

/* The master as its inputs stand, with the slave's INT output on IR2. */
static struct pic master_view(const struct irqchip *chip)
{
    struct pic master = chip->pic[0];
    uint8_t bit = 1u << CASCADE;

    master.latch &= (uint8_t)~bit;
    if (next_level(&chip->pic[1], false) != NO_LEVEL)
        master.latch |= bit;
    return master;
}

static unsigned next_on_chip(const struct irqchip *chip, unsigned which)
{
    if (which)
        return next_level(&chip->pic[1], false);
    struct pic master = master_view(chip);
    return next_level(&master, true);
}

static void take_into_service(struct pic *pic, unsigned level)
{
    pic->latch &= (uint8_t) ~(1u << level);
    if (!pic->auto_eoi)
        pic->isr |= (uint8_t)(1u << level);
    else if (pic->rotate_on_auto_eoi)
        pic->top = (level + 1) & 7;
}

bool irqchip_pending(const struct irqchip *chip)
{
    return next_on_chip(chip, 0) != NO_LEVEL;
}

uint8_t irqchip_acknowledge(struct irqchip *chip)
{
    unsigned level = next_on_chip(chip, 0);

    if (level == NO_LEVEL)
        return chip->pic[0].vector_base + 7;
    if (level != CASCADE) {
        take_into_service(&chip->pic[0], level);
        return (uint8_t)(chip->pic[0].vector_base + level);
    }
    unsigned slave_level = next_on_chip(chip, 1);
    take_into_service(&chip->pic[0], CASCADE);
    assert(slave_level != NO_LEVEL);
    take_into_service(&chip->pic[1], slave_level);
    return (uint8_t)(chip->pic[1].vector_base + slave_level);
}

void irqchip_set(void *opaque, unsigned irq, bool level)
{
    struct irqchip *chip = opaque;

    assert(irq < IRQCHIP_LINES);
    if (irq == CASCADE)
        return;
    struct pic *pic = &chip->pic[irq / 8];
    uint8_t bit = (uint8_t)(1u << (irq % 8));
    if (level) {
        if (!(pic->line & bit))
            pic->latch |= bit;
        pic->line |= bit;
    } else {
        /* A request withdrawn before its acknowledge is gone (data sheet, "edge triggered"). */
        pic->latch &= (uint8_t)~bit;
        pic->line &= (uint8_t)~bit;
    }
}

struct irq_pin irqchip_pin(struct irqchip *chip, unsigned irq)
{
    assert(irq < IRQCHIP_LINES);
    return (struct irq_pin){.set = irqchip_set, .chip = chip, .irq = irq};
}

/* ICW1. Its LTIM bit is ignored, as on every chip set that has an ELCR. */
static void begin_initialization(struct pic *pic, uint8_t icw1)
{
    *pic = (struct pic){
        .line = pic->line,
        .elcr = pic->elcr,
        .vector_base = pic->vector_base,
        .icw_next = 2,
        .icw3_follows = !(icw1 & 0x02),
        .icw4_follows = icw1 & 0x01,
    };
}

static void initialization_word(struct pic *pic, uint8_t value)
{
    switch (pic->icw_next) {
    case 2:
        pic->vector_base = value & 0xf8;
        pic->icw_next = pic->icw3_follows ? 3 : pic->icw4_follows ? 4 : 0;
        break;
    case 3: /* how the chips are wired together is fixed */
        pic->icw_next = pic->icw4_follows ? 4 : 0;
        break;
    default:
        pic->auto_eoi = value & 0x02;
        pic->special_nested = value & 0x10;
        pic->icw_next = 0;
    }
}

/* OCW2: end of interrupt and rotation. */
static void operation_word2(struct pic *pic, uint8_t value)
{
    bool rotate = value & 0x80, specific = value & 0x40, eoi = value & 0x20;
    unsigned level = value & 7;

    if (!eoi) {
        if (!specific)
            pic->rotate_on_auto_eoi = rotate;
        else if (rotate)
            pic->top = (level + 1) & 7;
        return;
    }
    if (!specific) {
        uint8_t ends = pic->special_mask ? (uint8_t)(pic->isr & ~pic->imr) : pic->isr;
        unsigned rank = rank_of(pic, ends);
        if (rank == NO_LEVEL)
            return;
        level = (pic->top + rank) & 7;
    }
    pic->isr &= (uint8_t) ~(1u << level);
    if (rotate)
        pic->top = (level + 1) & 7;
}

/* OCW3: special mask mode, poll command, which register to read. */
static void operation_word3(struct pic *pic, uint8_t value)
{
    if (value & 0x40)
        pic->special_mask = value & 0x20;
    if (value & 0x02)
        pic->reads_isr = value & 0x01;
    pic->poll = value & 0x04;
}

static void write_pic(struct pic *pic, unsigned port, uint8_t value)
{
    if (port == 1) {
        if (pic->icw_next)
            initialization_word(pic, value);
        else
            pic->imr = value;
    } else if (value & 0x10) {
        begin_initialization(pic, value);
    } else if (value & 0x08) {
        operation_word3(pic, value);
    } else {
        operation_word2(pic, value);
    }
}

static uint8_t read_pic(struct irqchip *chip, unsigned which, unsigned port)
{
    struct pic *pic = &chip->pic[which];

    if (pic->poll) { /* the read stands for INTA and answers with the level */
        unsigned level = next_on_chip(chip, which);
        pic->poll = false;
        if (level == NO_LEVEL)
            return 0;
        take_into_service(pic, level);
        return (uint8_t)(0x80 | level);
    }
    if (port == 1)
        return pic->imr;
    if (pic->reads_isr)
        return pic->isr;
    if (which)
        return requests(pic);
    struct pic master = master_view(chip);
    return requests(&master);
}

static uint8_t read_master(void *dev, unsigned port)
{
    return read_pic(dev, 0, port);
}

static uint8_t read_slave(void *dev, unsigned port)
{
    return read_pic(dev, 1, port);
}

static void write_master(void *dev, unsigned port, uint8_t value)
{
    struct irqchip *chip = dev;

    write_pic(&chip->pic[0], port, value);
}

static void write_slave(void *dev, unsigned port, uint8_t value)
{
    struct irqchip *chip = dev;

    write_pic(&chip->pic[1], port, value);
}

static uint8_t read_elcr(void *dev, unsigned port)
{
    struct irqchip *chip = dev;

    return chip->pic[port].elcr;
}

static void write_elcr(void *dev, unsigned port, uint8_t value)
{
    struct irqchip *chip = dev;

    chip->pic[port].elcr = value & elcr_writable[port];
}

static uint64_t master_in(void *dev, uint64_t offset, unsigned size)
{
    return byte_ports_read(read_master, dev, offset, size);
}

static void master_out(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    byte_ports_write(write_master, dev, offset, size, value);
}

static uint64_t slave_in(void *dev, uint64_t offset, unsigned size)
{
    return byte_ports_read(read_slave, dev, offset, size);
}

static void slave_out(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    byte_ports_write(write_slave, dev, offset, size, value);
}

static uint64_t elcr_in(void *dev, uint64_t offset, unsigned size)
{
    return byte_ports_read(read_elcr, dev, offset, size);
}

static void elcr_out(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    byte_ports_write(write_elcr, dev, offset, size, value);
}

int irqchip_attach(struct irqchip *chip, struct bus *pio, struct err *e)
{
    static const struct bus_ops master = {master_in, master_out};
    static const struct bus_ops slave = {slave_in, slave_out};
    static const struct bus_ops elcr = {elcr_in, elcr_out};
    const struct bus_range ranges[] = {
        {.base = 0x20, .size = 2, .ops = &master, .dev = chip, .name = "pic1"},
        {.base = 0xa0, .size = 2, .ops = &slave, .dev = chip, .name = "pic2"},
        {.base = 0x4d0, .size = 2, .ops = &elcr, .dev = chip, .name = "elcr"},
    };

    for (unsigned i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
        if (bus_add(pio, &ranges[i], e))
            return -1;
    return 0;
}

static void reset(struct irqchip *chip)
{
    for (unsigned i = 0; i < 2; i++)
        chip->pic[i] = (struct pic){.imr = 0xff};
}

#define STATE_VERSION 1

static void save(const struct device *dev, struct bytes *out)
{
    const struct irqchip *chip = (const struct irqchip *)dev;

    bytes_put_u8(out, STATE_VERSION);
    for (unsigned i = 0; i < 2; i++) {
        const struct pic *pic = &chip->pic[i];
        const uint8_t registers[] = {pic->line, pic->latch,       pic->elcr, pic->isr,
                                     pic->imr,  pic->vector_base, pic->top,  pic->icw_next};
        bytes_put(out, registers, sizeof(registers));
        bytes_put_u8(out,
                     (uint8_t)(pic->icw3_follows | pic->icw4_follows << 1 | pic->reads_isr << 2 |
                               pic->poll << 3 | pic->special_mask << 4 | pic->special_nested << 5 |
                               pic->auto_eoi << 6 | pic->rotate_on_auto_eoi << 7));
    }
}

static bool restore_pic(struct pic *pic, unsigned which, struct cursor *in)
{
    pic->line = cursor_u8(in);
    pic->latch = cursor_u8(in);
    pic->elcr = cursor_u8(in);
    pic->isr = cursor_u8(in);
    pic->imr = cursor_u8(in);
    pic->vector_base = cursor_u8(in);
    pic->top = cursor_u8(in);
    pic->icw_next = cursor_u8(in);
    uint8_t flags = cursor_u8(in);
    pic->icw3_follows = flags & 0x01;
    pic->icw4_follows = flags & 0x02;
    pic->reads_isr = flags & 0x04;
    pic->poll = flags & 0x08;
    pic->special_mask = flags & 0x10;
    pic->special_nested = flags & 0x20;
    pic->auto_eoi = flags & 0x40;
    pic->rotate_on_auto_eoi = flags & 0x80;
    return !in->bad && !(pic->elcr & ~elcr_writable[which]) && !(pic->vector_base & 7) &&
           pic->top < 8 && pic->icw_next != 1 && pic->icw_next <= 4 && !(pic->latch & ~pic->line);
}

static int restore(struct device *dev, struct cursor *in)
{
    struct irqchip *chip = (struct irqchip *)dev;

    if (cursor_u8(in) == STATE_VERSION && restore_pic(&chip->pic[0], 0, in) &&
        restore_pic(&chip->pic[1], 1, in) && !(chip->pic[0].line & (1u << CASCADE)))
        return 0;
    reset(chip);
    return -1;
}

static const struct device_ops irqchip_ops = {.name = "irqchip", .save = save, .restore = restore};

void irqchip_init(struct irqchip *chip)
{
    chip->dev.ops = &irqchip_ops;
    reset(chip);
}
