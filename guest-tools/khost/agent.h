#ifndef KHOST_AGENT_H
#define KHOST_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest-tools/khost/protocol.h"

/* The outer machine's file tree, as the agent itself sees it; the command sees it as "/". */
#define NEW_ROOT "/new"

/* The decoded request; strings point into the received bytes, which live as long as the agent. */
struct request {
    uint8_t flags;
    uint16_t rows, columns;
    uint32_t uid, gid, umask;
    uint64_t seconds;
    uint32_t nanoseconds;
    uint8_t seed[KHOST_SEED_BYTES];
    size_t group_count;
    gid_t *groups;
    char *cwd;
    char **rw_dirs, **env, **argv;
};

/* The four virtio-serial ports, non-blocking, indexed by KHOST_PORT_*. */
struct ports {
    int fd[KHOST_PORT_STDERR + 1];
};

/* agent.c: tell the outside that the command cannot be run (a printf text), and end the machine. */
_Noreturn void agent_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Write a line to the control port; waits while the port is full. */
void agent_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* agent_setup.c: all of these end in agent_fail() when something that is needed does not work. */
void setup_early_mounts(void);
void setup_modules(void);
void setup_network(void);
/* The other CPUs, and before them what makes the kernel patch its code. */
void setup_cpus(void);
/* For the request: clock, random seed, the shared file tree under NEW_ROOT with its /proc, /dev,
 * /tmp. */
void setup_machine(const struct request *r);
/* Everything that the command wrote is visible outside when this returns. */
void setup_flush(const struct request *r);

/* agent_relay.c: run the command, move its bytes; returns after the X line's numbers are known. */
struct outcome {
    int status;
    uint64_t out_bytes, err_bytes;
};
struct outcome relay_command(const struct request *r, const struct ports *ports);

#endif
