#include "recording/snapshot.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool snapshot_name_valid(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-";
    const size_t len = strlen(name);

    return len >= 1 && len <= SNAPSHOT_NAME_MAX && strspn(name, allowed) == len;
}

/* ---- pages ---- */

static struct page_run *new_run(struct snapshot *s)
{
    if (s->run_count == s->run_capacity) {
        s->run_capacity += s->run_capacity / 2 + 64;
        s->runs = realloc(s->runs, s->run_capacity * sizeof *s->runs);
        if (!s->runs) {
            fprintf(stderr, "dittovm: out of memory\n");
            abort();
        }
    }
    return &s->runs[s->run_count++];
}

void snapshot_add_page(struct snapshot *s, uint32_t page, uint32_t chunk)
{
    struct page_run *last = s->run_count ? &s->runs[s->run_count - 1] : NULL;

    assert(!last || page >= last->page + last->count);
    s->pages++;
    if (last && page == last->page + last->count) {
        if (last->count == 1)
            last->same = chunk == last->chunk;
        if (chunk == (last->same ? last->chunk : last->chunk + last->count)) {
            last->count++;
            return;
        }
        if (last->count == 1)
            last->same = false;
    }
    *new_run(s) = (struct page_run){.page = page, .count = 1, .chunk = chunk};
}

bool snapshot_find_page(const struct snapshot *s, uint32_t page, uint32_t *chunk)
{
    size_t low = 0, high = s->run_count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct page_run *r = &s->runs[middle];
        if (page < r->page) {
            high = middle;
        } else if (page - r->page >= r->count) {
            low = middle + 1;
        } else {
            *chunk = r->chunk + (r->same ? 0 : page - r->page);
            return true;
        }
    }
    return false;
}

void snapshot_free(struct snapshot *s)
{
    free(s->runs);
    bytes_free(&s->live);
    *s = (struct snapshot){0};
}

static void runs_encode(struct bytes *out, const struct snapshot *s)
{
    uint64_t page = 0, chunk = 0;

    bytes_put_varint(out, s->run_count);
    bytes_put_varint(out, s->pages);
    for (size_t i = 0; i < s->run_count; i++) {
        const struct page_run *r = &s->runs[i];
        bytes_put_varint(out, r->page - page);
        bytes_put_varint(out, (uint64_t)r->count << 1 | r->same);
        bytes_put_svarint(out, (int64_t)(r->chunk - chunk));
        page = (uint64_t)r->page + r->count;
        chunk = (uint64_t)r->chunk + (r->same ? 1 : r->count);
    }
}

static void runs_decode(struct cursor *in, struct snapshot *s, uint64_t runs, uint64_t pages)
{
    uint64_t page = 0, chunk = 0;

    for (; runs && !in->bad; runs--) {
        const uint64_t skipped = cursor_varint(in), count = cursor_varint(in);
        chunk += (uint64_t)cursor_svarint(in);
        const uint64_t last = chunk + (count & 1 ? 0 : (count >> 1) - 1);
        if (skipped > UINT32_MAX || count >> 1 > UINT32_MAX || count >> 1 == 0 ||
            page + skipped + (count >> 1) > UINT32_MAX || chunk > CHUNK_MAX_ID ||
            last > CHUNK_MAX_ID)
            in->bad = true;
        if (in->bad)
            break;
        page += skipped;
        *new_run(s) = (struct page_run){
            .page = (uint32_t)page,
            .count = (uint32_t)(count >> 1),
            .chunk = (uint32_t)chunk,
            .same = count & 1,
        };
        page += count >> 1;
        chunk = last + 1;
        s->pages += count >> 1;
    }
    if (s->pages != pages)
        in->bad = true;
}

/* ---- the mark ---- */

enum { MARK_DLAB = 1, MARK_LOOPBACK = 2 };
enum { CPU_WINDOW = 1, CPU_HAS_RUN = 2, CPU_X87_LAST = 4 };

static void codec_encode(struct bytes *out, const struct event_codec *codec)
{
    bytes_put_varint(out, codec->ordinal);
    bytes_put_varint(out, codec->gpa);
    bytes_put_varint(out, codec->next_chunk);
    bytes_put_varint(out, codec->time_ns);
    for (unsigned i = 0; i < REG_COUNT; i++)
        bytes_put_u64(out, codec->regs[i]);
}

static void codec_decode(struct cursor *in, struct event_codec *codec)
{
    codec->ordinal = cursor_varint(in);
    codec->gpa = cursor_varint(in);
    codec->next_chunk = cursor_varint(in);
    codec->time_ns = cursor_varint(in);
    for (unsigned i = 0; i < REG_COUNT; i++)
        codec->regs[i] = cursor_u64(in);
}

/* At a sync point no branches have been counted, so they are left out. */
static void cpu_encode(struct bytes *out, const struct cpu_mark *m)
{
    struct sync_point zero = {0};
    struct sync_point last = m->last_sync;

    if (!last.kind) /* it has not run yet */
        last.kind = EXIT_SYNC_LAST;
    bytes_put_u8(out,
                 (uint8_t)((m->window ? CPU_WINDOW : 0) | (m->last_sync.kind ? CPU_HAS_RUN : 0) |
                           (m->without_x87_last ? 0 : CPU_X87_LAST)));
    sync_encode(out, &zero, &last);
    vcpu_state_encode(out, &m->state);
    vcpu_pending_encode(out, &m->pending);
    if (!m->without_x87_last)
        x87_last_encode(out, &m->state.fpu);
}

