#include "replay/core_kernel.h"

#include <string.h>

#include "mmu/walk.h"
#include "replay/core_task.h"

/* Linux maps its image here, at most so much of it (x86's pgtable_64_types.h). */
#define IMAGE_MAP ((uint64_t)0xffffffff80000000)
#define IMAGE_MAX (1ull << 30)
/* With page-table isolation, the root for user code lies behind the kernel's own. */
#define USER_ROOT ((uint64_t)PAGE_BYTES)

#define INFO_NAME "VMCOREINFO"

/* The symbols that are looked at; 0: there is none of this name. */
struct kernel_symbols {
    uint64_t text, end, root, direct_map, info, info_size, info_note;
    struct task_symbols task;
};

static void find_symbols(struct kernel_symbols *s, const struct symbol_list *list)
{
    const struct {
        const char *name;
        uint64_t *at;
    } wanted[] = {
        {"_text", &s->text},
        {"_end", &s->end},
        {"init_top_pgt", &s->root},
        {"page_offset_base", &s->direct_map},
        {"vmcoreinfo_data", &s->info},
        {"vmcoreinfo_size", &s->info_size},
        {"vmcoreinfo_note", &s->info_note},
        {"init_task", &s->task.init_task},
        {"__per_cpu_offset", &s->task.per_cpu},
        {"current_task", &s->task.current},
        {"pcpu_hot", &s->task.per_cpu_hot},
    };

    *s = (struct kernel_symbols){0};
    for (size_t i = 0; i < list->count; i++) {
        const char *name = (const char *)list->names.data + list->at[i].name;
        for (size_t j = 0; j < sizeof wanted / sizeof *wanted; j++)
            if (!strcmp(name, wanted[j].name))
                *wanted[j].at = list->at[i].address;
    }
}

/* ---- page tables ---- */

/* The kernel's own root maps itself, and everything else of the kernel's. */
static bool leads_to_kernel_root(const struct guest_memory *m, const struct kernel_symbols *s,
                                 uint64_t from, uint64_t *root)
{
    struct translation first, again;

    if (!s->root || !walk(m, from, s->root, &first) || !walk(m, first.gpa, s->root, &again) ||
        first.gpa != again.gpa)
        return false;
    *root = first.gpa;
    return true;
}

/* False: no table of the kernel's is known, as before it has made its own. */
static bool find_root(const struct guest_memory *m, const struct kernel_symbols *s,
                      const uint64_t *roots, unsigned count, uint64_t *root)
{
    struct translation t;

    for (unsigned i = 0; i < count; i++)
        if (leads_to_kernel_root(m, s, roots[i] & ~USER_ROOT, root) ||
            leads_to_kernel_root(m, s, roots[i], root))
            return true;
    /* No vCPU uses the kernel's tables; but it is loaded where it was linked. */
    if (s->root >= IMAGE_MAP && leads_to_kernel_root(m, s, s->root - IMAGE_MAP, root))
        return true;
    for (unsigned i = 0; i < count; i++) {
        *root = roots[i];
        if (s->text && walk(m, *root, s->text, &t))
            return true;
    }
    return false;
}

static bool read_word(const struct guest_memory *m, uint64_t root, uint64_t va, uint64_t *word)
{
    return va && walk_read(m, root, va, word, sizeof *word) == sizeof *word;
}

/* ---- where the kernel is ---- */

static void find_direct_map(struct core_kernel *k, const struct guest_memory *m,
                            const struct kernel_symbols *s, uint64_t root)
{
    const uint64_t most = MEMORY_HIGH_BASE + m->size, half = 0xff00000000000000ull;
    uint64_t base;

    /* The kernel has it at a multiple of 1 GiB, in its half, before its image. */
    if (read_word(m, root, s->direct_map, &base) && base % (1ull << 30) == 0 && base >= half &&
        base < IMAGE_MAP - most)
        k->direct_map = base;
}

/* Pages of the image may be missing, as the kernel unmaps what only its beginning needs; those that
 * are mapped must be one piece of memory. */
