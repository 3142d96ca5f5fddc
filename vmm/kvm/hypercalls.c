#include "vmm/kvm/hypercalls.h"

#include <assert.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* How often it is looked. */
#define EVERY_NS   1000000000ull
#define NAME_BYTES 64u /* longer ones are not what is looked for */

static bool read_at(int fd, void *out, size_t len, uint64_t at)
{
    return pread(fd, out, len, (off_t)at) == (ssize_t)len;
}

/* Where the file has a count, by its name; 0: nowhere. */
static uint64_t find(int fd, const char *name)
{
    struct {
        struct kvm_stats_desc desc;
        char name[NAME_BYTES];
    } stat = {.name = ""};
    struct kvm_stats_header header;

    if (!read_at(fd, &header, sizeof header, 0))
        return 0;
    const uint64_t each = sizeof stat.desc + header.name_size;
    const size_t len = each < sizeof stat ? each : sizeof stat - 1;
    for (uint32_t i = 0; i < header.num_desc; i++)
        if (read_at(fd, &stat, len, header.desc_offset + i * each) && !strcmp(stat.name, name))
            return header.data_offset + stat.desc.offset;
    return 0;
}

void hypercalls_add(struct hypercalls *h, const struct vcpu *vcpu)
{
    struct hypercall_count *count = &h->count[h->vcpus];

    assert(h->vcpus < MAX_VCPUS);
    count->fd = ioctl(vcpu->fd, KVM_GET_STATS_FD, NULL);
    count->at = count->fd < 0 ? 0 : find(count->fd, "hypercalls");
    if (count->at)
        h->vcpus++;
    else if (count->fd >= 0)
        close(count->fd);
}

bool hypercalls_look(struct hypercalls *h, uint64_t now)
{
    const uint64_t seen = h->made;
    uint64_t made = 0;

    if (now < h->look_ns)
        return false;
    h->look_ns = now + EVERY_NS;
    for (unsigned i = 0; i < h->vcpus; i++) {
        uint64_t value = 0;
        read_at(h->count[i].fd, &value, sizeof value, h->count[i].at);
        made += value;
    }
    h->made = made;
    return made > seen;
}

void hypercalls_close(struct hypercalls *h)
{
    while (h->vcpus)
        close(h->count[--h->vcpus].fd);
}
