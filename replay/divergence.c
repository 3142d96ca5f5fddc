#include "replay/divergence.h"

#include <string.h>

#include "mmu/digest.h"
#include "mmu/insn.h"
#include "mmu/ownership.h"
#include "recording/streams.h"
#include "recording/symbol_list.h"

/* As many as its sums can name (mmu/page_sums.h), at most. */
#define DIFFERENCES_MAX (PAGE_SUM_ROWS * PAGE_SUM_CELLS)

static const char *const exit_names[EXIT_SYNC_LAST + 1] = {
    [EXIT_PIO_IN] = "in",
    [EXIT_PIO_OUT] = "out",
    [EXIT_MMIO_READ] = "mmio read",
    [EXIT_MMIO_WRITE] = "mmio write",
    [EXIT_HLT] = "hlt",
    [EXIT_WINDOW] = "interrupt window",
    [EXIT_RDMSR] = "rdmsr",
    [EXIT_WRMSR] = "wrmsr",
    [EXIT_RDTSC] = "rdtsc",
    [EXIT_CR4_READ] = "cr4 read",
    [EXIT_CR4_WRITE] = "cr4 write",
    [EXIT_TRAP] = "general protection trap",
    [EXIT_SHUTDOWN] = "triple fault",
    [EXIT_FORCED] = "forced point",
    [EXIT_CR8] = "cr8",
    [EXIT_FAULT] = "page fault",
};

void sync_point_format(const struct sync_point *sync, char *text, size_t size)
{
    const char *name = sync->kind <= EXIT_SYNC_LAST ? exit_names[sync->kind] : NULL;

    switch (sync->kind) {
    case EXIT_PIO_IN:
    case EXIT_PIO_OUT:
    case EXIT_MMIO_READ:
    case EXIT_MMIO_WRITE:
        if (sync->count > 1)
            snprintf(text, size, "%s %#llx, %u x %u bytes", name, (unsigned long long)sync->at,
                     sync->count, sync->size);
        else
            snprintf(text, size, "%s %#llx, %u byte%s", name, (unsigned long long)sync->at,
                     sync->size, sync->size == 1 ? "" : "s");
        break;
    case EXIT_RDMSR:
    case EXIT_WRMSR:
        snprintf(text, size, "%s %#llx", name, (unsigned long long)sync->at);
        break;
    case EXIT_FAULT:
        snprintf(text, size, "%s %#llx, to %s", name, (unsigned long long)sync->at,
                 sync->size == ACCESS_WRITE ? "write" : "read");
        break;
    default:
        snprintf(text, size, "%s", name ? name : "nothing");
    }
}

static void show_place(const struct player *p, const char *label, const struct sync_point *sync,
                       FILE *out)
{
    const struct guest_memory *m = &p->vm.memory;
    struct kvm_sregs sregs;
    uint64_t rip = sync->regs[REGISTER_RIP];
    char code[128], what[96], where[160];

    vcpu_get_sregs((struct vcpu *)&p->cpu->vcpu, &sregs);
    insn_format(m, &sregs, rip, code, sizeof code);
    sync_point_format(sync, what, sizeof what);
    symbolize(p->recording, rip, where, sizeof where);
    fprintf(out, "  %-9s %s at rip %#llx%s%s%s: %s\n", label, what, (unsigned long long)rip,
            where[0] ? " <" : "", where, where[0] ? ">" : "", code);
}

static void show_registers(const struct divergence *d, FILE *out)
{
    unsigned differ = 0;

    for (unsigned i = 0; i < REG_COUNT; i++) {
        if (d->expected.regs[i] == d->got.regs[i])
            continue;
        fprintf(out, "  %-9s expected %#018llx, got %#018llx\n", reg_names[i],
                (unsigned long long)d->expected.regs[i], (unsigned long long)d->got.regs[i]);
        differ++;
    }
    if (!differ)
        fprintf(out, "  all registers are equal\n");
}

static void show_cause(const struct player *p, FILE *out)
{
    const struct divergence *d = &p->divergence;

    if (d->ordinal < 2)
        return;
    fprintf(out, "  the last sync point that was equal is %llu:\n",
            (unsigned long long)d->ordinal - 1);
    show_place(p, "", &d->before, out);
    if (d->input_len) {
        fprintf(out, "            the recording answered");
        for (unsigned i = 0; i < d->input_len; i++)
            fprintf(out, " %02x", d->input[i]);
        fputc('\n', out);
    }
}

