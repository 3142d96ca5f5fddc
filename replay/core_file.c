#include "replay/core_file.h"

#include <assert.h>
#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/deaf_thread.h"
#include "mmu/digest.h"
#include "replay/core_notes.h"

/* What is written at once, between two looks at whether it is to stop. */
#define WRITE_BYTES (8u << 20)
/* A note, the kernel's image, and two ranges of memory. */
#define HEADERS_FIXED 4u

_Static_assert(HEADERS_FIXED + CORE_MAPPED_MAX < PN_XNUM, "they are counted in 16 bits");

/* ---- headers ---- */

/* The program header of a range, of a file that has memory from `start` on. Its alignment is 0, as
 * kdump's: by that crash tells such a core from one of an older tool, netdump. */
static void put_range(struct bytes *out, const struct core *core, uint64_t start,
                      struct core_range range)
{
    const uint8_t *at = guest_memory_any(core->memory, range.gpa, range.bytes);
    const Elf64_Phdr header = {
        .p_type = PT_LOAD,
        .p_flags = PF_R | PF_W | PF_X,
        .p_offset = start + (uint64_t)(at - core->memory->host),
        .p_vaddr = range.va,
        .p_paddr = range.gpa,
        .p_filesz = range.bytes,
        .p_memsz = range.bytes,
    };

    assert(at); /* who found the range has looked */
    bytes_put(out, &header, sizeof header);
}

/* Memory first: crash looks for a physical address in the order of the headers. */
static void put_ranges(struct bytes *out, const struct core *core, uint64_t start)
{
    const struct guest_memory *m = core->memory;
    const struct core_kernel *k = core->kernel;

    put_range(out, core, start, (struct core_range){k->direct_map, 0, m->low_size});
    if (m->high_size)
        put_range(
            out, core, start,
            (struct core_range){k->direct_map + MEMORY_HIGH_BASE, MEMORY_HIGH_BASE, m->high_size});
    if (k->image.bytes)
        put_range(out, core, start, k->image);
    for (size_t i = 0; i < k->mapped.count; i++)
        put_range(out, core, start, k->mapped.at[i]);
}

/* All that comes before memory, in whole pages. */
static void put_head(struct bytes *out, const struct core *core)
{
    const struct core_kernel *k = core->kernel;
    const size_t count =
        2 + (core->memory->high_size != 0) + (k->image.bytes != 0) + k->mapped.count;
    const Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_CORE,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_phoff = sizeof header,
        .e_ehsize = sizeof header,
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = (Elf64_Half)count,
    };
    struct bytes notes = {0};

    core_put_notes(&notes, core);
    const Elf64_Phdr note = {
        .p_type = PT_NOTE,
        .p_offset = sizeof header + count * sizeof note,
        .p_filesz = notes.len,
        .p_memsz = notes.len,
    };
    const uint64_t start = ((note.p_offset + notes.len) | (PAGE_BYTES - 1)) + 1;
    bytes_put(out, &header, sizeof header);
    bytes_put(out, &note, sizeof note);
    put_ranges(out, core, start);
    assert(out->len == note.p_offset);
    bytes_put(out, notes.data, notes.len);
    while (out->len < start)
        bytes_put_u8(out, 0);
    bytes_free(&notes);
}

/* ---- memory ---- */

/* Memory being written, by two threads: in the emulated host each write waits for the file server
 * outside. The lock is for all but what does not change. */
struct writing {
    const struct guest_memory *memory;
    struct core_output *out;
    uint64_t start; /* where in the file memory is */
    pthread_mutex_t lock;
    uint64_t next, end; /* what no thread has taken yet of a range that was touched */
    uint64_t done;      /* the end of the furthest piece that was written */
    bool failed;
    struct err error; /* the first one */
};

/* Takes the next piece of memory. False: there is none, or it is of no use any more. */
static bool take_piece(struct writing *w, uint64_t *from, uint64_t *to)
{
    pthread_mutex_lock(&w->lock);
    bool any = !w->failed;
    if (any && w->next == w->end)
        any = guest_memory_touched(w->memory, &w->next, &w->end);
    if (any) {
        *from = w->next;
        *to = w->end - *from < WRITE_BYTES ? w->end : *from + WRITE_BYTES;
        w->next = *to;
    }
    pthread_mutex_unlock(&w->lock);
    return any;
}

/* The pages from byte `from` to `to` of memory that are not zero, those beside each other at once;
 * *bytes: how much that is. */
static int write_pages(const struct writing *w, uint64_t from, uint64_t to, uint64_t *bytes,
                       struct err *e)
{
    const uint8_t *const memory = w->memory->host;

    *bytes = 0;
    for (uint64_t at = from, end; at < to; at = end) {
        const bool zero = page_is_zero(memory + at);
        for (end = at + PAGE_BYTES; end < to && page_is_zero(memory + end) == zero;)
            end += PAGE_BYTES;
        if (zero)
            continue;
        if (core_output_write(w->out, memory + at, end - at, w->start + at, e) < 0)
            return -1;
        *bytes += end - at;
    }
    return 0;
}

static void *write_pieces(void *opaque)
{
    struct writing *w = opaque;
    uint64_t from, to, bytes;
    struct err e;

    while (take_piece(w, &from, &to)) {
        int rc = write_pages(w, from, to, &bytes, &e);
        pthread_mutex_lock(&w->lock);
        w->out->bytes += bytes;
        if (w->done < to)
            w->done = to;
        if (rc == 0)
            rc = core_output_done(w->out, w->done, &e);
        if (rc < 0 && !w->failed)
            w->error = e;
        w->failed |= rc < 0;
        pthread_mutex_unlock(&w->lock);
    }
    return NULL;
}

static int write_memory(const struct guest_memory *m, struct core_output *out, uint64_t start,
                        struct err *e)
{
    struct writing w = {.memory = m, .out = out, .start = start, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t second;

    const bool alone = deaf_thread_create(&second, write_pieces, &w) != 0;
    write_pieces(&w);
    if (!alone)
        pthread_join(second, NULL);
    if (w.failed)
        *e = w.error;
    return w.failed ? -1 : 0;
}

int core_file_write(const struct core *core, struct core_output *out, struct err *e)
{
    struct bytes head = {0};
    int rc = 0;

    put_head(&head, core);
    if (ftruncate(out->fd, (off_t)(head.len + core->memory->size)) < 0)
        rc = err_set(e, STATUS_ERROR, "cannot write to %s: %s", out->path, strerror(errno));
    if (rc == 0)
        rc = core_output_write(out, head.data, head.len, 0, e);
    if (rc == 0)
        rc = write_memory(core->memory, out, head.len, e);
    bytes_free(&head);
    return rc;
}
