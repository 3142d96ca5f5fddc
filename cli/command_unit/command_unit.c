#include "cli/command_unit/command_unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/stop_signals.h"

#define END_TEXT "the command ended with status %d"

/* ---- the command line ---- */

void command_unit_split(struct command_unit *unit, int *argc, char **argv)
{
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], "--") != 0)
            continue;
        unit->argv = argv + i + 1;
        *argc = i;
        return;
    }
}

int command_unit_take_keep(struct command_unit *unit, const char *value, struct err *e)
{
    unit->keep_failed = !strcmp(value, "failed");
    return unit->keep_failed || !strcmp(value, "always")
               ? 0
               : err_set(e, STATUS_USAGE, "--keep takes always or failed, not '%s'", value);
}

int command_unit_check(struct command_unit *unit, const char **kernel, struct err *e)
{
    const char *option = unit->modules       ? "--modules"
                         : unit->keep_failed ? "--keep"
                         : unit->verbose     ? "--verbose"
                                             : NULL;

    if (!unit->root && option)
        return err_set(e, STATUS_USAGE, "run: %s goes with --root", option);
    if (!unit->root)
        return 0;
    if (!unit->argv || !unit->argv[0])
        return err_set(e, STATUS_USAGE,
                       "run: --root wants a command behind --, as in --root %s -- sh", unit->root);
    if (*kernel)
        return 0;
    *kernel = unit->kernel;
    return root_find_kernel(unit->root, unit->kernel, sizeof unit->kernel, e);
}

void command_unit_failed(const struct command_unit *unit, struct err *e)
{
    if (unit->argv && e->status < STATUS_NOT_ENDED)
        e->status = (enum exit_status)STATUS_NOT_RUN;
}

/* ---- the machine ---- */

bool command_unit_has_terminal(void)
{
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

int command_unit_make(const struct command_unit *unit, struct root_request request,
                      char made[ROOT_MADE_MAX], struct err *e)
{
    struct winsize size = {0};

    request.directory = unit->root;
    request.modules = unit->modules;
    request.command = unit->argv;
    request.terminal = command_unit_has_terminal();
    if (request.terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
        request.rows = size.ws_row;
        request.columns = size.ws_col;
    }
    return root_make(&request, made, e);
}

/* ---- what a recording says ---- */

json_t *command_unit_describe(const struct command_unit *unit)
{
    json_t *words = json_array();

    for (char *const *word = unit->argv; *word; word++)
        if (json_array_append_new(words, json_string(*word)) < 0) /* not UTF-8 */
            json_array_append_new(words, json_string("?"));
    return json_pack("{s:o, s:s}", "argv", words, "root", unit->root);
}

void command_unit_end_text(const struct command_streams *s, char *text, size_t size)
{
    text[0] = '\0';
    if (s && s->has_ended)
        snprintf(text, size, END_TEXT, s->status);
}

int command_unit_status_of(const char *end_text)
{
    int status;

    return sscanf(end_text, END_TEXT, &status) == 1 && status >= 0 && status <= 255 ? status : -1;
}

/* ---- the end ---- */

static const char *why(const struct command_streams *s, enum end_reason reason)
{
    switch (s->failure) {
    case COMMAND_NO_DISK:
        return "the kernel has no driver for its root disk: build in virtio_pci and virtio_blk, or "
               "give "
               "its modules with --modules";
    case COMMAND_NO_MOUNT:
        return "the kernel cannot mount its root disk: build in ext4, or give its modules with "
               "--modules";
    case COMMAND_NO_PAGES:
        return "the kernel does not tell where a program's pages are: build in "
               "CONFIG_PROC_PAGE_MONITOR";
    case COMMAND_NO_START:
        return "its init failed, as the console says above";
    default:
        return reason == END_RESET && s->log_len
                   ? "the machine was reset, and its console says why above"
                   : end_reason_text(reason);
    }
}

int command_unit_end(const struct command_unit *unit, const struct command_streams *s,
                     enum end_reason reason, struct err *e)
{
    const int signal = *stop_signals_came();

    if (s->has_ended)
        return s->status;
    if (reason == END_STOPPED && signal)
        return err_set(e, (enum exit_status)(STATUS_SIGNAL_BASE + signal),
                       "the machine ended before the command did: signal %d came", signal);
    if (!unit->verbose && reason != END_STOPPED && (!s->failure || s->failure == COMMAND_NO_START))
        command_streams_show_log(s, STDERR_FILENO);
    return err_set(e, (enum exit_status)STATUS_NOT_ENDED,
                   "the machine ended before the command did: %s", why(s, reason));
}
