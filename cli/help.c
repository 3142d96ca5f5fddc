#include "cli/help.h"

#include <string.h>

#include "base/version.h"

/* ---- on a terminal ---- */

void help_print(const struct command *command, FILE *out)
{
    const char *form = command->usage;

    for (const char *before = "usage: "; *form; before = "       ") {
        const int len = (int)strcspn(form, "\n");
        fprintf(out, "%sdittovm %.*s\n", before, len, form);
        form += len + (form[len] == '\n');
    }
    if (command->about)
        fprintf(out, "\n%s\n", command->about);
    if (command->options) {
        fputc('\n', out);
        options_print(command->options, out);
    }
}

/* ---- as a manual page ---- */

static const char before_commands[] =
    ".TH DITTOVM 1 \"\" \"dittovm " DITTO_VERSION "\" \"User Commands\"\n"
    ".SH NAME\n"
    "dittovm \\- record a whole virtual machine and replay it instruction for instruction\n"
    ".SH SYNOPSIS\n"
    ".B dittovm\n"
    "[\\fB\\-\\-host\\fR \\fIauto\\fR|\\fInative\\fR|\\fIemulated\\fR|\\fIvmx\\fR]\n"
    ".I command\n"
    "[\\fIoptions\\fR]\n"
    ".SH DESCRIPTION\n"
    "Runs a virtual machine on stock KVM and records everything that reaches its CPU and memory.\n"
    "The recording is one file that replays exactly, without the disk image and on any x86-64 "
    "host.\n"
    ".PP\n"
    "\\fB\\-\\-host\\fR says where the machine runs. \\fBauto\\fR takes this machine's KVM when "
    "the CPU\n"
    "has VMX or SVM, and the emulated KVM host elsewhere. \\fBvmx\\fR is an emulated Intel host\n"
    "for tests ('make khost-vmx'): slow, without input, gdb and network.\n"
    ".SH COMMANDS\n";

static const char behind_commands[] =
    ".SH CLOCKS\n"
    "\\fB\\-\\-clock\\fR says how an arbitrary instruction is found again. \\fBauto\\fR takes the "
    "first\n"
    "that this host and the recording have.\n"
    ".TP\n"
    ".B pmu\n"
    "Counts retired conditional branches of the guest with a hardware counter, after a self-test. "
    "Not\n"
    "yet run on hardware, so it is taken only when asked for. Replays only recordings that were "
    "made\n"
    "with a clock that counts.\n"
    ".TP\n"
    ".B landmark\n"
    "Registers and memory, found by breakpoints. Works everywhere and replays every recording.\n"
    ".TP\n"
    ".B step\n"
    "Steps every instruction and counts branches: exact, very slow, taken only when asked for.\n"
    ".SH EXIT STATUS\n"
    "0 ok; 1 error; 2 usage; 3 the replay diverged; 65 not a recording, another version, or a "
    "damaged\n"
    "one.\n"
    ".SH ENVIRONMENT\n"
    ".TP\n"
    ".B DITTO_DATADIR\n"
    "Directory of the emulated host's kernel and initrd.\n"
    ".TP\n"
    ".B DITTO_KHOST_DEBUG\n"
    "Show the emulated host's console on standard error.\n"
    ".SH FILES\n"
    ".TP\n"
    ".I ${XDG_CACHE_HOME:-~/.cache}/dittovm\n"
    "Emulated hosts that have started, in which later commands begin; they may be removed.\n"
    ".SH SEE ALSO\n"
    ".BR gdb (1)\n";

/* With what roff would take for something else escaped; at a line's start too. */
static void put_roff(const char *text, FILE *out)
{
    bool starts = true;

    for (; *text; text++) {
        if (starts && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
        starts = *text == '\n';
    }
}

static void put_option(const struct option_entry *o, FILE *out)
{
    const bool optional = o->value && o->value[0] == '[';

    fputs(".TP\n", out);
    if (o->letter)
        fprintf(out, "\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", out);
    put_roff(o->name, out);
    fputs("\\fR", out);
    if (o->value) {
        fputs(optional ? "[=" : " ", out);
        put_roff(o->value + optional, out);
    }
    fputc('\n', out);
    put_roff(o->help, out);
    fputc('\n', out);
}

static void put_command(const struct command *command, FILE *out)
{
    const char *form = command->usage;

    fprintf(out, ".SS %s\n", command->name);
    while (*form) {
        char line[256];
        const int len = (int)strcspn(form, "\n");
        snprintf(line, sizeof line, "dittovm %.*s", len, form);
        fputs(".B ", out);
        put_roff(line, out);
        fputs("\n.br\n", out);
        form += len + (form[len] == '\n');
    }
    fputs(".PP\n", out);
    put_roff(command->about ? command->about : command->summary, out);
    fputc('\n', out);
    for (const struct option_entry *o = command->options; o && o->kind != OPTION_END; o++)
        put_option(o, out);
}

void help_print_manual(const struct command *const *commands, unsigned count, FILE *out)
{
    fputs(before_commands, out);
    for (unsigned i = 0; i < count; i++)
        put_command(commands[i], out);
    fputs(behind_commands, out);
}