static void show_digests(const struct divergence *d, FILE *out)
{
    const struct {
        const char *name;
        uint64_t expected, got;
    } rows[] = {
        {"memory", d->digest_expected.memory, d->digest_got.memory},
        {"CPU state", d->digest_expected.cpu, d->digest_got.cpu},
        {"outputs", d->digest_expected.outputs, d->digest_got.outputs},
    };

    for (unsigned i = 0; i < 3; i++)
        fprintf(out, "  %-9s %s: expected %016llx, got %016llx\n", rows[i].name,
                rows[i].expected == rows[i].got ? "equal" : "DIFFERS",
                (unsigned long long)rows[i].expected, (unsigned long long)rows[i].got);
}

/* What the recording holds about the pages of that memory; false: nothing. */
static bool load_sums(const struct recording *r, uint64_t digest, struct page_sums *sums)
{
    struct err ignored;
    struct stream_reader *in = stream_open(r, STREAM_PAGE_SUMS, &ignored);
    uint8_t record[8 + PAGE_SUMS_BYTES];
    bool found = false;

    while (in && !found && stream_left(in) && stream_read(in, record, sizeof record) == 0) {
        struct cursor c = cursor_of(record, sizeof record);
        found = cursor_u64(&c) == digest;
        page_sums_decode(&c, sums);
    }
    if (in)
        stream_close(in);
    return found;
}

/* Which pages of memory differ, while it is as it was at the digest. */
static void show_pages(const struct player *p, FILE *out)
{
    const struct guest_memory *m = &p->vm.memory;
    struct page_difference page[DIFFERENCES_MAX];
    struct page_sums expected, got;
    bool all;

    if (!load_sums(p->recording, p->divergence.digest_expected.memory, &expected))
        return;
    memory_digest(m, &got);
    const unsigned count = page_sums_compare(&expected, &got, m, page, DIFFERENCES_MAX, &all);
    for (unsigned i = 0; i < count; i++) {
        const struct page_difference *d = &page[i];
        if (d->one_word)
            fprintf(out, "  page %#llx: the word at %#llx: expected 0x%016llx, got 0x%016llx\n",
                    (unsigned long long)d->gpa, (unsigned long long)(d->gpa + d->offset),
                    (unsigned long long)d->expected, (unsigned long long)d->got);
        else
            fprintf(out, "  page %#llx: several words\n", (unsigned long long)d->gpa);
    }
    if (!all)
        fprintf(out, "  %s pages differ than can be named\n", count ? "and more" : "more");
}

/* The pass that had the fewest registers that are not as they should be. */
static void show_nearest(const struct divergence *d, FILE *out)
{
    const struct landing_passes *passes = &d->passes;

    if (!passes->nearest)
        return;
    fprintf(out, "  nearest   pass %llu of those", (unsigned long long)passes->nearest);
    for (unsigned i = 0; i < REG_COUNT; i++)
        if (passes->nearest_other >> i & 1)
            fprintf(out, ", %s %#llx instead of %#llx", reg_names[i],
                    (unsigned long long)passes->nearest_regs[i],
                    (unsigned long long)d->expected.regs[i]);
    if (!passes->nearest_other)
        fprintf(out, ", another CR3, %#llx", (unsigned long long)passes->nearest_cr3);
    fputc('\n', out);
}

/* In how many passes of a forced point's instruction something else was not as it should be. */
static void show_passes(const struct player *p, const struct divergence *d, FILE *out)
{
    static const char *const parts[FINGERPRINT_PARTS] = {
        [FINGERPRINT_REGISTERS] = "registers",
        [FINGERPRINT_MEMORY] = "memory",
        [FINGERPRINT_FPU] = "x87 and SSE state",
        [FINGERPRINT_PAGES] = "pages written before",
    };

    fprintf(out, "  passes    looked at:");
    for (unsigned i = FINGERPRINT_REGISTERS; i < FINGERPRINT_PARTS; i++)
        fprintf(out, "%s %llu differ in %s", i > FINGERPRINT_REGISTERS ? "," : "",
                (unsigned long long)d->passes.differed[i], parts[i]);
    fputc('\n', out);
    if (d->passes.page.known)
        fprintf(out, "  page      %#llx differed in the last of those%s\n",
                (unsigned long long)guest_memory_gpa(
                    &p->vm.memory, (uint64_t)d->passes.page.page.page * PAGE_BYTES),
                d->passes.page.page.is_table ? ", a page table" : "");
    show_nearest(d, out);
}

