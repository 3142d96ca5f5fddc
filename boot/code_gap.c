#include "boot/code_gap.h"

#include <string.h>

#define INT3    0xcc
#define GAP_MIN 32u
/* What is left free at both ends: functions end in a run of these of their own. */
#define MARGIN 12u

bool code_gap_find(const uint8_t *text, size_t len, struct code_gap *out)
{
    size_t best = 0, best_len = 0;

    for (size_t i = 0; i < len;) {
        size_t end = i;
        while (end < len && text[end] == INT3)
            end++;
        if (end - i > best_len) {
            best = i;
            best_len = end - i;
        }
        i = end + 1;
    }
    if (best_len < GAP_MIN)
        return false;
    *out = (struct code_gap){.next = best + MARGIN, .end = best + best_len - MARGIN};
    return true;
}

size_t code_gap_put(struct code_gap *gap, uint8_t *loaded, const uint8_t *code, size_t len)
{
    const size_t at = gap->next;

    if (gap->end - at < len)
        return 0;
    memcpy(loaded + at, code, len);
    gap->next += len;
    return at;
}

void code_set_target(uint8_t *insn, uint64_t va, uint64_t target)
{
    const int32_t distance = (int32_t)(target - va - CODE_REL_BYTES);

    memcpy(insn + 1, &distance, sizeof distance);
}

uint64_t code_target(const uint8_t *insn, uint64_t va)
{
    int32_t distance;

    memcpy(&distance, insn + 1, sizeof distance);
    return va + CODE_REL_BYTES + (uint64_t)(int64_t)distance;
}
