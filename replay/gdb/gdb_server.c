#include "replay/gdb/gdb_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "replay/gdb/gdb_registers.h"
#include "replay/gdb/gdb_session.h"
#include "replay/gdb/gdb_text.h"

/* The longest stretch of memory that fits into a reply. */
#define READ_MAX ((GDB_PACKET_MAX - 16) / 2)
/* The most that is kept for a client that never resumes. */
#define UNHEARD_MAX 4096u

void gdb_reply(struct gdb_session *s, const char *text)
{
    bytes_put(&s->out, text, strlen(text));
}

void gdb_reply_error(struct gdb_session *s, const char *text)
{
    gdb_put_text(&s->out, "E.%s", text[0] ? text : "failed");
}

void gdb_refuse(struct gdb_session *s, const char *reason)
{
    fprintf(stderr, "dittovm: %s\n", reason);
    if (s->unheard.len < UNHEARD_MAX)
        gdb_put_text(&s->unheard, "dittovm: %s\n", reason);
    gdb_reply_error(s, reason);
}

void gdb_end_session(struct gdb_session *s, enum gdb_end end)
{
    if (!s->ended) {
        s->ended = true;
        s->end = end;
    }
}

static void send_text(struct gdb_session *s, const uint8_t *p, size_t len)
{
    struct bytes out = {0};

    while (len > 0 && !s->ended) {
        size_t n = len < READ_MAX ? len : READ_MAX;
        bytes_clear(&out);
        bytes_put_u8(&out, 'O');
        gdb_put_hex(&out, p, n);
        if (gdb_link_send(&s->link, out.data, out.len) < 0)
            gdb_end_session(s, GDB_VANISHED);
        p += n;
        len -= n;
    }
    bytes_free(&out);
}

void gdb_console(struct gdb_session *s, const void *text, size_t len)
{
    send_text(s, s->unheard.data, s->unheard.len);
    bytes_clear(&s->unheard);
    send_text(s, text, len);
}

bool gdb_parse_thread(const struct gdb_session *s, const char **p, unsigned *cpu)
{
    uint64_t id;

    if (gdb_take(p, "-1"))
        return true;
    if (!gdb_hex_number(p, &id) || id > s->t->ops->cpus(s->t))
        return false;
    if (id)
        *cpu = (unsigned)id - 1;
    return true;
}

static void read_registers(struct gdb_session *s, const char *p)
{
    struct vcpu_state state;
    struct err e = {.text = ""};
    uint64_t number = 0;

    if (*p && (!gdb_hex_number(&p, &number) || *p || number >= gdb_register_count))
        gdb_reply(s, GDB_ERROR_MALFORMED);
    else if (s->t->ops->state(s->t, s->cpu, &state, &e) < 0)
        gdb_reply_error(s, e.text);
    else if (s->link.packet[0] == 'g')
        gdb_registers_put(&s->out, &state);
    else
        gdb_register_put(&s->out, &state, (unsigned)number);
}

static void read_memory(struct gdb_session *s, const char *p)
{
    uint8_t data[READ_MAX];
    uint64_t address, len;

    if (!gdb_hex_number(&p, &address) || !gdb_take(&p, ",") || !gdb_hex_number(&p, &len) || *p) {
        gdb_reply(s, GDB_ERROR_MALFORMED);
        return;
    }
    size_t want = len < sizeof data ? (size_t)len : sizeof data;
    if (want && address + want - 1 < address)
        want = (size_t)(0 - address);
    size_t got = s->physical ? s->t->ops->read_physical(s->t, address, data, want)
                             : s->t->ops->read(s->t, s->cpu, address, data, want);
    if (want && !got)
        gdb_reply(s, GDB_ERROR_MEMORY);
    else
        gdb_put_hex(&s->out, data, got < want ? got : want);
}

/* P: one register, NUMBER=VALUE; G: all of them. */
static void write_registers(struct gdb_session *s, const char *p)
{
    const bool all = s->link.packet[0] == 'G';
    struct vcpu_state state;
    struct err e = {.text = ""};
    struct bytes data = {0};
    uint64_t number = 0;

    if ((!all && (!gdb_hex_number(&p, &number) || !gdb_take(&p, "="))) || !gdb_unhex(&data, p) ||
        number >= gdb_register_count)
        gdb_reply(s, GDB_ERROR_MALFORMED);
    else if (s->t->ops->state(s->t, s->cpu, &state, &e) < 0 ||
             (all ? gdb_registers_set(&state, &data, &e)
                  : gdb_register_set(&state, (unsigned)number, &data, &e)) < 0 ||
             s->t->ops->set_state(s->t, s->cpu, &state, &e) < 0)
        gdb_reply_error(s, e.text);
    else
        gdb_reply(s, "OK");
    bytes_free(&data);
}

/* M ADDRESS,LENGTH:BYTES. The same in binary, X, is left out: gdb then takes this one. */
static void write_memory(struct gdb_session *s, const char *p)
{
    struct err e = {.text = ""};
    struct bytes data = {0};
    uint64_t address, len;

    if (!gdb_hex_number(&p, &address) || !gdb_take(&p, ",") || !gdb_hex_number(&p, &len) ||
        !gdb_take(&p, ":") || !gdb_unhex(&data, p) || data.len != len ||
        (len && address + len - 1 < address))
        gdb_reply(s, GDB_ERROR_MALFORMED);
    else if (len &&
             (s->physical ? s->t->ops->write_physical(s->t, address, data.data, data.len, &e)
                          : s->t->ops->write(s->t, s->cpu, address, data.data, data.len, &e)) < 0)
        gdb_refuse(s, e.text);
    else
        gdb_reply(s, "OK");
    bytes_free(&data);
}

