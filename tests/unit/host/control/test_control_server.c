/* host/control/: the socket, whose it is, and clients that do not keep to anything. The machine is
 * a thread that answers each request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/control_request.h"
#include "host/control/control_server.h"
#include "host/control/control_socket.h"
#include "tests/unit/random.h"

static uint64_t rnd(void)
{
    static uint64_t state = RANDOM_SEED;

    return random_next(&state);
}

#define NOBODY 65534

static char directory[64], recording[128], path[160];
static struct control_server *server;
static int machine;
static pthread_t thread;
static atomic_uint requests;
static atomic_bool deaf; /* the machine answers nothing */

/* Whatever comes here has to be a request. */
static void *be_the_machine(void *unused)
{
    FILE *in = fdopen(dup(machine), "r");
    char line[CONTROL_LINE_MAX + 2];
    struct control_request r;

    (void)unused;
    while (fgets(line, sizeof line, in)) {
        if (control_request_parse(&r, line, strlen(line), true))
            abort();
        atomic_fetch_add(&requests, 1);
        if (deaf)
            continue;
        char *said = control_answer_ok(r.id, json_pack("{s:s}", "text", r.text));
        if (send(machine, said, strlen(said), MSG_NOSIGNAL) < 0)
            break;
        free(said);
    }
    fclose(in);
    return NULL;
}

static int start(void **state)
{
    struct err e;

    (void)state;
    snprintf(directory, sizeof directory, "/tmp/control-XXXXXX");
    assert_non_null(mkdtemp(directory));
    chmod(directory, 0755);
    snprintf(recording, sizeof recording, "%s/r.ditto", directory);
    snprintf(path, sizeof path, "%s.ctl", recording);
    fclose(fopen(recording, "w"));
    server = control_server_start(recording, &machine, &e);
    assert_non_null(server);
    pthread_create(&thread, NULL, be_the_machine, NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    shutdown(machine, SHUT_RDWR);
    control_server_stop(server);
    pthread_join(thread, NULL);
    close(machine);
    assert_int_equal(access(path, F_OK), -1);
    unlink(recording);
    rmdir(directory);
    return 0;
}

static int join(void)
{
    struct err e;
    const int fd = control_socket_connect(recording, &e);

    assert_true(fd >= 0);
    return fd;
}

/* What is said within some seconds, up to a line end; "" when the connection is closed instead. */
static const char *hear(int fd)
{
    static char line[CONTROL_LINE_MAX + 2];
    size_t len = 0;

    for (;;) {
        struct pollfd p = {fd, POLLIN, 0};
        assert_int_equal(poll(&p, 1, 15000), 1);
        const ssize_t n = recv(fd, line + len, 1, 0);
        if (n <= 0)
            return "";
        if (line[len] == '\n') {
            line[len] = '\0';
            return line;
        }
        assert_true(++len < sizeof line);
    }
}

static void say(int fd, const char *line)
{
    (void)!send(fd, line, strlen(line), MSG_NOSIGNAL);
}

static void test_answers_go_to_who_asked(void **state)
{
    const int a = join(), b = join();

    (void)state;
    say(a, "{\"do\":\"mark\",\"text\":\"first\"}\n{\"do\":\"mark\",\"text\":\"second\"}\n");
    say(b, "{\"do\":\"mark\",\"te");
    assert_non_null(strstr(hear(a), "first"));
    say(b, "xt\":\"third\"}\n");
    assert_non_null(strstr(hear(b), "third"));
    assert_string_equal(hear(a), "{\"ok\":true,\"text\":\"second\"}");
    say(a, "no JSON\n");
    assert_non_null(strstr(hear(a), "\"ok\":false"));
    say(a, "{\"do\":\"stats\"}\n");
    assert_non_null(strstr(hear(a), "\"ok\":true"));
    close(a);
    close(b);
}

/* One malformed message: by its number of another kind. */
static size_t malform(unsigned i, char *text, size_t room)
{
    static const char *const lines[] = {
        "{\"do\":\"mark\"}\n",
        "{\"do\":\"mark\",\"text\":[[[[{}]]]]}\n",
        "{\"do\":\"stop\",\"id\":1}\n",
        "[1,2,3]\n",
        "\n",
        "{\"do\":\"mark\",\"text\":\"\\ud800\"}\n",
        "{\"do\":\"mark\",\"text\":\"\xc3\x28\"}\n",
        "{\"id\":3,\"ok\":true}\n",
    };
    size_t len = 1 + rnd() % 400;

    switch (i % 5) {
    case 0: /* of JSON, but no request */
        len = strlen(lines[i / 5 % 8]);
        memcpy(text, lines[i / 5 % 8], len);
        return len;
    case 1: /* anything, with an end */
        for (size_t at = 0; at < len; at++)
            text[at] = (char)rnd();
        text[len++] = '\n';
        return len;
    case 2: /* a line without an end, or closed before that */
        memset(text, '{', len);
        return len;
    case 3: /* a line that is too long */
        memset(text, '[', room);
        return room;
    default: /* NULs */
        memset(text, 0, len);
        text[len++] = '\n';
        return len;
    }
}

static void test_500_malformed_messages(void **state)
{
    char text[3 * CONTROL_LINE_MAX];
    const unsigned before = atomic_load(&requests);
    unsigned answers = 0, closed = 0;

    (void)state;
    for (unsigned i = 0; i < 500; i++) {
        const int fd = join();
        const size_t len = malform(i, text, sizeof text);
        (void)!send(fd, text, len, MSG_NOSIGNAL);
        if (i % 5 == 2) /* half a line: nobody answers that, and it is over when the client goes */
            shutdown(fd, SHUT_WR);
        if (hear(fd)[0])
            answers++;
        else
            closed++;
        close(fd);
    }
    assert_int_equal(answers + closed, 500);
    assert_true(answers >= 300);
    assert_int_equal(atomic_load(&requests), before); /* the machine has heard nothing of it */
    const int fd = join();
    say(fd, "{\"do\":\"stats\"}\n");
    assert_non_null(strstr(hear(fd), "\"ok\":true"));
    close(fd);
}

static void test_too_many_and_silent_ones(void **state)
{
    int fds[17];

    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        fds[i] = join();
        say(fds[i], "{\"do\"");
    }
    fds[16] = join();
    assert_non_null(strstr(hear(fds[16]), "too many"));
    assert_string_equal(hear(fds[16]), "");
    assert_string_equal(hear(fds[0]), ""); /* half a line is waited for 5 s */
    for (unsigned i = 0; i < 17; i++)
        close(fds[i]);
    const int fd = join();
    say(fd, "{\"do\":\"stats\"}\n");
    assert_non_null(strstr(hear(fd), "\"ok\":true"));
    close(fd);
}

