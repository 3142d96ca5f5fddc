/* host/emulated_relay.c, with this test as the agent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/emulated_process.h"
#include "host/emulated_relay.h"

#define BYTES 200000u
/* A host may say nothing for so long. */
#define SILENT_SECONDS 1u
/* For all the tests. */
#define ALARM_SECONDS 60u

struct conversation {
    int ports[4]; /* the agent's ends */
    int output;   /* what the command has put out arrives here */
    pid_t relay;
};

/* The relay's process: status 100 + how the conversation ended, or the command's. */
static _Noreturn void relay(const int ports[4])
{
    char *const nothing[] = {NULL}, *const argv[] = {(char *)"dittovm", NULL};
    const struct emulated_request r = {
        .cwd = "/", .rw_dirs = nothing, .env = nothing, .argv = argv};
    struct err e = {0};
    sigset_t set;
    int status = 0;

    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    const int signals = signalfd(-1, &set, SFD_CLOEXEC);
    const enum relay_end end =
        emulated_relay(ports, -1, signals, &r, false, 60, SILENT_SECONDS, &status, &e);
    if (end != RELAY_EXITED)
        fprintf(stderr, "# %s\n", e.text);
    _exit(end == RELAY_EXITED ? status : 100 + (int)end);
}

static void begin(struct conversation *c)
{
    int theirs[4], out[2];

    for (unsigned i = 0; i < 4; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        c->ports[i] = pair[0];
        theirs[i] = pair[1];
        fcntl(pair[1], F_SETFL, O_NONBLOCK);
    }
    assert_int_equal(pipe(out), 0);
    fflush(NULL);
    c->relay = fork();
    assert_true(c->relay >= 0);
    if (c->relay == 0) {
        const int null = open("/dev/null", O_RDONLY);
        for (unsigned i = 0; i < 4; i++)
            close(c->ports[i]);
        dup2(null, STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        close(out[1]);
        relay(theirs);
    }
    for (unsigned i = 0; i < 4; i++)
        close(theirs[i]);
    close(out[1]);
    c->output = out[0];
}

static void say(const struct conversation *c, const char *line)
{
    assert_int_equal(write(c->ports[0], line, strlen(line)), strlen(line));
}

/* Greet, and put out so many bytes: more than what lies between here and who reads, but not than
 * what it all holds. */
static void put_out(const struct conversation *c, size_t bytes)
{
    const int port = c->ports[KHOST_PORT_STDOUT - KHOST_PORT_CONTROL], large = 1 << 20;
    uint8_t *data = calloc(1, bytes);
    char line[32];

    assert_non_null(data);
    setsockopt(port, SOL_SOCKET, SO_SNDBUF, &large, sizeof large);
    snprintf(line, sizeof line, "R %u\n", KHOST_PROTOCOL_VERSION);
    say(c, line);
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = write(port, data + done, bytes - done);
        assert_true(n > 0);
        done += (size_t)n;
    }
    free(data);
}

static void host_ends(struct conversation *c)
{
    for (unsigned i = 0; i < 4; i++)
        close(c->ports[i]);
}

/* Read all of it; returns the relay's status. */
static int read_output(struct conversation *c, size_t *bytes)
{
    char buffer[4096];
    ssize_t n;
    int status;

    *bytes = 0;
    while ((n = read(c->output, buffer, sizeof buffer)) > 0)
        *bytes += (size_t)n;
    close(c->output);
    assert_int_equal(waitpid(c->relay, &status, 0), c->relay);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The command has put out BYTES and ends with `status`, of which its agent counts so many; somebody
 * reads after so many microseconds. The host has gone by then, or `stays`. Returns the relay's
 * status. */
static int end_and_read(unsigned status, unsigned counted, bool stays, unsigned late_us)
{
    struct conversation c;
    size_t bytes;
    char line[64];

    begin(&c);
    put_out(&c, BYTES);
    snprintf(line, sizeof line, "X %u %u 0\n", status, counted);
    say(&c, line);
    if (!stays)
        host_ends(&c);
    usleep(late_us);
    const int relayed = read_output(&c, &bytes);
    if (stays)
        host_ends(&c);
    assert_int_equal(bytes, BYTES);
    return relayed;
}

static void output_outlives_the_host(void **state)
{
    (void)state;
    assert_int_equal(end_and_read(3, BYTES, false, 200000), 3);
}

static void output_that_is_missing_is_said(void **state)
{
    (void)state;
    assert_int_equal(end_and_read(0, BYTES + 1, false, 200000), 100 + RELAY_FAILED);
}

static void a_reader_may_be_late(void **state)
{
    (void)state;
    assert_int_equal(end_and_read(3, BYTES, true, (2 * SILENT_SECONDS + 1) * 1000000), 3);
}

static void a_host_that_hangs_with_output_is_told(void **state)
{
    (void)state;
    assert_int_equal(end_and_read(0, BYTES + 1, true, 0), 100 + RELAY_SILENCE);
}

static void a_host_that_ends_before_its_command_is_told(void **state)
{
    struct conversation c;
    size_t bytes;

    (void)state;
    begin(&c);
    put_out(&c, 10);
    host_ends(&c);
    assert_int_equal(read_output(&c, &bytes), 100 + RELAY_SILENCE);
}

/* A process on this thread's CPU; it computes, or sleeps. */
static pid_t process_beside(bool computes)
{
    const pid_t pid = fork();

    if (pid == 0) {
        alarm(ALARM_SECONDS);
        while (computes)
            __asm__ volatile("");
        for (;;)
            pause();
    }
    return pid;
}

static void who_waits_for_a_cpu_is_starved_who_sleeps_is_not(void **state)
{
    cpu_set_t all, one;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    const pid_t pids[] = {process_beside(true), process_beside(true), process_beside(false)};
    while (emulated_process_starved_ms(pids[0]) < emulated_process_starved_ms(pids[2]) + 50)
        usleep(1000);
    for (unsigned i = 0; i < 3; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    assert_int_equal(emulated_process_starved_ms(-1), 0);
    sched_setaffinity(0, sizeof all, &all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_outlives_the_host),
        cmocka_unit_test(output_that_is_missing_is_said),
        cmocka_unit_test(a_reader_may_be_late),
        cmocka_unit_test(a_host_that_hangs_with_output_is_told),
        cmocka_unit_test(a_host_that_ends_before_its_command_is_told),
        cmocka_unit_test(who_waits_for_a_cpu_is_starved_who_sleeps_is_not),
    };

    alarm(ALARM_SECONDS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
