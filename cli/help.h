#ifndef CLI_HELP_H
#define CLI_HELP_H

#include <stdio.h>

#include "cli/command.h"

/* What `dittovm COMMAND --help` prints. */
void help_print(const struct command *command, FILE *out);

/* The manual page of all commands, as roff: docs/dittovm.1. */
void help_print_manual(const struct command *const *commands, unsigned count, FILE *out);

#endif
