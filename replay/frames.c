#include "replay/frames.h"

#include <assert.h>
#include <string.h>

#include "recording/chunk_source.h"

static void take_sent(struct frames *f, const struct frame *frame)
{
    struct cursor list = cursor_of(frame->place_list, frame->place_list_bytes);
    struct frame_place place = {0};
    size_t done = 0;
    const size_t len = FRAME_HEADER + frame->len;

    while (done < len && frame_next_place(&list, &place)) {
        const size_t n = place.len < len - done ? place.len : len - done;
        const void *from = guest_memory_at(&f->player->vm.memory, place.gpa, n);
        if (!from)
            return; /* at which the device broke */
        memcpy(f->bytes + done, from, n);
        done += n;
    }
    assert(done == len); /* the decoder has looked */
    f->take(f->opaque, frame, f->bytes);
}

/* Some bytes of the frame that is being received. */
static void take_bytes(struct frames *f, const void *data, size_t len)
{
    const size_t n = len < f->missing ? len : f->missing;

    memcpy(f->bytes + FRAME_HEADER + f->frame.len - f->missing, data, n);
    f->missing -= n;
    if (n && !f->missing)
        f->take(f->opaque, &f->frame, f->bytes);
}

static int take_written(struct frames *f, const struct dma_transfer *dma, struct err *e)
{
    uint8_t page[PAGE_BYTES];
    size_t len;

    if (dma->len <= DMA_INLINE_MAX)
        return take_bytes(f, dma->data, dma->len), 0;
    for (uint32_t at = 0; at < dma->len; at += PAGE_BYTES) {
        if (chunk_read(f->player->chunks, dma->chunks[at / PAGE_BYTES], page, &len, e) < 0)
            return -1;
        take_bytes(f, page, len < dma->len - at ? len : dma->len - at);
    }
    return 0;
}

static int follow_event(struct player_follower *follower, const struct event *event, struct err *e)
{
    struct frames *f = (struct frames *)follower;

    if (event->ordinal != f->ordinal) /* the rest of one at which the device broke never comes */
        f->missing = 0;
    if (event->kind == EVENT_DMA_WRITE && f->missing)
        return take_written(f, &event->dma, e);
    if (event->kind != EVENT_FRAME || !event->frame.len)
        return 0;
    f->missing = 0;
    if (event->frame.is_sent) {
        take_sent(f, &event->frame);
        return 0;
    }
    f->ordinal = event->ordinal;
    f->frame = event->frame;
    f->missing = FRAME_HEADER + event->frame.len;
    return 0;
}

static int follow_access(struct player_follower *follower, const struct vcpu_exit *exit,
                         struct err *e)
{
    (void)follower;
    (void)exit;
    (void)e;
    return 0;
}

void frames_follow(struct frames *f, struct player *p,
                   void (*take)(void *opaque, const struct frame *frame, uint8_t *bytes),
                   void *opaque)
{
    assert(!p->follower);
    *f = (struct frames){
        .follower = {.access = follow_access, .event = follow_event},
        .player = p,
        .take = take,
        .opaque = opaque,
    };
    p->follower = &f->follower;
}
