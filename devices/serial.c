#include "devices/serial.h"

#include <assert.h>
#include <string.h>

#include "devices/byte_ports.h"

enum {
    REG_DATA = 0, /* or divisor latch, low byte */
    REG_IER = 1,  /* or divisor latch, high byte */
    REG_IIR_FCR = 2,
    REG_LCR = 3,
    REG_MCR = 4,
    REG_LSR = 5,
    REG_MSR = 6,
    REG_SCRATCH = 7,
};

#define IER_RX    0x01
#define IER_THRE  0x02
#define IER_LINE  0x04
#define IER_MODEM 0x08
#define IER_BITS  0x0f

#define IIR_NONE     0x01
#define IIR_MODEM    0x00
#define IIR_THRE     0x02
#define IIR_RX       0x04
#define IIR_LINE     0x06
#define IIR_TIMEOUT  0x0c
#define IIR_FIFOS_ON 0xc0

#define FCR_ENABLE   0x01
#define FCR_CLEAR_RX 0x02
#define FCR_KEPT     0xc9 /* enable, DMA mode, trigger level */

#define MCR_RTS  0x02
#define MCR_DTR  0x01
#define MCR_OUT1 0x04
#define MCR_OUT2 0x08
#define MCR_BITS 0x1f

#define LSR_DATA_READY 0x01
#define LSR_OVERRUN    0x02
#define LSR_TX_IDLE    0x60 /* holding register and shift register empty */

#define MSR_CTS       0x10
#define MSR_DSR       0x20
#define MSR_RING      0x40
#define MSR_CARRIER   0x80
#define MSR_RING_FELL 0x04

static unsigned capacity(const struct serial *serial)
{
    return serial->fcr & FCR_ENABLE ? SERIAL_FIFO_BYTES : 1;
}

static unsigned trigger_level(const struct serial *serial)
{
    static const uint8_t levels[4] = {1, 4, 8, 14};

    return serial->fcr & FCR_ENABLE ? levels[serial->fcr >> 6] : 1;
}

/* The pending interrupt of the highest priority, as the IIR names it. */
static uint8_t interrupt_identity(const struct serial *serial)
{
    if (serial->overrun && serial->ier & IER_LINE)
        return IIR_LINE;
    if (serial->received && serial->ier & IER_RX)
        return serial->received >= trigger_level(serial) ? IIR_RX : IIR_TIMEOUT;
    if (serial->thr_empty_pending && serial->ier & IER_THRE)
        return IIR_THRE;
    if (serial->modem_deltas && serial->ier & IER_MODEM)
        return IIR_MODEM;
    return IIR_NONE;
}

static void update_irq(const struct serial *serial)
{
    /* Loopback takes OUT2 off its pin, and with it the interrupt off the bus. */
    bool gate = serial->mcr & MCR_OUT2 && !(serial->mcr & SERIAL_MCR_LOOPBACK);

    irq_pin_set(&serial->irq, gate && interrupt_identity(serial) != IIR_NONE);
}

static uint8_t modem_inputs(uint8_t mcr)
{
    if (!(mcr & SERIAL_MCR_LOOPBACK))
        return MSR_CTS | MSR_DSR | MSR_CARRIER;
    return (uint8_t)((mcr & MCR_RTS ? MSR_CTS : 0) | (mcr & MCR_DTR ? MSR_DSR : 0) |
                     (mcr & MCR_OUT1 ? MSR_RING : 0) | (mcr & MCR_OUT2 ? MSR_CARRIER : 0));
}

static void write_mcr(struct serial *serial, uint8_t value)
{
    uint8_t before = modem_inputs(serial->mcr);

    serial->mcr = value & MCR_BITS;
    uint8_t after = modem_inputs(serial->mcr);
    uint8_t changed = (uint8_t)((before ^ after) >> 4);
    /* Ring reports only its trailing edge. */
    if (after & MSR_RING)
        changed &= (uint8_t)~MSR_RING_FELL;
    serial->modem_deltas |= changed;
}

static void write_fcr(struct serial *serial, uint8_t value)
{
    bool switched = (serial->fcr ^ value) & FCR_ENABLE;

    if (switched || (value & FCR_ENABLE && value & FCR_CLEAR_RX))
        serial->received = 0;
    /* The other bits can be programmed only while the FIFOs are (being) enabled. */
    serial->fcr = value & FCR_ENABLE ? value & FCR_KEPT : 0;
}

static void transmit(struct serial *serial, uint8_t byte)
{
    if (!(serial->mcr & SERIAL_MCR_LOOPBACK)) {
        if (serial->tx)
            serial->tx(serial->tx_opaque, byte);
    } else if (serial->received < capacity(serial)) {
        serial->fifo[serial->received++] = byte;
    } else {
        serial->overrun = true;
    }
    /* The holding register was full for an instant: the interrupt falls and rises, and the
     * edge-triggered interrupt controller sees it. */
    serial->thr_empty_pending = false;
    update_irq(serial);
    serial->thr_empty_pending = true;
}

static void write_register(void *dev, unsigned reg, uint8_t value)
{
    struct serial *serial = dev;

    if (serial->lcr & SERIAL_LCR_DLAB && reg <= REG_IER) {
        serial->divisor[reg] = value;
        return;
    }
    switch (reg) {
    case REG_DATA:
        transmit(serial, value);
        break;
    case REG_IER:
        /* Enabling the interrupt while the holding register is empty raises it. */
        if (value & ~serial->ier & IER_THRE)
            serial->thr_empty_pending = true;
        serial->ier = value & IER_BITS;
        break;
    case REG_IIR_FCR:
        write_fcr(serial, value);
        break;
    case REG_LCR:
        serial->lcr = value;
        break;
    case REG_MCR:
        write_mcr(serial, value);
        break;
    case REG_SCRATCH:
        serial->scratch = value;
        break;
    default: /* LSR and MSR are read only */
        return;
    }
    update_irq(serial);
}

