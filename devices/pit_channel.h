#ifndef DEVICES_PIT_CHANNEL_H
#define DEVICES_PIT_CHANNEL_H

#include "devices/pit.h"

/*
 * One counter of the 8254, as a function of its clock. `tick` is the current tick; it never goes
 * back between calls. Before any other call at a tick, the channel must have been settled to it.
 */

/* Let a waiting count take over if its time has come. */
void pit_channel_settle(struct pit_channel *c, uint64_t tick);
/* The level of OUT. */
bool pit_channel_out(const struct pit_channel *c, uint64_t tick);
/* The first tick after `after` at which OUT rises, or NEVER. */
uint64_t pit_channel_next_rise(const struct pit_channel *c, uint64_t after);
void pit_channel_set_gate(struct pit_channel *c, bool gate, uint64_t tick);

/* A control word with a read/write field of 1 to 3. */
void pit_channel_control(struct pit_channel *c, uint8_t word);
void pit_channel_write(struct pit_channel *c, uint8_t value, uint64_t tick);
uint8_t pit_channel_read(struct pit_channel *c, uint64_t tick);
void pit_channel_latch_count(struct pit_channel *c, uint64_t tick);
void pit_channel_latch_status(struct pit_channel *c, uint64_t tick);

/* A restored channel, checked: false when no sequence of calls leads to it. */
bool pit_channel_valid(const struct pit_channel *c);

#endif
