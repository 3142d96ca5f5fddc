#ifndef HOST_EMULATED_PROCESS_H
#define HOST_EMULATED_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/limits.h"

#define EMULATED_PORTS 4

/* One running QEMU. */
struct emulated_process {
    pid_t pid;
    int ports[EMULATED_PORTS]; /* our ends, in the order of the KHOST_PORT_ numbers */
    int said;                  /* what QEMU wrote to stderr: an unnamed file, nothing to clean up */
};

#define EMULATED_NO_PROCESS                                                                        \
    ((struct emulated_process){.pid = -1, .ports = {-1, -1, -1, -1}, .said = -1})

/* What QEMU gets besides its ports, at EMULATED_GDB_FD and so on (emulated_args.h); -1: not. */
struct emulated_passed {
    int gdb, state, monitor, nets[MAX_NICS], control;
};
#define EMULATED_PASSED_NONE                                                                       \
    ((struct emulated_passed){                                                                     \
        .gdb = -1, .state = -1, .monitor = -1, .nets = {-1, -1, -1, -1}, .control = -1})

/*
 * Start args[0] (looked for in PATH) with the ports' other ends at EMULATED_FIRST_PORT_FD and
 * behind. Its stdout goes to our stderr with show_console, else to where its own stderr goes. It
 * dies with the calling thread. -1 with *e set when it cannot be started; emulated_process_stop()
 * in any case.
 */
int emulated_process_start(struct emulated_process *p, char **args,
                           const struct emulated_passed *passed, bool show_console, struct err *e);

/* Kills it; everything its command wrote is in the outer kernel's hands already. */
void emulated_process_stop(struct emulated_process *p);

/* How long its threads were ready to run and had no CPU, added up, in ms (proc(5), schedstat).
 * 0 for pid -1, and where the kernel does not count it. */
uint64_t emulated_process_starved_ms(pid_t pid);

/* Completes the clause in *e, "the emulated host ended ...", by what QEMU said, or by how to see
 * more. */
void emulated_process_explain(const struct emulated_process *p, struct err *e);

#endif
