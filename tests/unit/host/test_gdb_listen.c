/* host/gdb_listen.c: a socket that is in the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/gdb_listen.h"

/* Somebody listens there, and has as many callers waiting as he wants: he is asked, not waited for.
 */
static void a_socket_of_somebody_who_is_busy(void **state)
{
    char directory[] = "/tmp/ditto-listen-XXXXXX",
         spec[sizeof((struct sockaddr_un *)0)->sun_path + 8];
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct gdb_listener l;
    struct err e = {0};

    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(a.sun_path, sizeof a.sun_path, "%s/socket", directory);
    const int busy = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(busy, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(busy, 0), 0);
    int caller[8];
    for (unsigned i = 0; i < 8; i++) {
        caller[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(caller[i], (struct sockaddr *)&a, sizeof a);
    }
    snprintf(spec, sizeof spec, "unix:%s", a.sun_path);
    alarm(20);
    assert_int_equal(gdb_listen(&l, spec, &e), -1);
    alarm(0);
    assert_non_null(strstr(e.text, "in use"));
    for (unsigned i = 0; i < 8; i++)
        close(caller[i]);
    /* Nor is one taken away that only nobody calls. */
    assert_int_equal(gdb_listen(&l, spec, &e), -1);
    close(busy);
    assert_int_equal(gdb_listen(&l, spec, &e), 0);
    close(l.fd);
    unlink(a.sun_path);
    rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_socket_of_somebody_who_is_busy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
