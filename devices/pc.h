#ifndef DEVICES_PC_H
#define DEVICES_PC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "devices/apic_bus.h"
#include "devices/bus.h"
#include "devices/command_device.h"
#include "devices/device_request.h"
#include "devices/disk/disk_set.h"
#include "devices/i8042.h"
#include "devices/ioapic.h"
#include "devices/irqchip.h"
#include "devices/lapic.h"
#include "devices/mark_port.h"
#include "devices/pci.h"
#include "devices/pit.h"
#include "devices/pmtimer.h"
#include "devices/rtc.h"
#include "devices/serial.h"
#include "devices/virtio/virtio_blk.h"
#include "devices/virtio/virtio_net.h"
#include "devices/virtio/virtio_pci.h"
#include "devices/virtio/virtio_rng.h"
#include "mmu/dma.h"

/*
 * All devices of a machine. What they are is a function of what is given to them here and of
 * nothing else: the guest's accesses, device time, console input, memory and disk through `dma` and
 * `disk`, frames of a network, entropy. So the devices of a live machine (vmm/machine/machine.h)
 * and those that follow a replay (replay/live/shadow.h), given the same, are the same.
 */
struct pc_config {
    struct dma *dma;              /* the devices' way to guest memory; stays the caller's */
    const struct disk_set *disks; /* NULL: none; stays the caller's */
    struct block_link *disk_links[MAX_DISKS]; /* of as many; they stay the caller's */
    struct {
        struct net_link *link; /* stays the caller's */
        uint8_t mac[MAC_BYTES];
    } nics[MAX_NICS];
    unsigned nic_count;
    uint64_t epoch_ns; /* the time of day, ns since 1970 UTC, when device time was 0 */
    void (*transmit)(void *opaque, uint8_t byte); /* console output; NULL: nobody looks */
    void *transmit_opaque;
    void (*entropy)(void *opaque, void *buf, size_t len);
    bool has_command; /* the machine runs one command (command_device.h), */
    struct command_link
        *command;  /* ... and where its streams lead; stays the caller's, may be NULL */
    unsigned cpus; /* 1 to APIC_CPUS_MAX; several have local APICs and an IOAPIC, one has none */
    void (*request)(void *opaque, enum machine_request request); /* the guest wants to end */
    /* What one of several CPUs does to another, or to itself, by its local APIC. */
    void (*cpu_request)(void *opaque, unsigned cpu, enum cpu_request request, uint8_t vector);
    void (*mark)(void *opaque, const char *text); /* see struct mark_pin; NULL: nobody listens */
    void *opaque;                                 /* of entropy, of the requests and of mark */
};

/* Time as the devices see it: it stands still during an access. */
struct pc_time {
    struct device_time ops;
    uint64_t now_ns, epoch_ns;
    bool asked; /* since the access began */
};

struct pc {
    struct pc_config config;
    struct pc_time time;
    struct bus pio, mmio;
    struct irqchip irqchip;
    struct apic_bus apics;
    struct lapic lapics[APIC_CPUS_MAX];
    struct ioapic ioapic;
    struct pit pit;
    struct rtc rtc;
    struct serial serial;
    struct i8042 i8042;
    struct pmtimer pmtimer;
    struct mark_port mark_port;
    struct command_device command; /* if config.has_command */
    struct pci_bus pci;
    struct pc_disk {
        struct virtio_blk blk;
        struct virtio_pci pci;
    } disks[MAX_DISKS]; /* config.disks->count of them */
    struct virtio_rng rng;
    struct virtio_pci rng_pci;
    struct pc_nic {
        struct virtio_net net;
        struct virtio_pci pci;
    } nics[MAX_NICS];           /* config.nic_count of them */
    struct device *devices[32]; /* all of the above but mark_port, for poll and save */
    unsigned device_count;
};

/* As firmware leaves them, at device time 0. pc must not move afterwards. */
int pc_init(struct pc *pc, const struct pc_config *config, struct err *e);
/* The machine is reset at this device time: they are as firmware leaves them, but for the time of
 * day and what the guest had set the RTC to. */
int pc_reset(struct pc *pc, uint64_t now, struct err *e);
/* Of one that pc_init() has tried to make, or of zeroes: free what it holds. No disk has a job any
 * more. */
void pc_close(struct pc *pc);

/* From here on the time of day, ns since 1970 UTC, is this one: the RTC shows it, but for what the
 * guest itself has set it before or after. */
void pc_set_wall(struct pc *pc, uint64_t wall_ns);

/*
 * An access of the guest at device time now: what is read goes to access->data. Returns whether it
 * has shown the devices what time it is, so that their state depends on it; a read of the PM timer
 * does not count, which shows it to the guest only.
 */
bool pc_serve(struct pc *pc, const struct bus_access *access, uint64_t now);

/* Whether a device may use the guest's memory at this access: by ringing a doorbell. */
bool pc_may_use_memory(const struct bus_access *access);

bool pc_is_pm_timer(const struct bus_access *access);

/* Whether an MSR is one of a local APIC's, and there are such. */
bool pc_has_msr(const struct pc *pc, uint32_t msr);
/* The same for a CPU's RDMSR or WRMSR of it: *value is what is read or written, *ok is whether it
 * is no #GP. */
bool pc_serve_msr(struct pc *pc, unsigned cpu, uint32_t msr, bool write, uint64_t now,
                  uint64_t *value, bool *ok);

/* Whether there is an interrupt for a CPU, and its vector, for when it takes it. */
bool pc_irq_pending(const struct pc *pc, unsigned cpu);
uint8_t pc_irq_acknowledge(struct pc *pc, unsigned cpu);
/* A CPU's local APIC, or NULL. */
struct lapic *pc_lapic(struct pc *pc, unsigned cpu);

/* When pc_poll() must next run, in device time, or NEVER. */
uint64_t pc_deadline(struct pc *pc, uint64_t now);
/* Bring all devices up to device time now. */
void pc_poll(struct pc *pc, uint64_t now);

/*
 * Everything that the devices are at device time pc->time.now_ns, the time included, but neither
 * what is on the disk nor in memory. Restoring wants devices that pc_init() has just made, with or
 * without a disk as the saved ones; 0, or -1 when the bytes are not such a state.
 */
void pc_save(const struct pc *pc, struct bytes *out);
int pc_restore(struct pc *pc, struct cursor *in);

#endif
