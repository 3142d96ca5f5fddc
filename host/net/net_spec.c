#include "host/net/net_spec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    bool wants_address;
} kinds[NET_KINDS] = {
    [NET_NONE] = {"none", false},    [NET_USER] = {"user", false}, [NET_PASST] = {"passt", false},
    [NET_STREAM] = {"stream", true}, [NET_TAP] = {"tap", true},    [NET_BRIDGE] = {"bridge", true},
};

const char *net_spec_kind(const struct net_spec *spec)
{
    return kinds[spec->kind].name;
}

/* A piece of a text: up to a separator, or its end. */
struct piece {
    const char *at;
    size_t len;
};

/* The piece of *text up to `separator`, behind which *text goes on; NULL behind the last one. */
static struct piece next_piece(const char **text, char separator)
{
    const char *end = strchr(*text, separator);
    const struct piece p = {*text, end ? (size_t)(end - *text) : strlen(*text)};

    *text = end ? end + 1 : NULL;
    return p;
}

static bool piece_is(const struct piece *p, const char *text)
{
    return p->len == strlen(text) && !memcmp(p->at, text, p->len);
}

static bool parse_port(const char *text, size_t len, uint16_t *port)
{
    unsigned long value = 0;

    if (!len || len > 5)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (unsigned long)(text[i] - '0');
    }
    *port = (uint16_t)value;
    return value >= 1 && value <= UINT16_MAX;
}

/* [ADDR]:PORT, up to `end`. */
static bool parse_endpoint(const char *text, const char *end, in_addr_t unsaid,
                           struct in_addr *addr, uint16_t *port)
{
    const char *colon = memchr(text, ':', (size_t)(end - text));
    char number[INET_ADDRSTRLEN];

    addr->s_addr = htonl(unsaid);
    if (!colon || !parse_port(colon + 1, (size_t)(end - colon - 1), port))
        return false;
    if (colon == text)
        return true;
    return snprintf(number, sizeof number, "%.*s", (int)(colon - text), text) <
               (int)sizeof number &&
           inet_pton(AF_INET, number, addr) == 1;
}

/* tcp|udp:[ADDR]:PORT-[ADDR]:PORT */
static bool parse_forward(const struct piece *p, struct net_forward *f)
{
    const char *end = p->at + p->len, *from = p->at + 4;
    const char *dash = p->len > 4 ? memchr(from, '-', p->len - 4) : NULL;

    *f = (struct net_forward){.udp = p->len > 4 && !memcmp(p->at, "udp:", 4)};
    if (!dash || (!f->udp && memcmp(p->at, "tcp:", 4) != 0))
        return false;
    return parse_endpoint(from, dash, INADDR_LOOPBACK, &f->host, &f->host_port) &&
           parse_endpoint(dash + 1, end, INADDR_ANY, &f->guest, &f->guest_port);
}

static bool parse_mac(const struct piece *p, uint8_t mac[MAC_BYTES])
{
    char text[18];

    return snprintf(text, sizeof text, "%.*s", (int)p->len, p->at) < (int)sizeof text &&
           mac_parse(text, mac) && !(mac[0] & 1); /* a group's */
}

/* The value of NAME=VALUE, if the piece is such. */
static bool has_value(const struct piece *p, const char *name, struct piece *value)
{
    const size_t len = strlen(name);

    if (p->len <= len || memcmp(p->at, name, len) != 0 || p->at[len] != '=')
        return false;
    *value = (struct piece){p->at + len + 1, p->len - len - 1};
    return true;
}

static int parse_setting(struct net_spec *spec, const struct piece *p, struct err *e)
{
    const bool user = spec->kind == NET_USER;
    struct piece value;

    if (has_value(p, "mac", &value)) {
        spec->has_mac = true;
        if (parse_mac(&value, spec->mac))
            return 0;
        return err_set(e, STATUS_USAGE, "--net: mac takes one like 52:54:00:12:34:56, not '%.*s'",
                       (int)value.len, value.at);
    }
    if (user && has_value(p, "hostfwd", &value)) {
        if (spec->forward_count == NET_FORWARDS_MAX)
            return err_set(e, STATUS_USAGE, "--net: at most %u hostfwd", NET_FORWARDS_MAX);
        if (parse_forward(&value, &spec->forwards[spec->forward_count++]))
            return 0;
        return err_set(e, STATUS_USAGE,
                       "--net: hostfwd takes tcp:[ADDR]:PORT-[ADDR]:PORT or udp:..., not '%.*s'",
                       (int)value.len, value.at);
    }
    if (user && has_value(p, "restrict", &value) &&
        (piece_is(&value, "on") || piece_is(&value, "off"))) {
        spec->restricted = piece_is(&value, "on");
        return 0;
    }
    if (spec->kind == NET_STREAM && piece_is(p, "server")) {
        spec->server = true;
        return 0;
    }
    return err_set(e, STATUS_USAGE, "--net %s does not take '%.*s'", net_spec_kind(spec),
                   (int)p->len, p->at);
}

/* NET_KINDS: it is none. */
static enum net_kind find_kind(const struct piece *name)
{
    enum net_kind kind = NET_NONE;

    while (kind < NET_KINDS && !piece_is(name, kinds[kind].name))
        kind++;
    return kind;
}

int net_spec_parse(struct net_spec *spec, const char *text, struct err *e)
{
    const char *rest = text;
    const struct piece whole = next_piece(&rest, ',');
    const char *colon = memchr(whole.at, ':', whole.len);
    const struct piece name = {whole.at, colon ? (size_t)(colon - whole.at) : whole.len};

    *spec = (struct net_spec){.kind = find_kind(&name)};
    if (spec->kind == NET_KINDS)
        return err_set(e, STATUS_USAGE,
                       "--net takes user, passt, stream:unix:PATH, stream:tcp:HOST:PORT, "
                       "tap:NAME, bridge:NAME or none, not '%s'",
                       text);
    if (kinds[spec->kind].wants_address != (colon != NULL))
        return err_set(e, STATUS_USAGE, "--net %s %s", net_spec_kind(spec),
                       colon ? "takes no address" : "wants an address, as --help says");
    if (colon && snprintf(spec->address, sizeof spec->address, "%.*s",
                          (int)(whole.len - name.len - 1), colon + 1) >= (int)sizeof spec->address)
        return err_set(e, STATUS_USAGE, "--net: the address is too long");
    while (rest) {
        const struct piece p = next_piece(&rest, ',');
        if (parse_setting(spec, &p, e) < 0)
            return -1;
    }
    return 0;
}
