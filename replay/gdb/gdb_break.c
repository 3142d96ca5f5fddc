#include "replay/gdb/gdb_session.h"
#include "replay/gdb/gdb_text.h"

/* What has been inserted is remembered: gdb may vanish without taking it away, and the next one
 * shall not stop at it. */
static unsigned find(const struct gdb_session *s, const struct gdb_breakpoint *b)
{
    for (unsigned i = 0; i < s->breakpoint_count; i++)
        if (s->breakpoints[i].kind == b->kind && s->breakpoints[i].va == b->va &&
            s->breakpoints[i].len == b->len)
            return i;
    return s->breakpoint_count;
}

static int insert(struct gdb_session *s, const struct gdb_breakpoint *b, struct err *e)
{
    if (find(s, b) < s->breakpoint_count)
        return 0;
    if (s->breakpoint_count == GDB_BREAKPOINTS_MAX)
        return err_set(e, STATUS_ERROR, "too many breakpoints");
    if (s->t->ops->insert(s->t, b->kind, b->va, b->len, e) < 0)
        return -1;
    s->breakpoints[s->breakpoint_count++] = *b;
    return 0;
}

static int remove_one(struct gdb_session *s, const struct gdb_breakpoint *b, struct err *e)
{
    unsigned i = find(s, b);

    if (i == s->breakpoint_count)
        return 0;
    if (s->t->ops->remove(s->t, b->kind, b->va, b->len, e) < 0)
        return -1;
    s->breakpoints[i] = s->breakpoints[--s->breakpoint_count];
    return 0;
}

void gdb_remove_all(struct gdb_session *s)
{
    struct err e;

    for (unsigned i = 0; i < s->breakpoint_count; i++) {
        const struct gdb_breakpoint *b = &s->breakpoints[i];
        s->t->ops->remove(s->t, b->kind, b->va, b->len, &e);
    }
    s->breakpoint_count = 0;
}

/* KIND,ADDRESS,LENGTH; the last is without meaning for a breakpoint of an x86. Conditions may
 * follow only if we had offered to judge them. */
void gdb_breakpoint_packet(struct gdb_session *s, const char *p, bool do_insert)
{
    struct gdb_breakpoint b;
    uint64_t kind, va, len;
    struct err e = {.text = ""};

    if (!gdb_hex_number(&p, &kind) || !gdb_take(&p, ",") || !gdb_hex_number(&p, &va) ||
        !gdb_take(&p, ",") || !gdb_hex_number(&p, &len) || *p) {
        gdb_reply(s, GDB_ERROR_MALFORMED);
        return;
    }
    if (kind > GDB_WATCH_ACCESS)
        return; /* the empty reply: a kind that we do not know */
    b = (struct gdb_breakpoint){.kind = (enum gdb_breakpoint_kind)kind, .va = va, .len = 1};
    if (kind >= GDB_WATCH_WRITE) {
        if (!len || len > GDB_WATCH_MAX || va + len - 1 < va) {
            gdb_refuse(s, "a range of so many bytes cannot be watched");
            return;
        }
        b.len = (unsigned)len;
    }
    if ((do_insert ? insert : remove_one)(s, &b, &e) < 0)
        gdb_refuse(s, e.text);
    else
        gdb_reply(s, "OK");
}
