/*
 * flip-input IN OUT SEED|memory [other-cpu]: copies a recording and changes one bit of one input
 * the guest was given, so that the file is sound but its replay must diverge. The input is chosen
 * by SEED among those early ones whose value is still in a register at the next sync point; that
 * sync point's number, where the replay must be seen to diverge, is printed first, then what was
 * changed. With "memory" two words are added to the initial memory instead, where no small guest
 * has anything. With "other-cpu" the copy says that it was recorded on a CPU with another
 * MXCSR_MASK.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "recording/event.h"
#include "replay/divergence.h"
#include "tests/tools/recording_copy.h"

#define SYNCS_MAX 4000 /* how far into the recording inputs are taken: replays stay short */
/* The page that gets words where they are added, and the next but one, and in what byte of it. */
#define ADDED_GFN 0x1abcu
#define ADDED_AT  0x678u

/* An input that can be changed: `at` counts bytes of INPUTS, or values of TSC. */
struct candidate {
    uint64_t ordinal; /* of the sync point that reads it */
    struct sync_point sync;
    enum stream_kind stream;
    uint64_t at, value;
    unsigned size;
};

struct copy {
    struct recording_copy of;
    struct candidate candidate[SYNCS_MAX];
    unsigned candidates;
    bool adds_page;
};

/* What the guest reads at a sync point: bytes of INPUTS, or one value of TSC. */
static unsigned input_size(const struct sync_point *sync)
{
    switch (sync->kind) {
    case EXIT_PIO_IN:
    case EXIT_MMIO_READ:
        return sync->size * sync->count;
    case EXIT_RDMSR:
    case EXIT_WRMSR:
        return 9;
    default:
        return 0;
    }
}

/* Whether a register newly holds the value, and no other input could have put it there. */
static bool shows(const struct candidate *c, const struct sync_point *next)
{
    uint64_t mask = c->size < 8 ? (1ull << 8 * c->size) - 1 : UINT64_MAX;

    if (c->stream == STREAM_TSC)
        return (uint32_t)next->regs[0] == (uint32_t)c->value;
    if (!c->value || next->kind == EXIT_FORCED)
        return false;
    if (c->sync.kind == EXIT_PIO_IN)
        return (next->regs[0] & mask) == c->value;
    for (unsigned i = 0; i < REG_COUNT; i++)
        if ((next->regs[i] & mask) == c->value && (c->sync.regs[i] & mask) != c->value)
            return true;
    return false;
}

static bool make_candidate(const struct copy *copy, const struct sync_point *sync,
                           uint64_t input_at, uint64_t tsc_at, uint64_t tsc, struct candidate *c)
{
    const struct bytes *inputs = &copy->of.stream[STREAM_INPUTS];

    *c = (struct candidate){.sync = *sync};
    if (sync->kind == EXIT_RDTSC) {
        c->stream = STREAM_TSC;
        c->at = tsc_at;
        c->value = tsc;
        return true;
    }
    if ((sync->kind != EXIT_PIO_IN && sync->kind != EXIT_MMIO_READ) || sync->count != 1 ||
        sync->size > 8 || input_at + sync->size > inputs->len)
        return false;
    c->stream = STREAM_INPUTS;
    c->at = input_at;
    c->size = sync->size;
    memcpy(&c->value, inputs->data + input_at, c->size);
    return true;
}

/*
 * EXIT_TRAP takes a TSC value if it was an RDTSC, which only the guest's memory tells: behind the
 * first one, time stamps are no longer counted and only other inputs are taken.
 */
static void find_candidates(struct copy *copy)
{
    const struct bytes *syncs = &copy->of.stream[STREAM_SYNCS];
    const struct bytes *stamps = &copy->of.stream[STREAM_TSC];
    struct cursor in = cursor_of(syncs->data, syncs->len);
    struct cursor tsc_in = cursor_of(stamps->data, stamps->len);
    struct sync_point last = {0}, sync; /* of recordings of one CPU */
    struct candidate c;
    uint64_t input_at = 0, tsc_at = 0, tsc = 0;
    bool pending = false, counted = true;

    for (uint64_t ordinal = 1; ordinal <= SYNCS_MAX && cursor_left(&in); ordinal++) {
        if (!sync_decode(&in, &last, &sync))
            break;
        if (pending && shows(&c, &sync)) {
            c.ordinal = ordinal - 1;
            copy->candidate[copy->candidates++] = c;
        }
        if (sync.kind == EXIT_TRAP)
            counted = false;
        if (sync.kind == EXIT_RDTSC)
            tsc += (uint64_t)cursor_svarint(&tsc_in);
        pending = make_candidate(copy, &sync, input_at, tsc_at, tsc, &c) &&
                  (counted || c.stream != STREAM_TSC);
        input_at += input_size(&sync);
        tsc_at += sync.kind == EXIT_RDTSC;
    }
}

