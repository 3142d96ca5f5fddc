#include "tests/guests/guest.h"

#define TICKS      120
#define FILL_BYTES (12u << 20)
#define FILL_COPY  3u /* a third of what is filled is copied */

/* String instructions that each take longer than a tick, even at 400 MB/s. The buffers lie in the
 * memory behind the guest, and end at 32 MiB. */
static uint8_t *const from = (uint8_t *)(16u << 20), *const to = (uint8_t *)(28u << 20);
static uint64_t n, bytes, rounds, sum;

static void fill(void *at, uint8_t value, uint64_t bytes)
{
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(bytes) : "a"(value) : "memory");
}

static void copy(void *target, const void *source, uint64_t bytes)
{
    __asm__ volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(bytes) : : "memory");
}

/* How many bytes are left behind the first difference. */
static uint64_t compare(const void *a, const void *b, uint64_t bytes)
{
    __asm__ volatile("repe cmpsb" : "+D"(a), "+S"(b), "+c"(bytes) : : "cc", "memory");
    return bytes;
}

static uint64_t mix_all(uint64_t with, const uint8_t *at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += sizeof with)
        with = mix(with, *(const uint64_t *)(at + i));
    return with;
}

static void work(void)
{
    const uint64_t copied = bytes / FILL_COPY;

    for (; ticks < n; rounds++) {
        fill(from, (uint8_t)(rounds + 1), bytes);
        sum = mix_all(sum, from, bytes);
        copy(to, from, copied);
        sum = mix(sum, compare(to, from, copied));
        from[rounds * 2654435761u % copied] ^= 0xff; /* the next comparison ends there */
        sum = mix(sum, compare(to, from, copied));
        sum = mix_all(sum, to, copied);
    }
}

static void done(void)
{
    report_ticks(n);
    report("rounds", rounds);
    report("sum", sum);
}

void guest_main(void)
{
    n = parameter("ticks", TICKS);
    bytes = parameter("bytes", FILL_BYTES);
    timer_start(100);
    at_chosen_level(work, done);
}
