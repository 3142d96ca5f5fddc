#ifndef VMM_MACHINE_COMMAND_STREAMS_H
#define VMM_MACHINE_COMMAND_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devices/command_device.h"
#include "vmm/machine/console.h"

/*
 * The outside of the command that a machine runs: its input is the console's, its output goes to
 * two descriptors. What the kernel writes to the console meanwhile is not the command's: of that
 * the end is kept, for who wants to know why the machine ended before the command did.
 */
#define COMMAND_LOG_BYTES 32768u

struct command_streams {
    struct command_link link;
    struct console *console; /* the caller's */
    int out_fd, err_fd;
    bool shows;            /* the console as it comes */
    bool begun, has_ended; /* the init runs; the command has a status: */
    int status;            /* 0 to 255 */
    unsigned failure;      /* enum command_failure; 0: none */
    char log[COMMAND_LOG_BYTES];
    uint64_t log_len; /* bytes that were put; the last ones are there */
};

/* log_fd: where the console is shown, as its output (vmm/machine/console.h); -1: nowhere. */
void command_streams_init(struct command_streams *s, struct console *console, int out_fd,
                          int err_fd, int log_fd);
bool command_streams_have_input(struct command_streams *s);
/* A byte of the console's: as pc_config.transmit. */
void command_streams_log(void *streams, uint8_t byte);
/* Show what is kept of the console. */
void command_streams_show_log(const struct command_streams *s, int fd);

#endif
