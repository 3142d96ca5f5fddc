#include "host/vmx.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/emulated_args.h"

int vmx_available(const char *datadir, struct err *e)
{
    static const char *const files[] = {"khost-vmlinux", "vmx/bochs", "vmx/run.sh"};
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", datadir, files[i]);
        if (access(path, R_OK) != 0)
            return err_set(e, STATUS_ERROR,
                           "the emulated Intel host's file %s cannot be read (%s); run "
                           "'make khost-vmx'",
                           path, strerror(errno));
    }
    return 0;
}

/* The file that a word of the command line names, in `name`; false: it names none. */
static bool names_file(const char *word, char name[PATH_MAX], struct stat *st)
{
    const char *const value = strchr(word, '=');

    for (int i = 0; i < 2; i++) {
        const char *const from = i && value ? value + 1 : word;
        const char *const place = strrchr(from, '@');
        snprintf(name, PATH_MAX, "%s", from);
        if (stat(name, st) == 0 && S_ISREG(st->st_mode))
            return true;
        snprintf(name, PATH_MAX, "%.*s", place ? (int)(place - from) : 0, from);
        if (stat(name, st) == 0 && S_ISREG(st->st_mode))
            return true;
    }
    return false;
}

int vmx_run(const char *datadir, unsigned memory_mib, char **argv, struct err *e)
{
    struct string_list args = {0};
    char name[PATH_MAX];
    struct stat st;
    uint64_t bytes = 0;

    string_list_add(&args, "bash");
    string_list_add(&args, "%s/vmx/run.sh", datadir);
    for (char **word = argv + 1; *word; word++) {
        if (!names_file(*word, name, &st))
            continue;
        bytes += (uint64_t)st.st_size;
        string_list_add(&args, "--with");
        string_list_add(&args, "%s", name);
    }
    /* The files are there twice, in the archive that they come in and unpacked. */
    string_list_add(&args, "--memory");
    string_list_add(&args, "%u", memory_mib + (unsigned)(bytes >> 19));
    for (char **word = argv; *word; word++)
        string_list_add(&args, "%s", *word);
    signal(SIGPIPE, SIG_DFL); /* not ours to ignore for others */
    signal(SIGXFSZ, SIG_DFL);
    execvp("bash", args.items);
    string_list_free(&args);
    return err_set(e, STATUS_ERROR, "bash: %s", strerror(errno));
}
