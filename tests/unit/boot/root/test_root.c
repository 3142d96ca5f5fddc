/* boot/root/root*.c: what is made of a directory for a machine, and what is looked at before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "boot/root/root.h"
#include "boot/root/tree.h"

static char work[] = "/tmp/test_root.XXXXXX";

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(work) && chdir(work) == 0 ? system("mkdir -p root/bin && echo >root/bin/text")
                                             : -1;
}

static int tear_down(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", work);
    return chdir("/") == 0 ? system(command) : -1;
}

/* A signal that comes while it is there waits until it is removed, and ends the process then. */
static void be_stopped(int to)
{
    char *const command[] = {"true", NULL};
    /* This program is an ELF file, and names no release. */
    const struct root_request request = {
        .directory = "root", .kernel = "/proc/self/exe", .command = command};
    char made[ROOT_MADE_MAX];
    sigset_t mask;
    struct err e;

    sigprocmask(SIG_BLOCK, NULL, &mask);
    if (root_make(&request, made, &e) < 0 || write(to, made, sizeof made) < 0)
        _exit(1);
    raise(SIGINT);
    root_remove(made);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    _exit(2);
}

static void test_signal_while_it_is_there(void **state)
{
    char made[ROOT_MADE_MAX];
    int ends[2], status;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0)
        be_stopped(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGINT);
    assert_int_equal(read(ends[0], made, sizeof made), sizeof made);
    assert_memory_equal(made, "/tmp/ditto-root.", 16);
    assert_int_equal(access(made, F_OK), -1);
    close(ends[0]);
    close(ends[1]);
}

static void expect_refused(const char *command, int status, const char *text)
{
    struct err e = {0};

    assert_int_equal(root_check_command("root", command, &e), -1);
    assert_int_equal(e.status, status);
    if (!strstr(e.text, text))
        fail_msg("%s", e.text);
}

static void test_commands(void **state)
{
    struct err e;

    (void)state;
    assert_int_equal(
        system(
            "cd root/bin && echo >tool && chmod +x tool && ln -s loop loop && ln -s /bin/tool link "
            "&& ln -s $PWD/tool out"),
        0);
    assert_int_equal(root_check_command("root", "tool", &e), 0);
    assert_int_equal(root_check_command("root", "/bin/link", &e), 0);
    expect_refused("nosuch", STATUS_NO_COMMAND, "there is no command nosuch in root");
    expect_refused("/bin/out", STATUS_NO_COMMAND, "there is no command /bin/out");
    expect_refused("/bin/text", STATUS_CANNOT_RUN, "it is no executable file");
    expect_refused("/bin/loop", STATUS_CANNOT_RUN, "Too many levels of symbolic links");
    expect_refused("loop", STATUS_CANNOT_RUN, "Too many levels of symbolic links");
}

static void test_other_file_systems(void **state)
{
    const int top = open("/", O_PATH | O_DIRECTORY), here = open("root", O_PATH | O_DIRECTORY);
    struct stat of_top, of_proc;
    int fd;

    (void)state;
    assert_int_equal(stat("/", &of_top) | stat("/proc", &of_proc), 0);
    if (of_top.st_dev != of_proc.st_dev) {
        assert_int_equal(tree_open_inside(top, "proc/version", O_RDONLY), -1);
        assert_int_equal(errno, EXDEV);
    }
    assert_true((fd = tree_open_inside(here, "bin/text", O_RDONLY)) >= 0);
    close(fd);
    close(here);
    close(top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signal_while_it_is_there),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_other_file_systems),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
