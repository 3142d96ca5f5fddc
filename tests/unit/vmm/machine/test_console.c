/* vmm/machine/console.c: whose input is read, and by whom; base/stop_signals.c: which signals a
 * sleep sees.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/stop_signals.h"
#include "vmm/machine/console.h"

static void count(void *opaque)
{
    sem_post(opaque);
}

static void expect_input(struct console *c, sem_t *notified, const char *text)
{
    uint8_t data[64];

    sem_wait(notified);
    assert_int_equal(console_peek(c, data, sizeof data), strlen(text));
    assert_memory_equal(data, text, strlen(text));
    console_consume(c, strlen(text));
}

/* Behind console_ignore_input() there is no thread that could call into a machine that is gone, and
 * no byte is taken from who comes next. */
static void test_ignored_input_stays(void **state)
{
    struct err e;
    int ends[2], calls, out = open("/dev/null", O_WRONLY);
    sem_t notified;
    char rest[8];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    sem_init(&notified, 0, 0);
    struct console *c = console_open(ends[0], out, true, &e);
    assert_non_null(c);
    console_on_input(c, count, &notified);
    assert_int_equal(write(ends[1], "one", 3), 3);
    expect_input(c, &notified, "one");
    console_ignore_input(c);
    console_ignore_input(c); /* as often as one likes */
    assert_int_equal(write(ends[1], "two", 3), 3);
    sem_getvalue(&notified, &calls);
    assert_int_equal(calls, 0);
    assert_false(console_has_input(c));
    assert_int_equal(read(ends[0], rest, sizeof rest), 3);
    console_on_input(c, count, &notified);
    assert_int_equal(write(ends[1], "three", 5), 5);
    expect_input(c, &notified, "three");
    console_close(c);
    sem_destroy(&notified);
    close(ends[0]);
    close(ends[1]);
    close(out);
}

/* More than fits at once, then the end; both are told. */
static void test_much_input_and_its_end(void **state)
{
    static uint8_t sent[300000], got[300000];
    struct err e;
    int ends[2], out = open("/dev/null", O_WRONLY);
    size_t done = 0, written = 0;
    sem_t notified;

    (void)state;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    sem_init(&notified, 0, 0);
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (uint8_t)(i * 31 >> 3);
    struct console *c = console_open(ends[0], out, false, &e);
    assert_non_null(c);
    console_on_input(c, count, &notified);
    while (done < sizeof got) {
        const ssize_t n =
            written < sizeof sent ? write(ends[1], sent + written, sizeof sent - written) : 0;
        written += n > 0 ? (size_t)n : 0;
        const size_t part =
            console_peek(c, got + done, sizeof got - done < 5000 ? sizeof got - done : 5000);
        assert_false(console_input_ended(c));
        console_consume(c, part);
        done += part;
        if (!part)
            assert_int_equal(sem_wait(&notified), 0);
    }
    assert_memory_equal(sent, got, sizeof got);
    close(ends[1]);
    while (!console_input_ended(c))
        assert_int_equal(sem_wait(&notified), 0);
    console_close(c);
    sem_destroy(&notified);
    close(ends[0]);
    close(out);
}

/* What the user asks for is written to a terminal that takes nothing: the machine, which asks for
 * its input, does not wait for that. */
static void test_help_that_nobody_reads(void **state)
{
    static char filler[65536];
    struct timespec limit;
    int terminal, user, out[2];
    sem_t notified;
    struct err e;

    (void)state;
    assert_int_equal(openpty(&user, &terminal, NULL, NULL, NULL), 0);
    assert_int_equal(pipe(out), 0);
    fcntl(out[1], F_SETFL, O_NONBLOCK);
    while (write(out[1], filler, sizeof filler) > 0)
        continue;
    sem_init(&notified, 0, 0);
    struct console *c = console_open(terminal, out[1], true, &e);
    assert_non_null(c);
    console_on_input(c, count, &notified);
    assert_int_equal(write(user, "\x01hx", 3), 3);
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 10;
    assert_int_equal(sem_timedwait(&notified, &limit), 0);
    alarm(10);
    assert_int_equal(console_peek(c, (uint8_t *)filler, sizeof filler), 1);
    alarm(0);
    assert_int_equal(filler[0], 'x');
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    while (read(out[0], filler, sizeof filler) > 0)
        continue;
    console_close(c);
    sem_destroy(&notified);
    close(user);
    close(terminal);
    close(out[0]);
    close(out[1]);
}

