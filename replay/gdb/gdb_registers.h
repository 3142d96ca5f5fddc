#ifndef REPLAY_GDB_GDB_REGISTERS_H
#define REPLAY_GDB_GDB_REGISTERS_H

#include "base/bytes.h"
#include "base/err.h"
#include "vmm/kvm/vcpu_state.h"

/* The registers as gdb sees them: one table, from which both the description that gdb reads at the
 * start (target.xml) and the contents come. */

extern const unsigned gdb_register_count;

/* The numbers of the few that a stop reply carries along: gdb asks for them after every step. */
enum { GDB_REGISTER_RBP = 6, GDB_REGISTER_RSP = 7, GDB_REGISTER_RIP = 16 };

void gdb_registers_xml(struct bytes *out);

/* Append the contents in hex: of all, or of one. */
void gdb_registers_put(struct bytes *out, const struct vcpu_state *state);
void gdb_register_put(struct bytes *out, const struct vcpu_state *state, unsigned number);

/* Change one (number: below gdb_register_count), or all, to what these bytes are. -1 when there are
 * too few or too many, or when a segment would be another one: its descriptor is not gdb's. */
int gdb_register_set(struct vcpu_state *state, unsigned number, const struct bytes *data,
                     struct err *e);
int gdb_registers_set(struct vcpu_state *state, const struct bytes *data, struct err *e);

#endif