static uint8_t read_data(struct serial *serial)
{
    if (!serial->received)
        return 0;
    uint8_t byte = serial->fifo[0];
    serial->received--;
    memmove(serial->fifo, serial->fifo + 1, serial->received);
    return byte;
}

static uint8_t read_register(void *dev, unsigned reg)
{
    struct serial *serial = dev;
    uint8_t value;

    if (serial->lcr & SERIAL_LCR_DLAB && reg <= REG_IER)
        return serial->divisor[reg];
    switch (reg) {
    case REG_DATA:
        value = read_data(serial);
        break;
    case REG_IER:
        return serial->ier;
    case REG_IIR_FCR:
        value = interrupt_identity(serial);
        /* Reading this cause takes it back; the others go with their registers. */
        if (value == IIR_THRE)
            serial->thr_empty_pending = false;
        if (serial->fcr & FCR_ENABLE)
            value |= IIR_FIFOS_ON;
        break;
    case REG_LCR:
        return serial->lcr;
    case REG_MCR:
        return serial->mcr;
    case REG_LSR:
        value = (uint8_t)(LSR_TX_IDLE | (serial->received ? LSR_DATA_READY : 0) |
                          (serial->overrun ? LSR_OVERRUN : 0));
        serial->overrun = false;
        break;
    case REG_MSR:
        value = modem_inputs(serial->mcr) | serial->modem_deltas;
        serial->modem_deltas = 0;
        break;
    default:
        return serial->scratch;
    }
    update_irq(serial);
    return value;
}

size_t serial_room(const struct serial *serial)
{
    assert(serial->received <= SERIAL_FIFO_BYTES);
    if (serial->mcr & SERIAL_MCR_LOOPBACK || serial->received >= capacity(serial))
        return 0;
    return capacity(serial) - serial->received;
}

size_t serial_receive(struct serial *serial, const uint8_t *data, size_t len)
{
    size_t room = serial_room(serial);
    size_t taken = len < room ? len : room;

    if (!taken)
        return 0;
    memcpy(serial->fifo + serial->received, data, taken);
    serial->received += (unsigned)taken;
    update_irq(serial);
    return taken;
}

static uint64_t serial_in(void *dev, uint64_t offset, unsigned size)
{
    return byte_ports_read(read_register, dev, offset, size);
}

static void serial_out(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    byte_ports_write(write_register, dev, offset, size, value);
}

int serial_attach(struct serial *serial, struct bus *pio, uint16_t base, struct err *e)
{
    static const struct bus_ops ops = {serial_in, serial_out};
    const struct bus_range range = {
        .base = base, .size = 8, .ops = &ops, .dev = serial, .name = "serial"};

    return bus_add(pio, &range, e);
}

static void reset(struct serial *serial)
{
    serial->ier = serial->fcr = serial->lcr = serial->mcr = serial->scratch = 0;
    serial->divisor[0] = 12; /* 9600 baud */
    serial->divisor[1] = 0;
    serial->modem_deltas = 0;
    serial->overrun = serial->thr_empty_pending = false;
    serial->received = 0;
    update_irq(serial);
}

#define STATE_VERSION 1

static void save(const struct device *dev, struct bytes *out)
{
    const struct serial *serial = (const struct serial *)dev;
    const uint8_t registers[] = {
        serial->ier,
        serial->fcr,
        serial->lcr,
        serial->mcr,
        serial->scratch,
        serial->divisor[0],
        serial->divisor[1],
        serial->modem_deltas,
        (uint8_t)(serial->overrun | serial->thr_empty_pending << 1),
    };

    bytes_put_u8(out, STATE_VERSION);
    bytes_put(out, registers, sizeof(registers));
    bytes_put_u8(out, (uint8_t)serial->received);
    bytes_put(out, serial->fifo, serial->received);
}

static bool restore_registers(struct serial *serial, struct cursor *in)
{
    if (cursor_u8(in) != STATE_VERSION)
        return false;
    serial->ier = cursor_u8(in);
    serial->fcr = cursor_u8(in);
    serial->lcr = cursor_u8(in);
    serial->mcr = cursor_u8(in);
    serial->scratch = cursor_u8(in);
    cursor_get(in, serial->divisor, sizeof(serial->divisor));
    serial->modem_deltas = cursor_u8(in);
    uint8_t flags = cursor_u8(in);
    serial->overrun = flags & 1;
    serial->thr_empty_pending = flags & 2;
    uint8_t received = cursor_u8(in);
    serial->received = 0;
    if (in->bad || serial->ier & ~IER_BITS || serial->mcr & ~MCR_BITS || serial->fcr & ~FCR_KEPT ||
        (serial->fcr && !(serial->fcr & FCR_ENABLE)) || serial->modem_deltas & ~0x0f ||
        flags & ~3 || received > capacity(serial))
        return false;
    cursor_get(in, serial->fifo, received);
    serial->received = received;
    return !in->bad;
}

static int restore(struct device *dev, struct cursor *in)
{
    struct serial *serial = (struct serial *)dev;

    if (!restore_registers(serial, in)) {
        reset(serial);
        return -1;
    }
    update_irq(serial);
    return 0;
}

static const struct device_ops serial_ops = {.name = "serial", .save = save, .restore = restore};

void serial_init(struct serial *serial, struct irq_pin irq, void (*tx)(void *opaque, uint8_t byte),
                 void *tx_opaque)
{
    *serial = (struct serial){.dev.ops = &serial_ops, .irq = irq, .tx = tx, .tx_opaque = tx_opaque};
    reset(serial);
}
