#ifndef CLI_COMMAND_UNIT_COMMAND_UNIT_H
#define CLI_COMMAND_UNIT_COMMAND_UNIT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "boot/root/root.h"
#include "recording/event.h"
#include "vmm/machine/command_streams.h"

/*
 * A command as the unit of work: `dittovm run --root DIR -- COMMAND ARGUMENT...`. Its status is
 * dittovm's, so dittovm's own errors have others there, as those of env(1) and docker-run(1) do.
 */
#define STATUS_NOT_RUN 125 /* dittovm failed, or its command line is wrong */
#define STATUS_NOT_ENDED                                                                           \
    124                        /* the machine ended before the command did, as by a kernel's panic \
                                */
#define STATUS_SIGNAL_BASE 128 /* and a signal's number: it came to dittovm */

struct command_unit {
    const char *root, *modules; /* root NULL: the machine is none of this kind */
    char *const *argv;          /* the command, behind "--"; NULL: there is no "--" */
    bool verbose, keep_failed;
    char kernel[4096]; /* what was found, where none was given */
};

/* Take the command off the end of an argv: what is behind "--" is none of the options'. */
void command_unit_split(struct command_unit *unit, int *argc, char **argv);
/* The value of --keep. */
int command_unit_take_keep(struct command_unit *unit, const char *value, struct err *e);
/* Whether it is a whole one; *kernel may be set. */
int command_unit_check(struct command_unit *unit, const char **kernel, struct err *e);
/* The status of what failed before there was a command: *e gets it. */
void command_unit_failed(const struct command_unit *unit, struct err *e);

/* What is made for the machine, in `made`: on the user's own host, as reading so many directories
 * takes long through the emulated one's. Of `request`, kernel, networks and quiet are the caller's.
 */
int command_unit_make(const struct command_unit *unit, struct root_request request,
                      char made[ROOT_MADE_MAX], struct err *e);
/* The user's terminal is the command's. */
bool command_unit_has_terminal(void);

/* For the recording: what was run, of its description; and how it ended (text[size]), "" where it
 * did not. */
json_t *command_unit_describe(const struct command_unit *unit);
void command_unit_end_text(const struct command_streams *s, char *text, size_t size);
/* Read from that. -1: it does not say. */
int command_unit_status_of(const char *end_text);

/* The machine has ended. The command's status; or -1, *e with one that tells it from those, and the
 * console's end is on stderr where that may say why. */
int command_unit_end(const struct command_unit *unit, const struct command_streams *s,
                     enum end_reason reason, struct err *e);

#endif
