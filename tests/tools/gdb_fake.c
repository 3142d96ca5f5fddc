/*
 * Serves the fake target of the unit tests to a real gdb: gdb_fake [WHERE] (a TCP port or
 * unix:PATH, default 0), until a client says "kill". Looks for the emulated host's port, too.
 */
#include <signal.h>
#include <stdlib.h>

#include "replay/gdb_listen.h"
#include "replay/gdb_server.h"
#include "tests/unit/fake_gdb.h"

static volatile sig_atomic_t quit;

static void on_signal(int number)
{
    (void)number;
    quit = 1;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct gdb_listener listener;
    struct fake fake;
    struct err e = {.text = ""};
    int fd, end = GDB_DETACHED;

    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    fake_init(&fake);
    fake.endless = getenv("FAKE_ENDLESS") != NULL;
    fake.target.quit = &quit;
    if (gdb_open(&listener, argc > 1 ? argv[1] : "0", &e) < 0) {
        fprintf(stderr, "gdb_fake: %s\n", e.text);
        return 1;
    }
    fprintf(stderr, "gdb_fake: waiting for gdb: target remote %s\n", listener.name);
    while (end >= 0 && end != GDB_KILLED && gdb_accept(&listener, &quit, &fd, &e) == 0 && fd >= 0) {
        static const char *const ends[] = {"detached", "killed", "vanished", "quit"};
        end = gdb_serve(&fake.target, fd, &e);
        close(fd);
        fprintf(stderr, "gdb_fake: %s, %u breakpoints left\n", end < 0 ? e.text : ends[end],
                fake_break_count(&fake));
    }
    if (e.text[0])
        fprintf(stderr, "gdb_fake: %s\n", e.text);
    gdb_listener_close(&listener);
    return 0;
}
