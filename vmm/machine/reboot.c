#include "vmm/machine/reboot.h"

#include <stdlib.h>
#include <string.h>

#include "mmu/digest.h"
#include "vmm/machine/boot_image.h"
#include "vmm/machine/code_watch.h"
#include "vmm/machine/schedule.h"

/* ---- memory ---- */

static bool is_as_booted(const struct machine *m, uint64_t page)
{
    const struct boot_image *image = m->boot_image;
    const uint8_t *now = m->vm.memory.host + page * PAGE_BYTES;

    return bitmap_has(image->pages, page)
               ? !memcmp(now, image->memory.host + page * PAGE_BYTES, PAGE_BYTES)
               : page_is_zero(now);
}

/* One behind the other for the guest, too: there is a hole below 4 GiB. */
static bool joins(const struct machine *m, uint64_t page)
{
    const struct guest_memory *memory = &m->vm.memory;

    return guest_memory_gpa(memory, page * PAGE_BYTES) ==
           guest_memory_gpa(memory, (page - 1) * PAGE_BYTES) + PAGE_BYTES;
}

/* Of these pages of the machine's, those that are otherwise become what they were. */
static int write_pages(struct machine *m, uint64_t page, uint64_t end, uint8_t *buffer)
{
    const struct boot_image *image = m->boot_image;
    struct dma *dma = &m->dma.dma;

    while (page < end) {
        const uint64_t first = page;
        for (; page < end && page - first < DMA_MAX / PAGE_BYTES && !is_as_booted(m, page) &&
               (page == first || joins(m, page));
             page++) {
            uint8_t *to = buffer + (page - first) * PAGE_BYTES;
            if (bitmap_has(image->pages, page))
                memcpy(to, image->memory.host + page * PAGE_BYTES, PAGE_BYTES);
            else
                memset(to, 0, PAGE_BYTES);
        }
        if (page == first)
            page++;
        else if (dma->write(dma, guest_memory_gpa(&m->vm.memory, first * PAGE_BYTES), buffer,
                            (page - first) * PAGE_BYTES) < 0)
            return -1;
    }
    return 0;
}

/* Pages that were never touched are not: what was loaded never becomes such a one. */
static int restore_memory(struct machine *m, struct err *e)
{
    uint8_t *buffer = malloc(DMA_MAX);
    int rc = buffer ? 0 : err_set(e, STATUS_ERROR, "out of memory");

    for (uint64_t start = 0, end; rc == 0 && guest_memory_touched(&m->vm.memory, &start, &end);
         start = end)
        rc = write_pages(m, start / PAGE_BYTES, end / PAGE_BYTES, buffer);
    free(buffer);
    return rc;
}

/* ---- CPUs ---- */

static int begin_cpus(struct machine *m, struct err *e)
{
    const struct boot_image *image = m->boot_image;

    for (unsigned i = 0; i < m->config.cpus; i++) {
        struct machine_cpu *cpu = &m->cpus[i];
        if (vcpu_begin_anew(&cpu->vcpu, &image->cpus[i].state, &image->cpus[i].pending, e) < 0)
            return -1;
        clock_sync(&cpu->clock);
        cpu->state = i ? CPU_STOPPED : CPU_RUNS;
        cpu->window = cpu->fault_pending = cpu->nmi = cpu->starts = false;
        cpu->ran_ns = 0;
    }
    m->cpu = m->cpus;
    return 0;
}

/* ---- all of it ---- */

bool machine_boots_again(const struct machine *m)
{
    return m->boot_image && m->at_sync && (m->ended == END_RESET || m->ended == END_TRIPLE_FAULT) &&
           !atomic_load(&m->stop_wanted) && m->stats.boots + 1 < BOOTS_MAX; /* with the first */
}

/* What was known of the kernel that ran is known of the one that is loaded again. */
static void forget_kernel(struct machine *m)
{
    m->hook = (struct gp_hook){0};
    recorder_hook(m->recorder, &m->hook);
    m->syncs_to_hook_check = 0;
    m->kernel_code = m->boot_image->kernel_code;
    m->kexec = (struct kexec_jump){0};
    m->kexec_began = false;
    if (m->code_watch) {
        code_watch_destroy(m->code_watch);
        m->code_watch = code_watch_create();
    }
}

int machine_boot_again(struct machine *m, uint64_t now, uint64_t device_ns, struct err *e)
{
    m->ended = 0;
    disks_settle(&m->disks);
    if (pc_reset(&m->pc, device_ns, e) < 0 || restore_memory(m, e) < 0)
        return -1;
    forget_kernel(m);
    if (begin_cpus(m, e) < 0)
        return -1;
    recorder_boot(m->recorder, m->boot_image->cpus, m->config.cpus, device_ns);
    schedule_init(m, now);
    m->forced_window = m->entry_wanted = false;
    m->pending_ns = m->retry_ns = m->retry_after_ns = m->loop_look_ns = 0;
    m->stats.boots++;
    return 0;
}