static void select_thread(struct gdb_session *s, const char *p)
{
    unsigned *cpu = *p == 'g' ? &s->cpu : *p == 'c' ? &s->run_cpu : NULL;

    if (cpu)
        p++;
    gdb_reply(s, cpu && gdb_parse_thread(s, &p, cpu) && !*p ? "OK" : GDB_ERROR_MALFORMED);
}

static void thread_alive(struct gdb_session *s, const char *p)
{
    unsigned cpu;

    gdb_reply(s, gdb_parse_thread(s, &p, &cpu) && !*p ? "OK" : GDB_ERROR_MALFORMED);
}

/* c, s, C and S, with nothing but a signal behind them: the machine takes none. */
static void old_resume(struct gdb_session *s, const char *p)
{
    const char how = *p++;
    uint64_t signal;

    if ((how == 'C' || how == 'S') && !gdb_hex_number(&p, &signal))
        gdb_reply(s, GDB_ERROR_MALFORMED);
    else if (*p)
        gdb_reply_error(s, "a replay cannot be continued elsewhere");
    else
        gdb_run(s, s->run_cpu, how == 'c' || how == 'C' ? GDB_CONTINUE : GDB_STEP);
}

/*
 * Actions with the threads they are for, the first that fits counts. All CPUs run together, so one
 * that is to step decides; gdb asks for no more than one.
 */
static void continue_threads(struct gdb_session *s, const char *p)
{
    enum gdb_resume how = GDB_CONTINUE;
    unsigned cpu = s->run_cpu;
    bool any = false;

    while (gdb_take(&p, ";")) {
        const char action = *p ? *p++ : 0;
        unsigned for_cpu = cpu;
        uint64_t signal;
        if (!action || !strchr("cCsS", action) ||
            ((action == 'C' || action == 'S') && !gdb_hex_number(&p, &signal)) ||
            (gdb_take(&p, ":") && !gdb_parse_thread(s, &p, &for_cpu))) {
            gdb_reply(s, GDB_ERROR_MALFORMED);
            return;
        }
        if (!any || (how == GDB_CONTINUE && (action == 's' || action == 'S'))) {
            how = action == 's' || action == 'S' ? GDB_STEP : GDB_CONTINUE;
            cpu = for_cpu;
        }
        any = true;
    }
    if (!any || *p)
        gdb_reply(s, GDB_ERROR_MALFORMED);
    else
        gdb_run(s, cpu, how);
}

static void verbose(struct gdb_session *s, const char *p)
{
    if (!strcmp(p, "Cont?"))
        gdb_reply(s, "vCont;c;C;s;S");
    else if (gdb_take(&p, "Cont"))
        continue_threads(s, p);
    else if (s->extended && gdb_take(&p, "Kill;"))
        gdb_kill(s);
    else if (s->extended && gdb_take(&p, "Run;"))
        gdb_run_again(s, p);
}

static void handle(struct gdb_session *s, const char *p)
{
    switch (*p) {
    case '!':
        s->extended = true;
        gdb_reply(s, "OK");
        break;
    case '?':
        gdb_stop_reply(s);
        break;
    case 'g':
    case 'p':
        read_registers(s, p + 1);
        break;
    case 'm':
        read_memory(s, p + 1);
        break;
    case 'G':
    case 'P':
        write_registers(s, p + 1);
        break;
    case 'M':
        write_memory(s, p + 1);
        break;
    case 'Z':
    case 'z':
        gdb_breakpoint_packet(s, p + 1, *p == 'Z');
        break;
    case 'H':
        select_thread(s, p + 1);
        break;
    case 'T':
        thread_alive(s, p + 1);
        break;
    case 'c':
    case 'C':
    case 's':
    case 'S':
        old_resume(s, p);
        break;
    case 'b':
        if (!strcmp(p, "bs") || !strcmp(p, "bc"))
            gdb_run(s, s->run_cpu, p[1] == 's' ? GDB_REVERSE_STEP : GDB_REVERSE_CONTINUE);
        break;
    case 'v':
        verbose(s, p + 1);
        break;
    case 'q':
    case 'Q':
        gdb_query(s, p);
        break;
    case 'D':
        gdb_reply(s, "OK");
        gdb_end_session(s, GDB_DETACHED);
        break;
    case 'k':
        gdb_end_session(s, GDB_KILLED);
        break;
    default: /* the empty reply: a packet that we do not know */
        break;
    }
}

static void session(struct gdb_session *s)
{
    while (!s->ended) {
        if (gdb_link_receive(&s->link) < 0) {
            gdb_end_session(s, GDB_VANISHED);
            return;
        }
        bytes_clear(&s->out);
        handle(s, (const char *)s->link.packet);
        if (s->ended && s->end != GDB_DETACHED)
            return;
        if (gdb_link_send(&s->link, s->out.data, s->out.len) < 0)
            gdb_end_session(s, GDB_VANISHED);
    }
}

int gdb_serve(struct gdb_target *t, int fd, struct err *e)
{
    struct gdb_session *s = calloc(1, sizeof *s);
    int wake = eventfd(0, EFD_CLOEXEC);

    if (!s || wake < 0) {
        err_set(e, STATUS_ERROR, "gdb: %s", s ? strerror(errno) : "out of memory");
        if (wake >= 0)
            close(wake);
        free(s);
        return -1;
    }
    s->t = t;
    s->wake = wake;
    gdb_link_init(&s->link, fd, t->quit);
    session(s);
    gdb_remove_all(s);
    if (s->end == GDB_VANISHED && s->killed)
        s->end = GDB_KILLED;
    int end = s->end == GDB_VANISHED && t->quit && *t->quit ? GDB_QUIT : (int)s->end;
    gdb_link_free(&s->link);
    bytes_free(&s->out);
    bytes_free(&s->unheard);
    close(wake);
    free(s);
    return end;
}
