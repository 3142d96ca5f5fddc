#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/mac.h"
#include "host/domain/domain_inside.h"
#include "host/net/net_spec.h"

/* What --net is told of one NIC. */
#define SPEC_MAX 4096u

struct spec {
    char text[SPEC_MAX];
    size_t len; /* SPEC_MAX: it was too long */
};

static void put(struct spec *s, const char *text)
{
    const size_t len = strlen(text);

    if (len >= sizeof s->text - s->len) {
        s->len = sizeof s->text;
        return;
    }
    memcpy(s->text + s->len, text, len + 1);
    s->len += len;
}

/* ---- forwarded ports: <portForward proto address><range start end to/></portForward> ---- */

static bool is_address(const char *text)
{
    return text[strspn(text, "0123456789.")] == '\0';
}

static unsigned long port_of(const xml_node *range, const char *name, unsigned long unsaid)
{
    const char *text = xml_attribute(range, name);

    return text ? strtoul(text, NULL, 10) : unsaid;
}

static bool put_range(struct spec *s, const char *proto, const char *address, const xml_node *range)
{
    const unsigned long start = port_of(range, "start", 0), end = port_of(range, "end", start);
    const unsigned long to = port_of(range, "to", start);
    char text[128];

    if (xml_attribute_is(range, "exclude", "yes") || !start || end < start ||
        end - start >= NET_FORWARDS_MAX || end > UINT16_MAX || to + (end - start) > UINT16_MAX)
        return false;
    for (unsigned long i = 0; i <= end - start; i++) {
        snprintf(text, sizeof text, ",hostfwd=%s:%s:%lu-:%lu", proto, address, start + i, to + i);
        put(s, text);
    }
    return true;
}

static void put_forwards(struct domain *d, unsigned index, const xml_node *nic, struct spec *s)
{
    for (const xml_node *f = xml_child(nic, "portForward"); f; f = xml_next(f, "portForward")) {
        const char *proto = xml_attribute(f, "proto"), *address = xml_attribute(f, "address");
        bool all = proto && (!strcmp(proto, "tcp") || !strcmp(proto, "udp")) &&
                   !xml_attribute(f, "dev") && (!address || is_address(address));
        const xml_node *range = xml_child(f, "range");
        all = all && range;
        for (; all && range; range = xml_next(range, "range"))
            all = put_range(s, proto, address ? address : "0.0.0.0", range);
        if (!all)
            domain_note(d->left, "NIC %u: a portForward", index);
    }
}

/* ---- what it is connected to ---- */

/* A peer that frames as --net stream does: QEMU's socket network. */
static bool put_stream(struct spec *s, const xml_node *source, bool server)
{
    const char *address = xml_attribute(source, "address"), *port = xml_attribute(source, "port");

    if (!port || (address && !is_address(address)) || strspn(port, "0123456789") != strlen(port))
        return false;
    put(s, "stream:tcp:");
    put(s, address ? address : server ? "0.0.0.0" : "127.0.0.1");
    put(s, ":");
    put(s, port);
    put(s, server ? ",server" : "");
    return true;
}

/* A device of this host's that is there, and that root may use: "tap" or "bridge", and `mark` is
 * what only such a one has. */
static bool put_device(struct spec *s, const char *kind, const char *device, const char *mark)
{
    char path[64];

    if (!device || !*device || strpbrk(device, "/,:%") || geteuid() != 0 ||
        snprintf(path, sizeof path, "/sys/class/net/%s/%s", device, mark) >= (int)sizeof path ||
        access(path, F_OK) != 0)
        return false;
    put(s, kind);
    put(s, device);
    return true;
}

/* What root does as libvirt would. */
static bool put_same(struct spec *s, const char *type, const xml_node *nic,
                     const struct domain_around *around)
{
    const char *network = xml_attribute(xml_child(nic, "source"), "network");
    char bridge[16];

    if (!strcmp(type, "ethernet"))
        return put_device(s, "tap:", xml_attribute(xml_child(nic, "target"), "dev"), "tun_flags");
    if (!strcmp(type, "bridge"))
        return put_device(s, "bridge:", xml_attribute(xml_child(nic, "source"), "bridge"),
                          "bridge");
    return !strcmp(type, "network") && network && around &&
           around->find_bridge(around->opaque, network, bridge, sizeof bridge) &&
           put_device(s, "bridge:", bridge, "bridge");
}