static void find_image(struct core_kernel *k, const struct guest_memory *m,
                       const struct kernel_symbols *s, uint64_t root)
{
    const uint64_t start = s->text & ~(uint64_t)(PAGE_BYTES - 1);
    const uint64_t bytes = ((s->end - start) | (PAGE_BYTES - 1)) + 1;
    struct translation first, t;

    if (start < IMAGE_MAP || s->end <= start || s->end - start >= IMAGE_MAX ||
        bytes > UINT64_MAX - start || !walk(m, root, start, &first) ||
        !guest_memory_any(m, first.gpa, bytes))
        return;
    for (uint64_t at = 0; at < bytes; at += PAGE_BYTES)
        if (walk(m, root, start + at, &t) && t.gpa != first.gpa + at)
            return;
    k->image = (struct core_range){start, first.gpa, bytes};
}

/* All but the image and the direct map, which Linux lets end at a multiple of 1 GiB. */
static void find_mapped(struct core_kernel *k, const struct guest_memory *m, uint64_t root)
{
    const uint64_t step = 1ull << 30,
                   end = m->high_size ? MEMORY_HIGH_BASE + m->high_size : m->size;
    const struct core_range known[] = {
        {.va = k->direct_map, .bytes = (end + step - 1) & ~(step - 1)},
        k->image,
    };

    core_mapped_find(&k->mapped, m, root, known, 2);
}

static void find_tasks(struct core_kernel *k, const struct guest_memory *m,
                       const struct kernel_symbols *s, uint64_t root, unsigned cpus)
{
    k->has_pids = true;
    for (unsigned i = 0; i < cpus; i++)
        k->has_pids &= core_task_pid(m, root, &s->task, i, &k->pids[i]);
}

/* ---- VMCOREINFO ---- */

static bool take_text(struct core_kernel *k, const struct guest_memory *m, uint64_t root,
                      uint64_t va, uint64_t len)
{
    static const char begin[] = "OSRELEASE=";

    if (len < sizeof begin || len > sizeof k->info || walk_read(m, root, va, k->info, len) != len ||
        memcmp(k->info, begin, sizeof begin - 1) != 0)
        return false;
    k->info_len = len;
    return true;
}

/* The same as a whole note, which is where a crash kernel finds it. */
static bool take_note(struct core_kernel *k, const struct guest_memory *m, uint64_t root,
                      uint64_t va)
{
    struct {
        uint32_t name_bytes, text_bytes, type;
        char name[12];
    } head;

    return walk_read(m, root, va, &head, sizeof head) == sizeof head &&
           head.name_bytes == sizeof INFO_NAME && !memcmp(head.name, INFO_NAME, sizeof INFO_NAME) &&
           take_text(k, m, root, va + sizeof head, head.text_bytes);
}

static const char *find_info(struct core_kernel *k, const struct guest_memory *m,
                             const struct kernel_symbols *s, uint64_t root)
{
    uint64_t text = 0, len = 0, note = 0;

    if (!s->info_note && (!s->info || !s->info_size))
        return "its kernel has none (CONFIG_CRASH_CORE)";
    if (read_word(m, root, s->info, &text) && read_word(m, root, s->info_size, &len) && text &&
        take_text(k, m, root, text, len))
        return NULL;
    if (read_word(m, root, s->info_note, &note) && note && take_note(k, m, root, note))
        return NULL;
    return (text && len) || note ? "what its kernel points to is none"
                                 : "its kernel has not made it yet at this place";
}

void core_kernel_find(struct core_kernel *k, const struct guest_memory *m,
                      const struct symbol_list *symbols, const uint64_t *roots, unsigned count,
                      unsigned cpus)
{
    struct kernel_symbols s;
    uint64_t root;

    *k = (struct core_kernel){.direct_map = CORE_DIRECT_MAP};
    find_symbols(&s, symbols);
    if (!symbols->count) {
        k->without = "the recording has no symbols of its kernel";
    } else if (!find_root(m, &s, roots, count, &root)) {
        k->without = "no page tables of its kernel are there at this place";
    } else {
        find_direct_map(k, m, &s, root);
        find_image(k, m, &s, root);
        find_mapped(k, m, root);
        find_tasks(k, m, &s, root, cpus);
        k->without = find_info(k, m, &s, root);
    }
}

void core_kernel_free(struct core_kernel *k)
{
    core_mapped_free(&k->mapped);
}
