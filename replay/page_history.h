#ifndef REPLAY_PAGE_HISTORY_H
#define REPLAY_PAGE_HISTORY_H

#include <stddef.h>

#include "mmu/memory.h"

/*
 * Guest memory at several moments of a replay, shared between them: a copy-on-write chain of pages.
 *
 * A moment holds the pages that were written since the moment before it, as they are at it; an
 * older page is found in the moment where it was last written, or else in the initial image. The
 * moments are in the order of the replay's time, not of their making: after going back, new ones
 * may come in between. Everything relies on a replay writing the same pages each time.
 *
 * A moment may have a whole image of its own, as the first one has the initial image: a snapshot,
 * which nobody had to play to.
 */
struct page_version;

struct moment {
    struct moment *earlier, *later;
    struct page_version *pages; /* its own */
    size_t count;
    uint64_t rank; /* grows with time; kept by the history */
    /* Who has no image has that of the last moment before that has one, and what was written since.
     * The first one's is the initial image, NULL. It belongs to the moment's owner. */
    const void *image;
};

/* Where a history takes its pages from; a bit's number in a bitmap is the page's. */
struct page_source {
    struct guest_memory *memory;
    /* Bring these pages of memory to what they are in an image. */
    int (*load)(struct page_source *s, const void *image, const uint32_t *pages, size_t count,
                struct err *e);
    /* Add the pages to the bitmap in which two images may differ. */
    void (*differing)(struct page_source *s, const void *a, const void *b, uint64_t *bitmap);
    /* Add the pages that were written since the last call to the bitmap. */
    int (*collect)(struct page_source *s, uint64_t *bitmap, struct err *e);
};

struct page_history {
    struct page_source *source;
    struct moment *first, *last;
    struct moment *base; /* memory is that of this moment, but for the pages in `written` */
    uint64_t *written;   /* collected so far */
    struct page_version **newest; /* of each page, in any moment */
    uint64_t bytes;               /* of all pages held */
    uint64_t changed; /* pages that are held at least once: what even one moment takes */
};

/*
 * Begin with guest memory as it is: `first` is the moment now. What we write ourselves is marked in
 * h->written from here on (guest_memory_mark()). Source and moments are the caller's, and must
 * outlive the history.
 */
int page_history_open(struct page_history *h, struct page_source *source, struct moment *first,
                      struct err *e);
/* A history that was never opened (all zero) is fine. */
void page_history_close(struct page_history *h);

/* Make `now` a moment, the next one behind `before`. That is the one that memory was restored to or
 * taken at last, or a later one that was passed since. */
int page_history_take(struct page_history *h, struct moment *now, struct moment *before,
                      struct err *e);
/* Enter a moment with an image (of which `image` is set already) behind `before`. Memory need not
 * have been there. */
void page_history_enter(struct page_history *h, struct moment *moment, struct moment *before);
/* Bring memory to a moment, earlier or later. */
int page_history_restore(struct page_history *h, struct moment *to, struct err *e);
/* Memory is that of a later moment now, by running on to it. */
void page_history_pass(struct page_history *h, struct moment *moment);
/*
 * Whether all pages that were written on the way from the moment before are as they are at this
 * one, as `is` says of each: who comes from there by running is at it then, if the CPU is.
 * *differed: the page to look at first, since it differed the last time; NULL at first.
 */
bool page_history_is_at(const struct moment *moment,
                        bool (*is)(void *opaque, uint64_t page, const uint8_t *bytes), void *opaque,
                        const struct page_version **differed);
/* Bytes that are held for there being more than one moment. */
uint64_t page_history_extra(const struct page_history *h);
/* Forget a moment that is not the first and has no image: what later ones need of it passes on to
 * them. */
void page_history_drop(struct page_history *h, struct moment *moment);

#endif
