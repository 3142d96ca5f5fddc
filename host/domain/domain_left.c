/* What of a domain is not carried over. What is not known here is named, too. */
#include <string.h>

#include "host/domain/domain_inside.h"

static const char *first_attribute(const xml_node *node, const char *const *names)
{
    for (; *names; names++)
        if (xml_attribute(node, *names))
            return xml_attribute(node, *names);
    return NULL;
}

/* ---- devices ---- */

static void note_device(struct domain *d, const xml_node *device)
{
    static const char *const kinds[] = {"type", "model", "name", NULL};
    static const char *const inner[] = {"model", "backend", "target", NULL};
    const char *kind = first_attribute(device, kinds);

    if (xml_is(device, "channel"))
        kind = xml_attribute(xml_child(device, "target"), "name");
    if (xml_is(device, "filesystem"))
        kind = xml_attribute(xml_child(device, "target"), "dir");
    for (unsigned i = 0; !kind && inner[i]; i++)
        kind = first_attribute(xml_child(device, inner[i]), kinds);
    domain_note(d->left, kind ? "%s (%s)" : "%s", xml_name(device), kind);
}

/* The first serial port is ours, to this terminal; and the console that stands for it. */
static void note_serial(struct domain *d, const xml_node *devices)
{
    const xml_node *first = xml_child(devices, "serial");
    const char *type = xml_attribute(first, "type");

    if (type && strcmp(type, "pty") != 0 && strcmp(type, "stdio") != 0)
        domain_note(d->nearest, "serial console to %s: this terminal", type);
    for (const xml_node *s = xml_next(first, "serial"); s; s = xml_next(s, "serial"))
        domain_note(d->left, "further serial ports");
    for (const xml_node *c = xml_child(devices, "console"); c; c = xml_next(c, "console")) {
        const char *target = xml_attribute(xml_child(c, "target"), "type");
        if (target && strcmp(target, "serial") != 0)
            domain_note(d->left, "console (%s)", target);
    }
}

/* What a device is that the machine has, too, or that is said not to be there. */
static bool is_known(const xml_node *device)
{
    const char *model = xml_attribute(device, "model");

    return (model &&
            (!strcmp(model, "none") || (xml_is(device, "rng") && !strncmp(model, "virtio", 6)))) ||
           xml_attribute_is(device, "type", "none") ||
           xml_attribute_is(xml_child(device, "model"), "type", "none");
}

static void read_devices(struct domain *d, const xml_node *devices)
{
    /* Controllers and the emulator are means; serial ports are above. */
    static const char *const known[] = {"disk",     "interface",  "serial", "console",
                                        "emulator", "controller", NULL};
    const xml_node *at = NULL;

    note_serial(d, devices);
    while (domain_other_child(devices, known, &at))
        if (!is_known(at))
            note_device(d, at);
}

/* ---- firmware, CPU, clock ---- */

static void read_firmware(struct domain *d, const xml_node *os)
{
    static const char *const known[] = {"type",   "kernel", "initrd",   "cmdline", "boot",
                                        "loader", "nvram",  "firmware", NULL};
    const xml_node *loader = xml_child(os, "loader"), *at = NULL;
    const char *machine = xml_attribute(xml_child(os, "type"), "machine"), *other;
    const char *first = xml_attribute(xml_child(os, "boot"), "dev");

    if (xml_attribute_is(xml_child(os, "type"), "arch", "i686"))
        domain_note(d->left, "a CPU without 64 bits");
    if (machine)
        domain_note(d->left, "machine %s", machine);
    if (xml_attribute_is(os, "firmware", "efi") || xml_child(os, "nvram") ||
        xml_attribute_is(loader, "type", "pflash"))
        domain_note(d->left, "UEFI firmware");
    else if (loader)
        domain_note(d->left, "firmware %s", xml_text(loader));
    if (first && !strcmp(first, "network"))
        domain_note(d->left, "booting from the network");
    while ((other = domain_other_child(os, known, &at)))
        domain_note(d->left, "os %s", other);
}

static void read_cpu(struct domain *d, const xml_node *cpu)
{
    const char *mode = xml_attribute(cpu, "mode"), *model = xml_child_text(cpu, "model");

    if (*model)
        domain_note(d->left, "CPU %s", model);
    else if (mode)
        domain_note(d->left, "CPU %s", mode);
    if (xml_child(cpu, "feature"))
        domain_note(d->left, "CPU features");
    if (xml_child(cpu, "topology"))
        domain_note(d->left, "CPU topology");
    if (xml_child(cpu, "numa"))
        domain_note(d->left, "NUMA cells");
}

static void read_clock(struct domain *d, const xml_node *clock)
{
    const char *offset = xml_attribute(clock, "offset");

    if (offset && strcmp(offset, "utc") != 0)
        domain_note(d->left, "clock %s", offset);
    for (const xml_node *t = xml_child(clock, "timer"); t; t = xml_next(t, "timer")) {
        const char *name = xml_attribute(t, "name");
        if (name && strcmp(name, "rtc") != 0 && strcmp(name, "pit") != 0 &&
            !xml_attribute_is(t, "present", "no"))
            domain_note(d->left, "timer %s", name);
    }
}

/* ---- the rest ---- */

void domain_read_left(struct domain *d, const xml_node *domain)
{
    /* What no guest sees, and what is read elsewhere. */
    static const char *const known[] = {
        "name",           "uuid", "title",   "description", "metadata",    "memory",
        "currentMemory",  "vcpu", "vcpus",   "iothreads",   "iothreadids", "os",
        "features",       "cpu",  "clock",   "on_poweroff", "on_reboot",   "on_crash",
        "on_lockfailure", "pm",   "devices", "seclabel",    "resource",    NULL};
    static const char *const features[] = {"acpi", "apic", "pae", NULL};
    const xml_node *at = NULL;
    const char *other;

    read_firmware(d, xml_child(domain, "os"));
    read_cpu(d, xml_child(domain, "cpu"));
    while ((other = domain_other_child(xml_child(domain, "features"), features, &at)))
        if (!xml_attribute_is(at, "state", "off"))
            domain_note(d->left, "feature %s", other);
    read_clock(d, xml_child(domain, "clock"));
    read_devices(d, xml_child(domain, "devices"));
    for (at = NULL; (other = domain_other_child(domain, known, &at));)
        domain_note(d->left, "%s%s%s", xml_prefix(at), *xml_prefix(at) ? ":" : "", other);
}