static void show_bytes(const char *what, const uint8_t *bytes, unsigned len, FILE *out)
{
    fprintf(out, "%s", what);
    for (unsigned i = 0; i < len; i++)
        fprintf(out, " %02x", bytes[i]);
}

/* What code a forced point had, where this is not what is there now. */
static void show_code(const struct divergence *d, FILE *out)
{
    if (d->code_len == d->code_here_len && !memcmp(d->code, d->code_here, d->code_len))
        return;
    show_bytes("  code      recorded", d->code, d->code_len, out);
    if (d->code_here_len)
        show_bytes(", here", d->code_here, d->code_here_len, out);
    else
        fprintf(out, ", here there is no memory");
    fputc('\n', out);
}

/* A forced point that was not come to. */
static void show_lost(const struct player *p, FILE *out)
{
    static const char *const how[] = {
        [DIVERGED_MISSED] = "was not found",
        [DIVERGED_PASSED] =
            "was not found before the guest entered its kernel once more than there",
        [DIVERGED_LATE] = "was not found within the time that is given it",
        [DIVERGED_CODE] = "cannot be looked for, as other code is there at the sync point before, "
                          "and writes to it cannot be followed",
    };
    const struct divergence *d = &p->divergence;

    fprintf(out, "dittovm: the replay diverged before sync point %llu: a forced point %s",
            (unsigned long long)d->ordinal, how[d->kind]);
    if (d->kind == DIVERGED_LATE)
        fprintf(out, ", %u s", p->cpu->clock.patience);
    fputc('\n', out);
    show_place(p, "expected", &d->expected, out);
    if (d->kind == DIVERGED_MISSED)
        show_place(p, "got", &d->got, out);
    if (d->kind != DIVERGED_CODE)
        show_passes(p, d, out);
    show_code(d, out);
}

void divergence_of_cpu(const struct player *p, FILE *out)
{
    const uint32_t here = vcpu_mxcsr_mask();

    if (p->mxcsr_mask && p->mxcsr_mask != here)
        fprintf(out,
                "  this CPU's MXCSR_MASK is %#x, that of the recording's %#x: where a guest saves "
                "the FPU's state (FXSAVE), as Linux does, replay it on a CPU like that\n",
                here, p->mxcsr_mask);
    if (p->frame_rf == FRAME_RF_UNKNOWN)
        return;
    const enum frame_rf frames = frame_rf_here();
    if (frames != FRAME_RF_UNKNOWN && frames != p->frame_rf)
        fprintf(out,
                "  RF in the frames of exceptions and interrupts: this CPU sets it in those of %s, "
                "the recording's in those of %s; where a guest takes faults, as Linux does, replay "
                "it on a CPU like that\n",
                frame_rf_name(frames), frame_rf_name(p->frame_rf));
}

/* What older recorders got wrong, and this replay does not repeat (recording/format.h). */
static void show_version(const struct player *p, FILE *out)
{
    const uint32_t version = recording_version(p->recording);

    if (p->parallel && version < RECORDING_TRAPS_ON_ARRIVAL)
        fprintf(out,
                "  its format is %u: before %u, RDTSC in a program could be taken for a fault of "
                "the program's where vCPUs run at the same time; record again\n",
                version, RECORDING_TRAPS_ON_ARRIVAL);
}

void divergence_report(const struct player *p, FILE *out)
{
    const struct divergence *d = &p->divergence;

    switch (d->kind) {
    case DIVERGED_SYNC:
        fprintf(out, "dittovm: the replay diverged at sync point %llu\n",
                (unsigned long long)d->ordinal);
        show_place(p, "expected", &d->expected, out);
        show_place(p, "got", &d->got, out);
        show_registers(d, out);
        if (d->expected.output != d->got.output)
            fprintf(out, "  what the machine put out up to here differs\n");
        show_cause(p, out);
        break;
    case DIVERGED_MISSED:
    case DIVERGED_PASSED:
    case DIVERGED_LATE:
    case DIVERGED_CODE:
        show_lost(p, out);
        show_cause(p, out);
        break;
    case DIVERGED_DIGEST:
        fprintf(out, "dittovm: the replay diverged: digests differ at sync point %llu\n",
                (unsigned long long)d->ordinal);
        show_digests(d, out);
        if (d->digest_expected.memory != d->digest_got.memory)
            show_pages(p, out);
        break;
    }
    divergence_of_cpu(p, out);
    show_version(p, out);
}
