/*
 * Serves the fake target of the unit tests to a real gdb: gdb_fake [--emulated] [WHERE] (a TCP port
 * or unix:PATH, default 0), until a client says "kill". --emulated: in the emulated KVM host, to
 * try the way into it. FAKE_ENDLESS=1 in the environment: continuing ends by Ctrl-C only.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cli/command.h"
#include "host/gdb_listen.h"
#include "replay/gdb/gdb_server.h"
#include "tests/unit/replay/gdb/fake_gdb.h"

static atomic_int quit;

static void on_signal(int number)
{
    (void)number;
    quit = 1;
}

static int serve(const char *where)
{
    static const char *const ends[] = {"detached", "killed", "vanished", "quit"};
    struct gdb_listener listener;
    struct fake fake;
    struct err e = {.text = ""};
    int fd, end = GDB_DETACHED;

    fake_init(&fake);
    fake.endless = getenv("FAKE_ENDLESS") != NULL;
    fake.target.quit = &quit;
    if (gdb_open(&listener, where, &e) < 0) {
        fprintf(stderr, "gdb_fake: %s\n", e.text);
        return 1;
    }
    fprintf(stderr, "dittovm: waiting for gdb: target remote %s\n", listener.name);
    while (end >= 0 && end != GDB_KILLED && gdb_accept(&listener, &quit, &fd, &e) == 0 && fd >= 0) {
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

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal};
    const bool emulated = argc > 1 && !strcmp(argv[1], "--emulated");
    const char *where = argc > 1 + emulated ? argv[1 + emulated] : "0";
    char self[4096] = "";
    struct invocation inv = {.self = self, .argv = argv, .host = HOST_EMULATED};
    struct host_needs needs = {.gdb = where};
    struct err e = {.text = ""};
    int status;

    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (emulated && realpath("/proc/self/exe", self) && host_redirect(&inv, &needs, &status, &e)) {
        if (e.text[0])
            fprintf(stderr, "gdb_fake: %s\n", e.text);
        return status;
    }
    return serve(where);
}
