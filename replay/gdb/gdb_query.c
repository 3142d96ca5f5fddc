#include <stdio.h>
#include <string.h>

#include "replay/gdb/gdb_registers.h"
#include "replay/gdb/gdb_session.h"
#include "replay/gdb/gdb_text.h"

/*
 * Every gdb introduces itself by this once, before anything else. So if it comes to a connection
 * that does without acknowledgements, one client has gone and another come too quickly to be
 * noticed (a port of the emulated host hides that): it gets them again. One too many does no harm.
 */
static void query_supported(struct gdb_session *s, const char *p)
{
    s->swbreak = strstr(p, "swbreak+") != NULL;
    s->hwbreak = strstr(p, "hwbreak+") != NULL;
    s->physical = false;
    if (gdb_link_restart(&s->link) < 0)
        gdb_end_session(s, GDB_VANISHED);
    gdb_put_text(&s->out,
                 "PacketSize=%x;QStartNoAckMode+;qXfer:features:read+;ReverseStep+;"
                 "ReverseContinue+;swbreak+;hwbreak+;vContSupported+",
                 GDB_PACKET_MAX);
}

/* OFFSET,LENGTH: l and the rest, or m and a part. */
static void query_features(struct gdb_session *s, const char *p)
{
    struct bytes xml = {0};
    uint64_t offset, len;

    if (!gdb_take(&p, "target.xml:")) {
        gdb_reply(s, "E00"); /* there is no other document */
        return;
    }
    if (!gdb_hex_number(&p, &offset) || !gdb_take(&p, ",") || !gdb_hex_number(&p, &len) || *p) {
        gdb_reply(s, GDB_ERROR_MALFORMED);
        return;
    }
    gdb_registers_xml(&xml);
    if (offset > xml.len)
        offset = xml.len;
    bool rest = len >= xml.len - offset;
    if (rest)
        len = xml.len - offset;
    /* Escapes make it longer by less than a half: the text has few characters that need them. */
    if (len > GDB_PACKET_MAX / 2) {
        len = GDB_PACKET_MAX / 2;
        rest = false;
    }
    gdb_reply(s, rest ? "l" : "m");
    bytes_put(&s->out, xml.data + offset, len);
    bytes_free(&xml);
}

static void query_threads(struct gdb_session *s, const char *p)
{
    (void)p;
    for (unsigned i = 0; i < s->t->ops->cpus(s->t); i++)
        gdb_put_text(&s->out, "%c%x", i ? ',' : 'm', i + 1);
}

static void query_end_of_threads(struct gdb_session *s, const char *p)
{
    (void)p;
    gdb_reply(s, "l");
}

static void query_thread_text(struct gdb_session *s, const char *p)
{
    char text[32];
    unsigned cpu = s->cpu;

    if (!gdb_parse_thread(s, &p, &cpu)) {
        gdb_reply(s, GDB_ERROR_MALFORMED);
        return;
    }
    snprintf(text, sizeof text, "CPU %u", cpu);
    gdb_put_hex(&s->out, text, strlen(text));
}

static void query_thread(struct gdb_session *s, const char *p)
{
    (void)p;
    gdb_put_text(&s->out, "QC%x", s->cpu + 1);
}

/* It was there before gdb came: quitting gdb lets it live. */
static void query_attached(struct gdb_session *s, const char *p)
{
    (void)p;
    gdb_reply(s, "1");
}

static void monitor(struct gdb_session *s, const char *command)
{
    struct gdb_watcher w;
    struct bytes text = {0};
    struct err e = {.text = ""};

    int rc = gdb_watch_begin(&w, s, true, &e);
    if (rc == 0) {
        rc = s->t->ops->monitor(s->t, command, &text, &e);
        gdb_watch_end(&w);
        s->interrupt_late = atomic_load(&w.called);
        if (w.gone)
            gdb_end_session(s, GDB_VANISHED);
    }
    if (rc < 0)
        gdb_put_text(&text, "%s\n", e.text);
    gdb_console(s, text.data, text.len);
    gdb_reply(s, "OK"); /* an error would be one of the connection's: the text says what is wrong */
    bytes_free(&text);
}

static void query_command(struct gdb_session *s, const char *p)
{
    struct bytes command = {0};

    if (!gdb_unhex(&command, p)) {
        gdb_reply(s, GDB_ERROR_MALFORMED);
    } else {
        bytes_put_u8(&command, 0);
        monitor(s, (const char *)command.data);
    }
    bytes_free(&command);
}

static void set_no_ack(struct gdb_session *s, const char *p)
{
    (void)p;
    s->link.no_ack = true; /* this packet has been acknowledged already */
    gdb_reply(s, "OK");
}

/* What `maintenance packet` says to QEMU for this, too: m takes physical addresses from then on. */
static void query_physical(struct gdb_session *s, const char *p)
{
    (void)p;
    gdb_reply(s, s->physical ? "1" : "0");
}

static void set_physical(struct gdb_session *s, const char *p)
{
    if (strcmp(p, "0") && strcmp(p, "1")) {
        gdb_reply(s, GDB_ERROR_MALFORMED);
        return;
    }
    s->physical = *p == '1';
    gdb_reply(s, "OK");
}

void gdb_query(struct gdb_session *s, const char *packet)
{
    static const struct {
        const char *name; /* ends in the character before the arguments, if there are any */
        void (*answer)(struct gdb_session *s, const char *p);
        bool arguments;
    } queries[] = {
        {"qSupported", query_supported, true},
        {"qXfer:features:read:", query_features, true},
        {"qfThreadInfo", query_threads, false},
        {"qsThreadInfo", query_end_of_threads, false},
        {"qThreadExtraInfo,", query_thread_text, true},
        {"qC", query_thread, false},
        {"qAttached", query_attached, true},
        {"qRcmd,", query_command, true},
        {"QStartNoAckMode", set_no_ack, false},
        {"qqemu.PhyMemMode", query_physical, false},
        {"Qqemu.PhyMemMode:", set_physical, true},
    };

    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
        const char *p = packet;
        if (gdb_take(&p, queries[i].name) && (queries[i].arguments || !*p)) {
            queries[i].answer(s, p);
            return;
        }
    }
}
