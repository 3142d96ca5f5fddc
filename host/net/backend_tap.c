/* A TAP device of this host's, which root has set up, or is made while the machine runs. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/limits.h"
#include "host/net/backend_child.h"
#include "host/net/net_backend.h"

static struct {
    int fd;
    struct wire_queue in;
    uint8_t frame[FRAME_MAX];
    char wrong[NET_ADDRESS_MAX + 160];
} tap;

static const char *prepare(const struct net_spec *spec, int wire)
{
    struct ifreq ask = {.ifr_flags = IFF_TAP | IFF_NO_PI};

    (void)wire;
    if (strlen(spec->address) >= sizeof ask.ifr_name)
        return "a device's name has at most 15 characters";
    strcpy(ask.ifr_name, spec->address);
    tap.fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (tap.fd < 0 || ioctl(tap.fd, TUNSETIFF, &ask) < 0) {
        const bool root = geteuid() == 0;
        snprintf(tap.wrong, sizeof tap.wrong, "cannot use %s: %s%s", spec->address, strerror(errno),
                 root ? "" : " (it is for root; --net user and passt are not)");
        return tap.wrong;
    }
    return backend_child_drop_rights();
}

/* Those that the device does not take are lost, as a network may. */
static void take_frames(void)
{
    const uint8_t *frame;
    size_t len;

    for (; (frame = wire_first(&tap.in, &len)); wire_drop(&tap.in))
        if (write(tap.fd, frame, len) < 0)
            continue;
}

static void serve(const struct net_spec *spec, int wire)
{
    struct pollfd p[2] = {{.fd = wire, .events = POLLIN}, {.fd = tap.fd, .events = POLLIN}};

    (void)spec;
    for (;;) {
        if (poll(p, 2, -1) < 0)
            continue;
        if (p[0].revents) {
            if (wire_read(wire, &tap.in) < 0)
                return;
            take_frames();
        }
        if (p[1].revents) {
            const ssize_t n = read(tap.fd, tap.frame, sizeof tap.frame);
            if (n > 0 && wire_write(wire, tap.frame, (size_t)n) < 0)
                return;
            if (n < 0 && errno != EAGAIN && errno != EINTR)
                return; /* the device is gone */
        }
    }
}

static int open_tap(const struct net_spec *spec, struct err *e)
{
    static const struct backend_child child = {prepare, serve};

    return backend_child_start(&child, spec, e);
}

const struct net_backend net_backend_tap = {.open = open_tap};
