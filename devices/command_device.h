#ifndef DEVICES_COMMAND_DEVICE_H
#define DEVICES_COMMAND_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/command_protocol.h"
#include "base/err.h"
#include "devices/device.h"
#include "devices/device_request.h"
#include "devices/pci.h"
#include "mmu/dma.h"

/*
 * The guest's end of the streams and the status of the one command that a machine runs
 * (base/command_protocol.h). Only such a machine has this device.
 */

/* What is outside of the machine. */
struct command_link {
    /* Take up to len bytes of input that have come; 0: none yet, -1: there will be no more. */
    int (*take)(struct command_link *link, uint8_t *data, size_t len);
    /* Output of the command. False: nobody takes it any more. */
    bool (*put)(struct command_link *link, bool is_error, const uint8_t *data, size_t len);
    /* COMMAND_BEGINS, COMMAND_EXITED or COMMAND_FAILED, with its value. */
    void (*note)(struct command_link *link, enum command_call call, uint32_t value);
};

struct command_device {
    struct device dev;
    struct dma *dma;
    struct command_link *link; /* NULL: nothing comes, and nobody looks */
    struct machine_request_pin requests;
    struct pci_device pci;
    bool waits; /* for the console's line to say that there is input */
};

/* dma and link stay the caller's. */
void command_device_init(struct command_device *device, struct dma *dma, struct command_link *link,
                         struct machine_request_pin requests);
int command_device_attach(struct command_device *device, struct pci_bus *bus, struct err *e);

#endif
