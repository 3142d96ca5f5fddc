#include "devices/disk/qemu_img.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/program.h"

void qemu_file_name(const char *path, char name[QEMU_FILE_BYTES])
{
    snprintf(name, QEMU_FILE_BYTES, "%s%s", path[0] == '/' ? "" : "./", path);
}

void qemu_tool_said(int said, const char *tool, char *text, size_t size)
{
    const ssize_t n = pread(said, text, size - 1, 0);
    const size_t name = strlen(tool);

    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (!strncmp(text, tool, name) && !strncmp(text + name, ": ", 2))
        memmove(text, text + name + 2, strlen(text + name + 2) + 1);
}

/* Whether it ran and ended with status 0. */
static bool run_tool(const char *program, char *const *args, int output, int said)
{
    posix_spawn_file_actions_t files;
    int status = -1;
    pid_t pid;

    if (posix_spawn_file_actions_init(&files) != 0)
        return false;
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (output >= 0)
        posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    else
        posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, said, STDERR_FILENO);
    const bool ok = posix_spawn(&pid, program, &files, NULL, args, environ) == 0 &&
                    waitpid(pid, &status, 0) == pid && status == 0;
    posix_spawn_file_actions_destroy(&files);
    return ok;
}

int qemu_img_run(char *const *args, int output, const char *what, struct err *e)
{
    char program[4096], text[512];

    if (!program_find("qemu-img", program, sizeof program))
        return err_set(e, STATUS_ERROR,
                       "cannot %s: there is no qemu-img; run 'apt-get install qemu-utils'", what);
    const int said = memfd_create("qemu-img", MFD_CLOEXEC);
    if (said >= 0 && run_tool(program, args, output, said)) {
        close(said);
        return 0;
    }
    qemu_tool_said(said, "qemu-img", text, sizeof text);
    if (said >= 0)
        close(said);
    return err_set(e, STATUS_ERROR, "cannot %s: %s", what, text[0] ? text : "qemu-img ended");
}
