#ifndef RECORDING_ORDER_ACCESS_TEXT_H
#define RECORDING_ORDER_ACCESS_TEXT_H

#include <stdio.h>

#include "base/err.h"
#include "recording/order/access.h"

/*
 * Accesses as text, for experiments and other programs' traces: one a line, in the order of
 * recording/order/access.h,
 *
 *   VCPU load|store OBJECT [POINT]
 *
 * with a vCPU from 0 to MAX_VCPUS - 1 and an object's number of 64 bits, decimal or 0x and
 * hexadecimal. A vCPU's points never fall; where there is none it is one more than at its access
 * before, and 0 at its first. What follows a '#' is a comment; a line may be empty. Lines are
 * shorter than 128 bytes.
 */

/* Read all of it; `name` is for errors. *list, which is the caller's to free, is made by the call;
 * its vCPUs are as many as the highest number says. -1 with *e, and *list empty. */
int access_text_read(struct access_list *list, FILE *in, const char *name, struct err *e);

/* Write one line. Errors stay in `out`. */
void access_text_write(FILE *out, const struct access *a);

#endif
