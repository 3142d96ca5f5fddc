#ifndef REPLAY_PCAPNG_H
#define REPLAY_PCAPNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Files of captured frames, pcapng (draft-ietf-opsawg-pcapng), little-endian, with nanoseconds.
 * First the head, then an interface for each NIC, in order, then frames. Errors show in
 * ferror(out).
 */
void pcapng_put_head(FILE *out, const char *application);
void pcapng_put_interface(FILE *out, const char *name, const uint8_t mac[6]);
/* time_ns: since 1970 UTC. */
void pcapng_put_frame(FILE *out, unsigned interface, uint64_t time_ns, bool is_sent,
                      const uint8_t *frame, size_t len);

#endif