static void note(void *opaque)
{
    *(atomic_int *)opaque = 1;
}

/* One that comes between the look and the sleep ends the sleep: each that is caught. */
static void test_no_signal_is_slept_over(void **state)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    atomic_int stopped;
    const struct stopper stopper = {note, &stopped};
    sigset_t old;

    (void)state;
    stop_signals_call(&stopper);
    pthread_sigmask(SIG_BLOCK, NULL, &old);
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
        stop_signals_block();
        stopped = 0;
        raise(signals[i]);
        assert_int_equal(stopped, 0);
        assert_int_equal(ppoll(NULL, 0, NULL, &old), -1);
        assert_int_equal(stopped, 1);
        assert_int_equal(*stop_signals_came(), signals[i]);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    stop_signals_call(NULL);
    raise(SIGTERM); /* noted, and that is all */
    assert_int_equal(*stop_signals_came(), SIGTERM);
    stopped = 0;
    stop_signals_call(&stopper); /* not lost on who comes later */
    assert_int_equal(stopped, 1);
    stop_signals_call(NULL);
}

static void *put_line(void *console)
{
    console_put(console, '\n');
    console_flush(console);
    return NULL;
}

static void test_reader_gone(void **state)
{
    int ends[2];

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(ends), 0);
    assert_true(console_write(ends[1], (const uint8_t *)"some", 4));
    close(ends[0]);
    assert_false(console_write(ends[1], (const uint8_t *)"more", 4));
    close(ends[1]);
}

/* A pipe whose reader sleeps: the thread that writes to it comes back when its user wants a stop,
 * whether it blocks the signals, as the CPUs of a crew do, or not. */
static void test_output_that_nobody_reads(void **state)
{
    static const char filler[65536];
    struct err e;
    struct timespec limit;
    pthread_t writer;
    sigset_t old;
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], filler, sizeof filler) > 0)
        continue;
    fcntl(ends[1], F_SETFL, 0);
    struct console *c = console_open(-1, ends[1], true, &e);
    assert_non_null(c);
    stop_signals_call(NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &old);
    stop_signals_block();
    assert_int_equal(pthread_create(&writer, NULL, put_line, c), 0);
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 1;
    assert_int_equal(pthread_timedjoin_np(writer, NULL, &limit), ETIMEDOUT);
    kill(getpid(), SIGTERM);
    limit.tv_sec += 10;
    assert_int_equal(pthread_timedjoin_np(writer, NULL, &limit), 0);

    pthread_sigmask(SIG_SETMASK, &old, NULL); /* it comes now */
    assert_int_equal(pthread_create(&writer, NULL, put_line, c), 0);
    limit.tv_sec += 10;
    assert_int_equal(pthread_timedjoin_np(writer, NULL, &limit), 0);
    console_close(c);
    close(ends[0]);
    close(ends[1]);
}

/* Who wants the stop without a signal; in a process of its own, which remembers it. */
static void test_stand_in(void **state)
{
    static const char filler[65536];
    struct timespec limit;
    pthread_t writer;
    struct err e;
    int ends[2], status;
    const pid_t child = fork();

    (void)state;
    if (child == 0) {
        if (pipe(ends) < 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) < 0)
            _exit(2);
        while (write(ends[1], filler, sizeof filler) > 0)
            continue;
        fcntl(ends[1], F_SETFL, 0);
        struct console *c = console_open(-1, ends[1], true, &e);
        pthread_create(&writer, NULL, put_line, c);
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 1;
        if (pthread_timedjoin_np(writer, NULL, &limit) != ETIMEDOUT)
            _exit(3);
        stop_signals_stand_in();
        limit.tv_sec += 10;
        _exit(pthread_timedjoin_np(writer, NULL, &limit) != 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_much_input_and_its_end),
        cmocka_unit_test(test_help_that_nobody_reads),
        cmocka_unit_test(test_ignored_input_stays),
        cmocka_unit_test(test_stand_in),
        cmocka_unit_test(test_output_that_nobody_reads), /* before a signal has come */
        cmocka_unit_test(test_no_signal_is_slept_over),
        cmocka_unit_test(test_reader_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
