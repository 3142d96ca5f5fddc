#include "vmm/machine/disks.h"

#include <assert.h>

#include "base/deaf_thread.h"
#include "base/now.h"

/* A vCPU waits for a disk at the doorbell while its jobs take no longer than this on average: a
 * completion at a later sync point costs a kick and an interrupt more, 3 ms in the emulated host.
 */
#define PATIENCE_NS 1000000
/* Of how many jobs that average is, about. */
#define AVERAGED 8

/* A job that has to wait for the host's storage. */
static void run_waiting(struct disks *d, struct block_job *job)
{
    const uint64_t begin = host_now_ns();

    job->run(job, true);
    d->took_ns += ((int64_t)(host_now_ns() - begin) - d->took_ns) / AVERAGED;
}

static void *disk_thread(void *arg)
{
    struct disks *d = arg;

    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (!d->oldest && !d->stops)
            pthread_cond_wait(&d->changed, &d->lock);
        struct block_job *job = d->oldest;
        if (!job)
            break;
        pthread_mutex_unlock(&d->lock);
        run_waiting(d, job);
        pthread_mutex_lock(&d->lock);
        d->oldest = job->next;
        if (!d->oldest)
            d->newest = NULL;
        pthread_cond_broadcast(&d->changed);
        /* The vCPU thread may complete it, and use its place again, from here on. */
        atomic_store(&job->done, true);
        pthread_mutex_unlock(&d->lock);
        d->notify(d->opaque);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* Give it to the thread, behind those that wait. False: none does, so that it may be done at once;
 * or there is no thread. waits: it would take long. */
static bool queue_job(struct disks *d, struct block_job *job, bool waits)
{
    pthread_mutex_lock(&d->lock);
    const bool queued = d->has_thread && (d->oldest || (waits && d->took_ns > PATIENCE_NS));
    if (queued) {
        job->next = NULL;
        if (d->newest)
            d->newest->next = job;
        else
            d->oldest = job;
        d->newest = job;
        pthread_cond_broadcast(&d->changed);
    }
    pthread_mutex_unlock(&d->lock);
    return queued;
}

static struct disk_lane *lane_of(struct block_link *link)
{
    return (struct disk_lane *)link;
}

static void link_submit(struct block_link *link, struct block_job *job)
{
    struct disks *d = lane_of(link)->disks;

    if (queue_job(d, job, false))
        return;
    if (!job->run(job, false)) {
        if (queue_job(d, job, true))
            return;
        run_waiting(d, job);
    }
    atomic_store(&job->done, true);
}

static unsigned link_completes(struct block_link *link, unsigned done)
{
    const struct disk_lane *lane = lane_of(link);

    if (done)
        recorder_disk_done(lane->disks->recorder, lane->index, done);
    return done;
}

static void link_settle(struct block_link *link)
{
    disks_settle(lane_of(link)->disks);
}

void disks_settle(struct disks *d)
{
    pthread_mutex_lock(&d->lock);
    while (d->oldest)
        pthread_cond_wait(&d->changed, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

void disks_open(struct disks *d, struct pc *pc)
{
    *d = (struct disks){.pc = pc};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    for (unsigned i = 0; i < MAX_DISKS; i++)
        d->lane[i] = (struct disk_lane){
            .link = {.submit = link_submit, .completes = link_completes, .settle = link_settle},
            .disks = d,
            .index = i,
        };
}

void disks_close(struct disks *d)
{
    if (!d->pc)
        return;
    assert(!d->has_thread);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    *d = (struct disks){0};
}

struct block_link *disks_link(struct disks *d, unsigned index)
{
    return &d->lane[index].link;
}

static unsigned count_of(const struct disks *d)
{
    return d->pc->config.disks ? d->pc->config.disks->count : 0;
}

void disks_listen(struct disks *d, void (*notify)(void *opaque), void *opaque)
{
    assert(!d->has_thread);
    if (!count_of(d))
        return;
    d->notify = notify;
    d->opaque = opaque;
    d->stops = false;
    d->has_thread = deaf_thread_create(&d->thread, disk_thread, d) == 0;
}

void disks_ignore(struct disks *d)
{
    if (!d->has_thread)
        return;
    pthread_mutex_lock(&d->lock);
    d->stops = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    d->has_thread = false;
}

bool disks_have_done(const struct disks *d)
{
    for (unsigned i = 0; i < count_of(d); i++)
        if (virtio_blk_has_done(&d->pc->disks[i].blk))
            return true;
    return false;
}

void disks_complete(struct disks *d)
{
    for (unsigned i = 0; i < count_of(d); i++)
        if (virtio_blk_has_done(&d->pc->disks[i].blk))
            virtio_blk_complete(&d->pc->disks[i].blk);
}
