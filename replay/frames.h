#ifndef REPLAY_FRAMES_H
#define REPLAY_FRAMES_H

#include "replay/player.h"

/*
 * The frames that a replayed machine's NICs send and receive, in their order. Those sent are read
 * where they lie in the replay's memory, those received from what the recording has written there.
 */
struct frames {
    struct player_follower follower;
    struct player *player;
    /* A frame, complete: what lies in `bytes` is its header (of virtio-net), FRAME_HEADER bytes,
     * and the frame, frame->len bytes, which may be changed. */
    void (*take)(void *opaque, const struct frame *frame, uint8_t *bytes);
    void *opaque;
    struct frame frame; /* one that is being received; */
    uint64_t ordinal;   /* behind this sync point */
    size_t missing;     /* so many of its bytes are still to come; 0: none is */
    uint8_t bytes[FRAME_HEADER + FRAME_MAX];
};

/* Follow p from where it stands; p has no other follower. take() is called while it plays. */
void frames_follow(struct frames *f, struct player *p,
                   void (*take)(void *opaque, const struct frame *frame, uint8_t *bytes),
                   void *opaque);

#endif
