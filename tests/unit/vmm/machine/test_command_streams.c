/* vmm/machine/command_streams.c: what a machine's console says beside its command's streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmm/machine/command_streams.h"

static void log_text(struct command_streams *s, const char *text)
{
    while (*text)
        command_streams_log(s, (uint8_t)*text++);
}

static void expect(int fd, const char *text)
{
    char got[64] = "";
    const ssize_t n = read(fd, got, sizeof got - 1);

    assert_int_equal(n < 0 ? 0 : n, strlen(text));
    assert_string_equal(got, text);
}

/* It is shown by lines, and what is no line yet by who shows the console's output; not where the
 * command's own goes. */
static void test_log_is_gathered(void **state)
{
    struct command_streams *s = malloc(sizeof *s);
    int out[2], err[2];
    struct err e;

    (void)state;
    assert_non_null(s);
    assert_int_equal(pipe2(out, O_NONBLOCK), 0);
    assert_int_equal(pipe2(err, O_NONBLOCK), 0);
    struct console *console = console_open(-1, out[1], false, &e);
    assert_non_null(console);
    command_streams_init(s, console, out[1], err[1], err[1]);
    log_text(s, "a li");
    expect(err[0], "");
    log_text(s, "ne\nand ");
    expect(err[0], "a line\n");
    assert_true(console_has_output(console));
    console_flush(console);
    expect(err[0], "and ");
    expect(out[0], "");
    assert_int_equal(s->log_len, 11);
    command_streams_init(s, console, out[1], err[1], -1);
    log_text(s, "quiet\n");
    expect(err[0], "");
    console_close(console);
    free(s);
}

static void test_reader_gone(void **state)
{
    struct command_streams *s = malloc(sizeof *s);
    int out[2], err[2];

    (void)state;
    assert_non_null(s);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(err), 0);
    command_streams_init(s, NULL, out[1], err[1], -1);
    close(out[0]);
    assert_false(s->link.put(&s->link, false, (const uint8_t *)"x", 1));
    assert_true(s->link.put(&s->link, true, (const uint8_t *)"x", 1));
    close(out[1]);
    close(err[0]);
    close(err[1]);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_is_gathered),
        cmocka_unit_test(test_reader_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
