#ifndef HOST_NET_BACKEND_CHILD_H
#define HOST_NET_BACKEND_CHILD_H

#include "base/wire.h"
#include "host/net/net_spec.h"

/*
 * A backend that is a process of ours: a child, which has nothing of us but standard error and its
 * end of the wire.
 */
struct backend_child {
    /* In the child: what can fail. NULL, or a text that says what is wrong (its own, or static). */
    const char *(*prepare)(const struct net_spec *spec, int wire);
    /* Then, until the wire ends; it does not return before. */
    void (*serve)(const struct net_spec *spec, int wire);
};

/* Start one. The machine's end of the wire, or -1. */
int backend_child_start(const struct backend_child *child, const struct net_spec *spec,
                        struct err *e);

/* In the child, once it has all that only root can have: be nobody. NULL, or what is wrong. */
const char *backend_child_drop_rights(void);

/* Frames on a wire (base/wire.h). To write one, whole, waiting for its reader; to read what there
 * is. -1: the wire has ended. */
int wire_write(int wire, const uint8_t *frame, size_t len);
int wire_read(int wire, struct wire_queue *in);

#endif
