/* A TAP device of this host's, which root has set up, or is made while the machine runs; or one at
 * a bridge. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
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

static const char *cannot_use(const char *name)
{
    const bool root = geteuid() == 0;

    snprintf(tap.wrong, sizeof tap.wrong, "cannot use %s: %s%s", name, strerror(errno),
             root ? "" : " (it is for root; --net user and passt are not)");
    return tap.wrong;
}

/* The device of this name; of a name with %d, a new one, whose name is then in *ask. */
static bool open_device(struct ifreq *ask, const char *name)
{
    *ask = (struct ifreq){.ifr_flags = IFF_TAP | IFF_NO_PI};
    snprintf(ask->ifr_name, sizeof ask->ifr_name, "%s", name);
    tap.fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    return tap.fd >= 0 && ioctl(tap.fd, TUNSETIFF, ask) == 0;
}

static const char *prepare(const struct net_spec *spec, int wire)
{
    struct ifreq ask;

    (void)wire;
    if (strlen(spec->address) >= sizeof ask.ifr_name || strchr(spec->address, '%'))
        return "a device's name has at most 15 characters, without '%'";
    return open_device(&ask, spec->address) ? backend_child_drop_rights()
                                            : cannot_use(spec->address);
}

/* Of all its ports' addresses a bridge may take the lowest: so that of ours is a high one. */
static bool raise_address(int control, struct ifreq *device)
{
    if (ioctl(control, SIOCGIFHWADDR, device) < 0)
        return false;
    device->ifr_hwaddr.sa_data[0] = (char)0xfe;
    return ioctl(control, SIOCSIFHWADDR, device) == 0;
}

static bool join_bridge(struct ifreq *device, const char *bridge)
{
    const int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq ask = {.ifr_ifindex = (int)if_nametoindex(device->ifr_name)};

    memcpy(ask.ifr_name, bridge,
           strnlen(bridge, sizeof ask.ifr_name - 1)); /* all of it: see below */
    bool joined =
        control >= 0 && raise_address(control, device) && ioctl(control, SIOCBRADDIF, &ask) == 0;
    device->ifr_flags = IFF_UP;
    joined = joined && ioctl(control, SIOCSIFFLAGS, device) == 0;
    const int error = errno;
    if (control >= 0)
        close(control);
    errno = error;
    return joined;
}

/* A device of its own, which is gone with this process. */
static const char *prepare_bridge(const struct net_spec *spec, int wire)
{
    struct ifreq device;

    (void)wire;
    if (strlen(spec->address) >= sizeof device.ifr_name)
        return "a bridge's name has at most 15 characters";
    return open_device(&device, "ditto%d") && join_bridge(&device, spec->address)
               ? backend_child_drop_rights()
               : cannot_use(spec->address);
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

static int open_bridge(const struct net_spec *spec, struct err *e)
{
    static const struct backend_child child = {prepare_bridge, serve};

    return backend_child_start(&child, spec, e);
}

const struct net_backend net_backend_bridge = {.open = open_bridge};
