#include "vmm/points/written_pages.h"

#include <assert.h>
#include <string.h>

#include "mmu/digest.h"
#include "vmm/points/gphook.h"
#include "vmm/points/trace/trace.h"

/* What counts of a page at this GPA, whose bytes are `at`: that, or a copy in `page`. */
static const uint8_t *without_ours(const struct vm *vm, const uint64_t *frame, unsigned frames,
                                   uint64_t gpa, const uint8_t *at, uint8_t page[PAGE_BYTES])
{
    if (trace_hides(vm, gpa, at, page))
        at = page;
    for (unsigned i = 0; i < frames; i++) {
        if (!frame[i] || frame[i] - gpa >= PAGE_BYTES)
            continue;
        memmove(page, at, PAGE_BYTES);
        memset(page + (frame[i] - gpa), 0, sizeof(struct exception_frame));
        at = page;
    }
    return at;
}

bool written_page_is(const struct vm *vm, const uint64_t *frame, unsigned frames, uint64_t page,
                     const uint8_t *then)
{
    const uint64_t gpa = guest_memory_gpa(&vm->memory, page * PAGE_BYTES);
    const uint8_t *now = vm->memory.host + page * PAGE_BYTES;
    _Alignas(uint64_t) uint8_t room[2][PAGE_BYTES];
    uint64_t words[2][PAGE_BYTES / sizeof(uint64_t)];

    now = without_ours(vm, frame, frames, gpa, now, room[0]);
    then = without_ours(vm, frame, frames, gpa, then, room[1]);
    if (memcmp(now, then, PAGE_BYTES) == 0)
        return true;
    page_as_it_counts(now, words[0]);
    page_as_it_counts(then, words[1]);
    return memcmp(words[0], words[1], PAGE_BYTES) == 0;
}

/* Of one page. False: memory has no such page, so this is no recording of ours. */
static bool digest_of(const struct vm *vm, uint64_t frame, const struct landmark_page *written,
                      uint64_t *digest)
{
    const uint64_t gpa = guest_memory_gpa(&vm->memory, (uint64_t)written->page * PAGE_BYTES);
    const uint8_t *at = guest_memory_at(&vm->memory, gpa, PAGE_BYTES);
    _Alignas(uint64_t) uint8_t page[PAGE_BYTES];

    if (!at)
        return false;
    at = without_ours(vm, &frame, 1, gpa, at, page);
    *digest = written->is_table ? page_digest(&vm->memory, at, written->page)
                                : page_digest_of_data(&vm->memory, at, written->page);
    return true;
}

static uint8_t check_of(uint64_t digest)
{
    return (uint8_t)digest;
}

void written_pages_note(const struct vm *vm, uint64_t frame, struct landmark *l, uint8_t *checks)
{
    struct cursor list = cursor_of(l->page_list, l->page_list_bytes);
    struct landmark_page page = {0};

    l->pages_digest = 0;
    for (unsigned i = 0; landmark_next_page(&list, &page); i++) {
        uint64_t digest;
        const bool is_there = digest_of(vm, frame, &page, &digest);
        assert(is_there);
        checks[i] = check_of(digest);
        l->pages_digest += digest;
    }
    l->page_checks = checks;
}

/* Whether the page that the hint has is another one than in the landmark, as its byte there says;
 * false: it may be the same. */
static bool hinted_page_differs(const struct vm *vm, uint64_t frame, const struct landmark *l,
                                const struct page_hint *hint)
{
    uint64_t digest;

    return hint->known && digest_of(vm, frame, &hint->page, &digest) &&
           check_of(digest) != l->page_checks[hint->index];
}

/* Most passes of a loop differ in the page in which the one before differed: it is looked at first.
 */
bool written_pages_equal(const struct vm *vm, uint64_t frame, const struct landmark *l,
                         struct page_hint *hint)
{
    struct cursor list = cursor_of(l->page_list, l->page_list_bytes);
    struct landmark_page page = {0};
    uint64_t sum = 0;

    if (l->page_checks && hinted_page_differs(vm, frame, l, hint))
        return false;
    for (unsigned i = 0; landmark_next_page(&list, &page); i++) {
        uint64_t digest;
        if (!digest_of(vm, frame, &page, &digest))
            return false;
        if (l->page_checks && check_of(digest) != l->page_checks[i]) {
            *hint = (struct page_hint){.known = true, .index = i, .page = page};
            return false;
        }
        sum += digest;
    }
    return sum == l->pages_digest;
}

bool written_page_is_to_come(const struct vm *vm, uint64_t frame, const struct page_to_come *p)
{
    uint64_t digest;

    return digest_of(vm, frame, &p->page, &digest) && check_of(digest) != p->check;
}

unsigned written_pages_to_come(const struct vm *vm, uint64_t frame, const struct landmark *l,
                               struct page_to_come *out)
{
    struct cursor list = cursor_of(l->page_list, l->page_list_bytes);
    struct landmark_page page = {0};
    unsigned count = 0;

    for (unsigned i = 0; l->page_checks && landmark_next_page(&list, &page); i++) {
        out[count] = (struct page_to_come){
            .page = page,
            .gpa = guest_memory_gpa(&vm->memory, (uint64_t)page.page * PAGE_BYTES),
            .check = l->page_checks[i],
        };
        if (!page.is_table && out[count].gpa && written_page_is_to_come(vm, frame, &out[count]))
            count++;
    }
    return count;
}
