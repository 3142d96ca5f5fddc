#ifndef REPLAY_GDB_GDB_PACKET_H
#define REPLAY_GDB_GDB_PACKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/*
 * The framing of gdb's remote protocol: $DATA#CHECKSUM, acknowledged by + and - until both agree to
 * do without. Nothing that a client sends does more harm than to end its own session.
 */
#define GDB_PACKET_MAX 16384u

/* How often waiting looks at `quit`. */
#define GDB_TICK_MS 500

struct gdb_link {
    int fd; /* a socket or a virtio-serial port; non-blocking */
    const atomic_int *quit;
    bool no_ack;
    size_t start, end; /* what of in[] is still to be looked at */
    uint8_t in[4096];
    size_t len;
    uint8_t packet[GDB_PACKET_MAX + 1]; /* without escapes, and with a NUL behind it */
    struct bytes sent;                  /* the last frame: the client may want it again */
    unsigned resent;
};

/* Makes fd non-blocking; it stays the caller's. SIGPIPE must be ignored. quit: see gdb_target.h. */
void gdb_link_init(struct gdb_link *l, int fd, const atomic_int *quit);
void gdb_link_free(struct gdb_link *l);

/* Wait for a packet: packet[] and len. Damaged ones are answered here. -1: the client is gone, or
 * quit. */
int gdb_link_receive(struct gdb_link *l);

/* Frame and send. -1: the client is gone, or quit. */
int gdb_link_send(struct gdb_link *l, const void *data, size_t len);

/*
 * The packet that was received is a client's first. Acknowledge from now on, it to begin with; and
 * drop what repeats it: that client has come before there was a server (host/host.c), has become
 * impatient, and would take the answer to each for the answer to something else.
 */
int gdb_link_restart(struct gdb_link *l);

/*
 * For who watches the connection while nobody receives: read what has come into in[], as far as
 * there is room.
 */
enum gdb_fill {
    GDB_FILL_NOTHING,
    GDB_FILL_ACKS,   /* nothing but + and - */
    GDB_FILL_SPEECH, /* anything else: 0x03, or a client that does not wait for its turn */
    GDB_FILL_GONE,
};
enum gdb_fill gdb_link_fill(struct gdb_link *l);
/* The same for what is in in[] already. */
enum gdb_fill gdb_link_pending(const struct gdb_link *l);
/* What poll() shall look for before gdb_link_fill(). */
short gdb_link_events(const struct gdb_link *l);

#endif
