/* A recording's machine as a domain's XML: https://libvirt.org/formatdomain.html. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "devices/disk/disk_format.h"
#include "host/domain/domain.h"
#include "host/domain/xml.h"
#include "recording/meta.h"

static const char *text_in(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* An element with one or two attributes. */
static xml_node *add(xml_node *to, const char *name, const char *a, const char *a_value,
                     const char *b, const char *b_value)
{
    xml_node *node = xml_add(to, name, NULL);

    xml_set(node, a, a_value);
    if (b)
        xml_set(node, b, b_value);
    return node;
}

static xml_node *add_number(xml_node *to, const char *name, uint64_t number)
{
    char text[32];

    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    return xml_add(to, name, text);
}

/* ---- what it boots ---- */

/* The machine's own arguments are for the clocks and CPUs of ours; others need the console only. */
static void add_kernel(xml_node *os, const json_t *boot, const char *kernel)
{
    const char *initrd = text_in(boot, "initrd_file"), *append = text_in(boot, "append");
    char *line;

    xml_add(os, "kernel", kernel);
    if (initrd)
        xml_add(os, "initrd", initrd);
    if (asprintf(&line, "console=ttyS0%s%s", append ? " " : "", append ? append : "") < 0)
        abort();
    xml_add(os, "cmdline", line);
    free(line);
}

static void add_os(xml_node *domain, const json_t *meta)
{
    const json_t *boot = json_object_get(meta, "boot");
    const char *kernel = text_in(boot, "kernel_file");
    xml_node *os = xml_add(domain, "os", NULL);

    xml_set(xml_add(os, "type", "hvm"), "arch", "x86_64");
    if (kernel)
        add_kernel(os, boot, kernel);
    else
        xml_set(xml_add(os, "boot", NULL), "dev", "hd");
}

/* ---- devices ---- */

static bool is_block_device(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISBLK(st.st_mode);
}

static int add_disk(xml_node *devices, const json_t *disk, unsigned index, struct err *e)
{
    const char *path = text_in(disk, "path"), *said = text_in(disk, "format");
    const char *serial = text_in(disk, "serial");
    char name[] = "vda";

    if (!path)
        return 0;
    const char *format = said && disk_format_known(said) ? said : disk_image_format(path);
    const bool block = is_block_device(path);
    if (!strcmp(format, "vhdx"))
        return err_set(e, STATUS_ERROR,
                       "%s is of the format vhdx, which libvirt has not; qemu-img convert it",
                       path);
    name[2] = (char)('a' + index);
    xml_node *node = add(devices, "disk", "type", block ? "block" : "file", "device", "disk");
    add(node, "driver", "name", "qemu", "type", format);
    xml_set(xml_add(node, "source", NULL), block ? "dev" : "file", path);
    add(node, "target", "dev", name, "bus", "virtio");
    if (json_is_true(json_object_get(disk, "read_only")))
        xml_add(node, "readonly", NULL);
    if (!serial && !index)
        serial = "ditto"; /* that of an only disk is not in the description */
    if (serial && *serial)
        xml_add(node, "serial", serial);
    return 0;
}

/* Connected by what everybody may have. Of a user's network and ports a recording says nothing. */
static void add_nic(xml_node *devices, const json_t *nic, const uint8_t mac[MAC_BYTES])
{
    const char *net = text_in(nic, "net");
    xml_node *node = xml_add(devices, "interface", NULL);
    char text[18];

    snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
             mac[4], mac[5]);
    xml_set(node, "type", "user");
    xml_set(xml_add(node, "mac", NULL), "address", text);
    xml_set(xml_add(node, "model", NULL), "type", "virtio");
    if (net && !strcmp(net, "none"))
        xml_set(xml_add(node, "link", NULL), "state", "down");
}

static int add_devices(xml_node *domain, const json_t *meta, struct err *e)
{
    xml_node *devices = xml_add(domain, "devices", NULL);
    uint8_t macs[MAX_NICS][MAC_BYTES];
    const unsigned nics = meta_nics(meta, macs);

    for (unsigned i = 0; i < meta_disks(meta); i++)
        if (add_disk(devices, meta_disk(meta, i), i, e) < 0)
            return -1;
    for (unsigned i = 0; i < nics; i++)
        add_nic(devices, json_array_get(json_object_get(meta, "nics"), i), macs[i]);
    xml_node *serial = add(devices, "serial", "type", "pty", NULL, NULL);
    xml_set(xml_add(serial, "target", NULL), "port", "0");
    xml_node *console = add(devices, "console", "type", "pty", NULL, NULL);
    add(console, "target", "type", "serial", "port", "0");
    xml_node *rng = add(devices, "rng", "model", "virtio", NULL, NULL);
    xml_set(xml_add(rng, "backend", "/dev/urandom"), "model", "random");
    return 0;
}

/* ---- all of it ---- */

/* Whether XML can have all texts of a description, whatever they are. */
static bool can_be_written(const json_t *j)
{
    const char *key;
    json_t *value;
    size_t i;

    if (json_is_string(j))
        return strlen(json_string_value(j)) == json_string_length(j) &&
               xml_can_have(json_string_value(j));
    json_array_foreach(j, i, value) if (!can_be_written(value)) return false;
    json_object_foreach((json_t *)(uintptr_t)j, key,
                        value) if (!can_be_written(value)) return false;
    return true;
}

static bool is_name(const char *name)
{
    json_t *j = json_string(name); /* NULL: it is not UTF-8 */
    const bool ok = j && can_be_written(j);

    json_decref(j);
    return ok;
}

static void add_description(xml_node *domain, const json_t *meta)
{
    const json_t *recorded = json_object_get(meta, "domain");
    const char *name = text_in(recorded, "name"), *uuid = text_in(recorded, "uuid");
    char *text;

    if (asprintf(&text, "The machine of a recording by %s%s%s%s%s%s",
                 text_in(meta, "recorder") ? text_in(meta, "recorder") : "dittovm",
                 name ? ", of the domain " : "", name ? name : "", uuid && *uuid ? " (" : "",
                 uuid ? uuid : "", uuid && *uuid ? ")" : "") < 0)
        abort();
    xml_add(domain, "description", text);
    free(text);
}

int domain_write(const json_t *meta, const char *name, const char *type, FILE *out, struct err *e)
{
    if (!can_be_written(meta) || !is_name(name))
        return err_set(e, STATUS_ERROR,
                       "XML cannot have this machine: some name has control characters, or the "
                       "domain's is not UTF-8; give --name");
    if (meta_command(meta))
        return err_set(e, STATUS_ERROR,
                       "a machine that runs one command (run --root) is made of a directory, which "
                       "no domain is");
    struct _xmlDoc *doc = xml_new("domain", e);
    if (!doc)
        return -1;
    xml_node *domain = xml_top(doc);
    xml_set(domain, "type", type);
    xml_add(domain, "name", name);
    add_description(domain, meta);
    xml_set(add_number(domain, "memory", meta_memory(meta) >> 10), "unit", "KiB");
    add_number(domain, "vcpu", meta_cpus(meta) ? meta_cpus(meta) : 1);
    add_os(domain, meta);
    xml_node *features = xml_add(domain, "features", NULL);
    xml_add(features, "acpi", NULL);
    xml_add(features, "apic", NULL);
    xml_set(xml_add(domain, "clock", NULL), "offset", "utc");
    const int rc = add_devices(domain, meta, e) < 0 ? -1 : xml_write(doc, out, e);
    xml_free(doc);
    return rc;
}
