#ifndef HOST_VMX_H
#define HOST_VMX_H

#include "base/err.h"

/*
 * The emulated Intel host: a stock kvm_intel on the VMX and EPT that Bochs emulates, for tests.
 * guest-tools/khost-vmx builds it into datadir/vmx and holds run.sh, which carries files in and
 * out. A command has no terminal there, no input and no network.
 */

/* 0 when it is in datadir; -1 with what to do. */
int vmx_available(const char *datadir, struct err *e);

/*
 * Becomes argv (argv[0]: absolute path of an executable) in the emulated Intel host with memory_mib
 * MiB for it, in the current directory. Of the files outside those are there that argv names, also
 * as NAME@PLACE or OPTION=NAME. What it writes into the current directory comes back; nothing locks
 * it. Returns -1 with *e set when it could not be started.
 */
int vmx_run(const char *datadir, unsigned memory_mib, char **argv, struct err *e);

#endif
