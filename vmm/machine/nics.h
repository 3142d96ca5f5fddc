#ifndef VMM_MACHINE_NICS_H
#define VMM_MACHINE_NICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/pc.h"
#include "recorder/recorder.h"
#include "vmm/machine/net_wire.h"

/*
 * The NICs of a live machine: what stands between its virtio-net devices and their wires. Frames go
 * in and out at sync points only: a doorbell's, and those where nics_exchange() is called. Each is
 * noted in the recording before the device touches memory for it.
 */

/* What a machine is to have. */
struct nic_config {
    uint8_t mac[MAC_BYTES];
    int fd; /* the wire, which the machine takes over; -1: it is plugged in nowhere */
};

struct nics {
    struct nic *nic; /* `count` of them */
    unsigned count;  /* at most MAX_NICS */
    struct pc *pc;
    struct recorder *recorder; /* set by the owner; NULL: none */
};

/* Before the devices of `pc` are made, which get the links. What was opened is freed by
 * nics_close(), also when this fails. */
int nics_open(struct nics *nics, struct pc *pc, const struct nic_config *config, unsigned count,
              struct err *e);
void nics_close(struct nics *nics);
struct net_link *nics_link(struct nics *nics, unsigned index);

/* From here on notify(opaque) is called, on another thread, when there may be something to
 * exchange; until nics_ignore(). */
void nics_listen(struct nics *nics, void (*notify)(void *opaque), void *opaque);
void nics_ignore(struct nics *nics);

/* Whether frames wait for a driver that could come in or go out now. Any time: it only looks. */
bool nics_have_frames(struct nics *nics);
/* The machine stands at a sync point: they do. Some, if there are very many. */
void nics_exchange(struct nics *nics);

#endif