/* Later time stamps are differences: they must keep their values. */
static void flip_tsc(struct bytes *stamps, uint64_t index, uint64_t bit)
{
    struct cursor in = cursor_of(stamps->data, stamps->len);
    struct bytes out = {0};
    uint64_t value = 0, last = 0;

    for (uint64_t i = 0; cursor_left(&in) && !in.bad; i++) {
        value += (uint64_t)cursor_svarint(&in);
        uint64_t written = i == index ? value ^ bit : value;
        bytes_put_svarint(&out, (int64_t)(written - last));
        last = written;
    }
    bytes_free(stamps);
    *stamps = out;
}

static void flip(struct copy *copy, uint64_t seed)
{
    if (!copy->candidates) {
        fprintf(stderr, "flip-input: the recording has no input that shows in a register\n");
        exit(STATUS_ERROR);
    }
    uint64_t random = (seed + 1) * 0x9e3779b97f4a7c15ull;
    const struct candidate *c = &copy->candidate[(random >> 32) % copy->candidates];
    struct bytes *stream = &copy->of.stream[c->stream];
    unsigned bit = (unsigned)(random >> 8) % (c->stream == STREAM_TSC ? 32 : 8 * c->size);
    char what[96];

    if (c->stream == STREAM_TSC)
        flip_tsc(stream, c->at, 1ull << bit);
    else
        stream->data[c->at + bit / 8] ^= (uint8_t)(1u << bit % 8);
    sync_point_format(&c->sync, what, sizeof what);
    printf("%llu: %s answered %#llx, now with bit %u flipped\n", (unsigned long long)c->ordinal + 1,
           what, (unsigned long long)c->value, bit);
}

/* The added chunk will be the one behind the recording's. */
static void add_pages(struct copy *copy)
{
    struct bytes *image = &copy->of.stream[STREAM_IMAGE];
    struct cursor in = cursor_of(image->data, image->len);
    const uint64_t added = recording_chunks(copy->of.from) + 1;
    uint64_t gfn = 0, chunk = 0;

    while (cursor_left(&in) && !in.bad) {
        gfn += (uint64_t)cursor_svarint(&in) + 1;
        chunk += (uint64_t)cursor_svarint(&in) + 1;
    }
    if (gfn > ADDED_GFN) {
        fprintf(stderr, "flip-input: the machine begins with memory at %#x in use\n",
                ADDED_GFN * 4096);
        exit(STATUS_ERROR);
    }
    bytes_put_svarint(image, (int64_t)(ADDED_GFN - gfn));
    bytes_put_svarint(image, (int64_t)(added - chunk));
    bytes_put_svarint(image, 1);
    bytes_put_svarint(image, -1);
    copy->adds_page = true;
}

static void change_cpu(struct recording_copy *copy)
{
    static const char name[] = "\"mxcsr_mask\": ";
    uint8_t *at = memmem(copy->meta.data, copy->meta.len, name, strlen(name));

    if (!at) {
        fputs("flip-input: the recording does not say which MXCSR_MASK\n", stderr);
        exit(STATUS_ERROR);
    }
    at[strlen(name)] ^= 1; /* its first digit */
}

int main(int argc, char **argv)
{
    uint64_t seed;

    const bool other_cpu = argc == 5 && !strcmp(argv[4], "other-cpu");
    const bool memory = argc >= 4 && !strcmp(argv[3], "memory");

    if (argc != 4 + other_cpu || (!memory && parse_number(argv[3], UINT32_MAX, &seed) < 0)) {
        fputs("usage: flip-input IN OUT SEED|memory [other-cpu]\n", stderr);
        return STATUS_USAGE;
    }
    struct copy *copy = calloc(1, sizeof *copy);
    copy_open(&copy->of, argv[1]);
    if (other_cpu)
        change_cpu(&copy->of);
    if (memory) {
        add_pages(copy);
    } else {
        find_candidates(copy);
        flip(copy, seed);
    }
    uint8_t page[PAGE_BYTES] = {[ADDED_AT] = 1};
    copy_write(&copy->of, argv[2], copy->adds_page ? page : NULL);
    copy_close(&copy->of);
    free(copy);
    return STATUS_OK;
}
