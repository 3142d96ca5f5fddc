/*
 * dittovm: records a whole virtual machine and replays it instruction for instruction.
 * This file finds the subcommand; the work begins in cli/cmd_*.c.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/help.h"

static const struct command *const commands[] = {
    &command_run,      &command_replay, &command_verify, &command_info,    &command_dump,
    &command_snapshot, &command_disk,   &command_core,   &command_domain,  &command_pcap,
    &command_symbols,  &command_order,  &command_doctor, &command_ctl,     &command_version,
};
#define COMMANDS (sizeof commands / sizeof *commands)

static void usage(FILE *out)
{
    fputs("usage: dittovm [--host auto|native|emulated|vmx] COMMAND [OPTIONS]\n\n"
          "Records a whole virtual machine on stock KVM and replays it instruction for "
          "instruction.\n\n",
          out);
    for (unsigned i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
    fputs(
        "\n'dittovm COMMAND --help' says more. --host: where the machine runs; 'auto' takes this\n"
        "machine's KVM when the CPU has VMX or SVM and the emulated KVM host elsewhere; 'vmx' is\n"
        "an emulated Intel host, for tests.\n\n"
        "Exit status: 0 ok, 1 error, 2 usage, 3 the replay diverged, 65 bad recording.\n",
        out);
}

static int parse_host(const char *text, enum host_choice *host, struct err *e)
{
    if (!strcmp(text, "auto"))
        *host = HOST_AUTO;
    else if (!strcmp(text, "native"))
        *host = HOST_NATIVE;
    else if (!strcmp(text, "emulated"))
        *host = HOST_EMULATED;
    else if (!strcmp(text, "vmx"))
        *host = HOST_VMX;
    else
        return err_set(e, STATUS_USAGE, "--host takes auto, native, emulated or vmx, not '%s'",
                       text);
    return 0;
}

/* Take --host out of the command line, wherever it stands before a "--": a machine's command is
 * behind that. */
static int take_host(int *argc, char **argv, enum host_choice *host, struct err *e)
{
    int kept = 1;

    for (int i = 1; i < *argc; i++) {
        const char *value = NULL;
        if (!strcmp(argv[i], "--")) {
            while (i < *argc)
                argv[kept++] = argv[i++];
            break;
        }
        if (!strncmp(argv[i], "--host=", 7))
            value = argv[i] + 7;
        else if (!strcmp(argv[i], "--host"))
            value = i + 1 < *argc ? argv[++i] : "";
        if (!value)
            argv[kept++] = argv[i];
        else if (parse_host(value, host, e) < 0)
            return -1;
    }
    argv[kept] = NULL;
    *argc = kept;
    return 0;
}

bool command_wants_help(const struct command *command, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            help_print(command, stdout);
            return true;
        }
    }
    return false;
}

static int dispatch(int argc, char **argv, struct err *e)
{
    static char self[PATH_MAX];
    struct invocation inv = {.self = self, .argv = argv};
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (n > 0)
        self[n] = 0;
    if (take_host(&argc, argv, &inv.host, e) < 0)
        return -1;
    if (argc < 2) {
        usage(stderr);
        return STATUS_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return STATUS_OK;
    }
    if (!strcmp(argv[1], "--man")) {
        help_print_manual(commands, COMMANDS, stdout);
        return STATUS_OK;
    }
    const char *name = strcmp(argv[1], "--version") ? argv[1] : "version";
    for (unsigned i = 0; i < COMMANDS; i++) {
        if (strcmp(name, commands[i]->name))
            continue;
        if (command_wants_help(commands[i], argc - 1, argv + 1))
            return STATUS_OK;
        return commands[i]->run(&inv, argc - 1, argv + 1, e);
    }
    return err_set(e, STATUS_USAGE, "no command '%s' (see dittovm --help)", argv[1]);
}

/* False: not all that was to be shown is. A reader who went away wants no message (`| head`), nor
 * does who has had one. */
static bool finish_output(bool tell)
{
    const bool failed = fflush(stdout) != 0;
    const char *why = failed ? strerror(errno) : "an earlier write failed";

    if (!failed && !ferror(stdout))
        return true;
    if (tell && !(failed && errno == EPIPE))
        fprintf(stderr, "dittovm: cannot write to standard output: %s\n", why);
    return false;
}

int main(int argc, char **argv)
{
    struct err e = {.status = STATUS_ERROR};

    signal(SIGPIPE, SIG_IGN); /* write errors are seen where they happen */
    signal(SIGXFSZ, SIG_IGN);
    int status = dispatch(argc, argv, &e);
    if (e.text[0] && status != STATUS_OK)
        fprintf(stderr, "dittovm: %s\n", e.text);
    if (!finish_output(status == STATUS_OK) && status == STATUS_OK)
        status = STATUS_ERROR;
    return status < 0 ? (int)e.status : status;
}
