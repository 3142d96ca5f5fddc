#ifndef REPLAY_GDB_GDB_SESSION_H
#define REPLAY_GDB_GDB_SESSION_H

#include <stdatomic.h>
#include <pthread.h>

#include "replay/gdb/gdb_packet.h"
#include "replay/gdb/gdb_server.h"
#include "replay/gdb/gdb_target.h"

/*
 * Inside the gdb server: gdb_server.c reads packets and finds out what they want, gdb_query.c
 * answers the q and Q ones, gdb_info.c `monitor info`, gdb_extended.c begins anew, gdb_break.c
 * keeps the breakpoints, gdb_run.c lets the target run, gdb_watcher.c listens for Ctrl-C meanwhile.
 */
#define GDB_BREAKPOINTS_MAX 1024u

struct gdb_breakpoint {
    enum gdb_breakpoint_kind kind;
    unsigned len;
    uint64_t va;
};

struct gdb_session {
    struct gdb_target *t;
    struct gdb_link link;
    int wake;              /* eventfd: ends the watcher */
    unsigned cpu;          /* that registers and memory are of: gdb's choice, or the last stop's */
    unsigned run_cpu;      /* for s, c, bs and bc */
    bool physical;         /* addresses of m are */
    bool swbreak, hwbreak; /* gdb knows these words */
    struct gdb_stop stop;  /* the last one */
    bool interrupt_late;   /* interrupt() may have come after resume() had returned */
    struct gdb_breakpoint breakpoints[GDB_BREAKPOINTS_MAX];
    unsigned breakpoint_count;
    struct bytes
        unheard;      /* sentences for the user that gdb would not have shown: see gdb_refuse() */
    struct bytes out; /* the reply; empty: "not supported" */
    bool extended;    /* target extended-remote: what was killed can be run again */
    bool killed;
    bool ended;
    enum gdb_end end;
};

/* What a client gets for packets that make no sense, and for memory that is not there. */
#define GDB_ERROR_MALFORMED "E16"
#define GDB_ERROR_MEMORY    "E0e"

void gdb_reply(struct gdb_session *s, const char *text);
/* An error with a sentence, where gdb shows it: not for m, whose reply it would decode. */
void gdb_reply_error(struct gdb_session *s, const char *text);
void gdb_end_session(struct gdb_session *s, enum gdb_end end);
/*
 * An error where gdb takes no sentence but says one of its own ("Cannot access memory"): the reason
 * goes to stderr at once, and to the user's terminal with the next text that gdb expects.
 */
void gdb_refuse(struct gdb_session *s, const char *reason);
/* Text on the user's terminal, behind what was not heard yet. Only where gdb expects it: before a
 * stop reply, and in a qRcmd. */
void gdb_console(struct gdb_session *s, const void *text, size_t len);

/* A thread of gdb's is a CPU; its number is one higher. 0 and -1 stand for any: *cpu is left. */
bool gdb_parse_thread(const struct gdb_session *s, const char **p, unsigned *cpu);

void gdb_query(struct gdb_session *s, const char *packet);

/* vKill, and vRun behind that word, of a client in extended mode; see gdb_extended.c. */
void gdb_kill(struct gdb_session *s);
void gdb_run_again(struct gdb_session *s, const char *p);

/* Z and z packets, behind the letter. */
void gdb_breakpoint_packet(struct gdb_session *s, const char *p, bool insert);
void gdb_remove_all(struct gdb_session *s);

void gdb_run(struct gdb_session *s, unsigned cpu, enum gdb_resume how);
void gdb_stop_reply(struct gdb_session *s);

/*
 * While the target is at work for long, a thread of its own watches the connection: a client that
 * says 0x03, or anything else, or that vanishes, interrupts it.
 */
struct gdb_watcher {
    struct gdb_session *s;
    bool
        keep_alive; /* a client that waits for the end of a qRcmd gets an empty text now and then */
    pthread_t thread;
    atomic_bool called; /* interrupt() */
    bool gone;          /* the client; valid after gdb_watch_end() */
};
int gdb_watch_begin(struct gdb_watcher *w, struct gdb_session *s, bool keep_alive, struct err *e);
void gdb_watch_end(struct gdb_watcher *w);

#endif