/* What NAT is the nearest for: connections that lead out of this host. */
static bool leads_out(const char *type)
{
    static const char *const types[] = {"user", "network", "bridge", "direct", "ethernet"};

    for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i], type))
            return true;
    return false;
}

static const char *source_of(const xml_node *nic)
{
    static const char *const names[] = {"network", "bridge", "dev", "name", "path"};
    const xml_node *source = xml_child(nic, "source");

    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (xml_attribute(source, names[i]))
            return xml_attribute(source, names[i]);
    return "";
}

static void connect_nic(struct domain *d, unsigned index, const xml_node *nic,
                        const struct domain_around *around, struct spec *s)
{
    const char *said = xml_attribute(nic, "type"), *const type = said ? said : "user";
    const char *const source = source_of(nic);
    const bool user = !strcmp(type, "user");

    if (xml_attribute_is(xml_child(nic, "link"), "state", "down") || !strcmp(type, "null"))
        put(s, "none");
    else if (user && xml_attribute_is(xml_child(nic, "backend"), "type", "passt") &&
             !xml_child(nic, "portForward"))
        put(s, "passt");
    else if (put_same(s, type, nic, around))
        ;
    else if ((!strcmp(type, "client") || !strcmp(type, "server")) &&
             put_stream(s, xml_child(nic, "source"), *type == 's'))
        ;
    else {
        put(s, leads_out(type) ? "user" : "none");
        if (!strcmp(type, "network") && around && around->is_isolated(around->opaque, source))
            put(s, ",restrict=on");
        if (!user || xml_child(nic, "backend"))
            domain_note(d->nearest, "NIC %u of %s%s%s: --net %s", index, type, *source ? " " : "",
                        source, s->text);
        if (leads_out(type))
            put_forwards(d, index, nic, s);
    }
}

/* ---- all of them ---- */

static void note_rest(struct domain *d, unsigned index, const xml_node *nic)
{
    static const char *const known[] = {"mac",     "source",  "model",       "alias",
                                        "address", "target",  "boot",        "link",
                                        "driver",  "backend", "portForward", NULL};
    const char *model = xml_attribute(xml_child(nic, "model"), "type"), *other;
    const xml_node *at = NULL;

    if (!model || strncmp(model, "virtio", 6) != 0)
        domain_note(d->nearest, "NIC %u, %s: virtio", index, model ? model : "of some model");
    while ((other = domain_other_child(nic, known, &at)))
        domain_note(d->left, "NIC %u: its %s", index, other);
}

static int read_nic(struct domain *d, unsigned index, const xml_node *nic,
                    const struct domain_around *around, struct err *e)
{
    const char *mac = xml_attribute(xml_child(nic, "mac"), "address");
    uint8_t bytes[MAC_BYTES];
    struct spec s = {.len = 0};

    connect_nic(d, index, nic, around, &s);
    if (mac && !mac_parse(mac, bytes))
        return err_set(e, STATUS_ERROR, "domain %s: NIC %u has no address but '%s'", d->name, index,
                       mac);
    if (mac) {
        put(&s, ",mac=");
        put(&s, mac);
    }
    if (s.len == SPEC_MAX)
        return err_set(e, STATUS_ERROR, "domain %s: NIC %u forwards too many ports", d->name,
                       index);
    domain_option(d, "--net", s.text);
    note_rest(d, index, nic);
    return 0;
}

int domain_read_nics(struct domain *d, const xml_node *devices, const struct domain_around *around,
                     struct err *e)
{
    unsigned count = 0;

    for (const xml_node *nic = xml_child(devices, "interface"); nic;
         nic = xml_next(nic, "interface")) {
        if (count == MAX_NICS)
            domain_note(d->left, "NICs behind the first %u", MAX_NICS);
        else if (read_nic(d, count++, nic, around, e) < 0)
            return -1;
    }
    return 0;
}