static void cpu_decode(struct cursor *in, struct cpu_mark *m)
{
    struct sync_point zero = {0};
    const uint8_t flags = cursor_u8(in);

    m->window = flags & CPU_WINDOW;
    sync_decode(in, &zero, &m->last_sync);
    if (!(flags & CPU_HAS_RUN))
        m->last_sync = (struct sync_point){0};
    vcpu_state_decode(in, &m->state);
    vcpu_pending_decode(in, &m->pending);
    m->without_x87_last = !(flags & CPU_X87_LAST);
    if (!m->without_x87_last)
        x87_last_decode(in, &m->state.fpu);
    if (flags > (CPU_WINDOW | CPU_HAS_RUN | CPU_X87_LAST))
        in->bad = true;
}

static void mark_encode(struct bytes *out, const struct player_mark *m)
{
    assert(m->at_sync && m->ordinal && m->cpu < m->cpu_count && m->cpu_count <= MAX_VCPUS);
    bytes_put_varint(out, m->ordinal);
    bytes_put_varint(out, m->tsc);
    bytes_put_u64(out, m->outputs);
    bytes_put_u8(out, (uint8_t)((m->dlab ? MARK_DLAB : 0) | (m->loopback ? MARK_LOOPBACK : 0)));
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++)
        bytes_put_varint(out, m->at[kind]);
    codec_encode(out, &m->codec);
    bytes_put_u64(out, m->hook.rip);
    bytes_put_u64(out, m->hook.handler);
    bytes_put_u64(out, m->hook.ud);
    bytes_put_u64(out, m->hook.iretq);
    bytes_put_u8(out, (uint8_t)m->cpu_count);
    bytes_put_u8(out, (uint8_t)m->cpu);
    for (unsigned i = 0; i < m->cpu_count; i++)
        cpu_encode(out, &m->cpus[i]);
}

static void mark_decode(struct cursor *in, struct player_mark *m)
{
    *m = (struct player_mark){.at_sync = true};
    m->ordinal = cursor_varint(in);
    m->tsc = cursor_varint(in);
    m->outputs = cursor_u64(in);
    const uint8_t flags = cursor_u8(in);
    m->dlab = flags & MARK_DLAB;
    m->loopback = flags & MARK_LOOPBACK;
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++)
        m->at[kind] = cursor_varint(in);
    codec_decode(in, &m->codec);
    m->hook.rip = cursor_u64(in);
    m->hook.handler = cursor_u64(in);
    m->hook.ud = cursor_u64(in);
    m->hook.iretq = cursor_u64(in);
    m->cpu_count = cursor_u8(in);
    m->cpu = cursor_u8(in);
    if (m->cpu_count > MAX_VCPUS || m->cpu >= m->cpu_count)
        in->bad = true;
    for (unsigned i = 0; i < m->cpu_count && !in->bad; i++)
        cpu_decode(in, &m->cpus[i]);
    if (!m->ordinal || m->codec.ordinal >= m->ordinal || flags & ~(MARK_DLAB | MARK_LOOPBACK))
        in->bad = true;
}

/* ---- the record ---- */

void snapshot_bound_live(struct snapshot *s)
{
    if (s->live.len > SNAPSHOT_LIVE_MAX)
        bytes_free(&s->live);
}

void snapshot_encode(struct bytes *out, const struct snapshot *s)
{
    struct bytes body = {0};
    const size_t len = strlen(s->name);

    assert(snapshot_name_valid(s->name) && s->live.len <= SNAPSHOT_LIVE_MAX);
    bytes_put_u8(&body, (uint8_t)len);
    bytes_put(&body, s->name, len);
    bytes_put_varint(&body, s->new_chunks);
    bytes_put_varint(&body, s->live.len);
    mark_encode(&body, &s->mark);
    assert(body.len + 20 <= SNAPSHOT_HEAD_MAX);
    runs_encode(&body, s);
    bytes_put(&body, s->live.data, s->live.len);
    bytes_put_varint(out, body.len);
    bytes_put(out, body.data, body.len);
    bytes_free(&body);
}

bool snapshot_decode_head(struct cursor *in, struct snapshot *s, struct snapshot_size *size)
{
    *s = (struct snapshot){0};
    const uint8_t len = cursor_u8(in);
    if (len > SNAPSHOT_NAME_MAX)
        in->bad = true;
    else
        cursor_get(in, s->name, len);
    if (strlen(s->name) != len || !snapshot_name_valid(s->name))
        in->bad = true;
    s->new_chunks = cursor_varint(in);
    size->live = cursor_varint(in);
    mark_decode(in, &s->mark);
    size->runs = cursor_varint(in);
    s->pages = cursor_varint(in);
    if (in->bad || size->runs > s->pages || s->pages > UINT32_MAX || s->new_chunks > CHUNK_MAX_ID) {
        *s = (struct snapshot){0};
        return false;
    }
    return true;
}

bool snapshot_decode(struct cursor *in, struct snapshot *s)
{
    struct snapshot_size size;

    if (!snapshot_decode_head(in, s, &size))
        return false;
    const uint64_t pages = s->pages;
    s->pages = 0;
    runs_decode(in, s, size.runs, pages);
    if (in->bad || size.live != cursor_left(in))
        in->bad = true;
    else if (size.live)
        bytes_put(&s->live, cursor_take(in, size.live), size.live);
    if (in->bad)
        snapshot_free(s);
    return !in->bad;
}
