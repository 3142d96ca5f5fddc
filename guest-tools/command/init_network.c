#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "guest-tools/command/init.h"

static struct sockaddr address(const char *text)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr out;

    inet_pton(AF_INET, text, &in.sin_addr);
    memcpy(&out, &in, sizeof out);
    return out;
}

/* own: its address, or NULL: it keeps what the kernel gives it. */
static void bring_up(int fd, const char *name, const char *own)
{
    struct ifreq r = {0};

    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", name);
    if (own) {
        r.ifr_addr = address(own);
        ioctl(fd, SIOCSIFADDR, &r);
        r.ifr_addr = address("255.255.255.0");
        ioctl(fd, SIOCSIFNETMASK, &r);
    }
    if (ioctl(fd, SIOCGIFFLAGS, &r) == 0) {
        r.ifr_flags |= IFF_UP;
        ioctl(fd, SIOCSIFFLAGS, &r);
    }
}

void set_up_network(bool is_user)
{
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return;
    bring_up(fd, "lo", NULL);
    if (is_user) {
        bring_up(fd, "eth0", "10.0.2.15");
        route.rt_dst = route.rt_genmask = address("0.0.0.0");
        route.rt_gateway = address("10.0.2.2");
        ioctl(fd, SIOCADDRT, &route);
        unlink("/etc/resolv.conf");
        const int names = open("/etc/resolv.conf", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (names >= 0 && write(names, "nameserver 10.0.2.3\n", 20) == 20)
            close(names);
    }
    close(fd);
}