/* Runs as another user; returns 0 when `connects` is told so. */
static int as_nobody(int (*connects)(void))
{
    const pid_t child = fork();
    int status;

    if (child == 0) {
        if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
            _exit(100);
        _exit(connects());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The client refuses a socket that is not its user's. */
static int refused_by_client(void)
{
    struct err e;

    return control_socket_connect(recording, &e) < 0 && strstr(e.text, "another user's") ? 0 : 1;
}

/* The server refuses a peer of another user's, were the file's mode other. */
static int refused_by_server(void)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, path, strlen(path) + 1);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        return 2;
    const char *said = hear(fd);
    return strstr(said, "another user's") && !hear(fd)[0] ? 0 : 3;
}

static void test_other_users_are_refused(void **state)
{
    struct stat st;

    (void)state;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    if (geteuid() != 0)
        skip();
    assert_int_equal(as_nobody(refused_by_client), 0);
    assert_int_equal(as_nobody(refused_by_server), 2); /* by its mode */
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(as_nobody(refused_by_server), 0);
    assert_int_equal(chown(path, NOBODY, NOBODY), 0); /* a socket that root could open */
    assert_int_equal(refused_by_client(), 0);
    assert_int_equal(chown(path, 0, 0), 0);
}

static void test_who_has_gone_makes_room(void **state)
{
    const unsigned before = requests;

    (void)state;
    deaf = true;
    for (unsigned i = 0; i < 40; i++) {
        const int fd = join();
        say(fd, "{\"do\":\"mark\",\"text\":\"x\"}\n");
        while (requests < before + i + 1)
            usleep(1000);
        close(fd);
    }
    deaf = false;
    const int fd = join();
    say(fd, "{\"do\":\"mark\",\"text\":\"y\"}\n");
    assert_non_null(strstr(hear(fd), "\"y\""));
    close(fd);
}

static void test_what_is_in_the_way(void **state)
{
    struct control_socket s;
    struct err e;

    (void)state;
    /* This one is in use, and stays. */
    assert_int_equal(control_socket_listen(&s, recording, &e), -1);
    close(join());
    /* A recorder that was killed leaves one behind. */
    char other[192], left[224];
    snprintf(other, sizeof other, "%s/%0100d.ditto", directory, 1);
    assert_int_equal(control_socket_listen(&s, other, &e), -1); /* no address is so long */
    assert_non_null(strstr(e.text, "too long"));
    snprintf(other, sizeof other, "%s/k.ditto", directory);
    snprintf(left, sizeof left, "%s.ctl", other);
    assert_int_equal(control_socket_listen(&s, other, &e), 0);
    close(s.fd);
    close(s.directory);
    assert_int_equal(access(left, F_OK), 0);
    assert_int_equal(control_socket_listen(&s, other, &e), 0);
    control_socket_close(&s);
    assert_int_equal(access(left, F_OK), -1);
    /* A file is no socket. */
    fclose(fopen(left, "w"));
    assert_int_equal(control_socket_listen(&s, other, &e), -1);
    assert_int_equal(access(left, F_OK), 0);
    assert_int_equal(control_socket_connect(other, &e), -1);
    assert_non_null(strstr(e.text, "is no socket"));
    unlink(left);
    assert_int_equal(control_socket_connect(other, &e), -1);
    assert_non_null(strstr(e.text, "No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_go_to_who_asked),
        cmocka_unit_test(test_500_malformed_messages),
        cmocka_unit_test(test_too_many_and_silent_ones),
        cmocka_unit_test(test_other_users_are_refused),
        cmocka_unit_test(test_who_has_gone_makes_room),
        cmocka_unit_test(test_what_is_in_the_way),
    };

    return cmocka_run_group_tests(tests, start, end);
}
