/* What a domain's XML says of the machine itself: its kind, memory, CPUs and kernel.
 * https://libvirt.org/formatdomain.html has the elements. */
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "host/domain/domain_inside.h"

#define MEMORY_STEP_MIB 2ull
#define LINE_MAX_BYTES  4095u /* of a path, and more than a kernel takes */

/* ---- what it is ---- */

static int check_kind(struct domain *d, const xml_node *domain, struct err *e)
{
    const xml_node *os_type = xml_child(xml_child(domain, "os"), "type");
    const char *type = xml_attribute(domain, "type"), *arch = xml_attribute(os_type, "arch");

    if (!type || (strcmp(type, "kvm") != 0 && strcmp(type, "qemu") != 0))
        return err_set(e, STATUS_ERROR,
                       "domain %s is of type %s; dittovm runs those of kvm and qemu", d->name,
                       type ? type : "none");
    if (strcmp(xml_text(os_type), "hvm") != 0)
        return err_set(e, STATUS_ERROR, "domain %s is no whole machine (its os type is not hvm)",
                       d->name);
    if (arch && strcmp(arch, "x86_64") != 0 && strcmp(arch, "i686") != 0)
        return err_set(e, STATUS_ERROR, "domain %s is of another architecture: %s", d->name, arch);
    return 0;
}

static int read_name(struct domain *d, const xml_node *domain, const char *what, struct err *e)
{
    const char *name = xml_child_text(domain, "name");

    if (!*name || strlen(name) >= sizeof d->name || strchr(name, '/'))
        return err_set(e, STATUS_ERROR, "%s: a domain has a name, of at most %zu bytes without '/'",
                       what, sizeof d->name - 1);
    strcpy(d->name, name);
    snprintf(d->uuid, sizeof d->uuid, "%s", xml_child_text(domain, "uuid"));
    return 0;
}

/* ---- memory and CPUs ---- */

/* Bytes of one unit; 0: there is none of this name. */
static uint64_t unit_bytes(const char *unit)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {
        {"b", 1},          {"bytes", 1},        {"KB", 1000},
        {"k", 1ull << 10}, {"KiB", 1ull << 10}, {"MB", 1000000},
        {"M", 1ull << 20}, {"MiB", 1ull << 20}, {"GB", 1000000000},
        {"G", 1ull << 30}, {"GiB", 1ull << 30}, {"TB", 1000000000000},
        {"T", 1ull << 40}, {"TiB", 1ull << 40},
    };

    for (unsigned i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(units[i].name, unit))
            return units[i].bytes;
    return 0;
}

/* A decimal number, with blanks around it; false: it is none, or larger than `most`. */
static bool read_number(const char *text, uint64_t most, uint64_t *value)
{
    char *end;

    while (isspace((unsigned char)*text))
        text++;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || errno || *value > most)
        return false;
    while (isspace((unsigned char)*end))
        end++;
    return !*end;
}

static int read_memory(struct domain *d, const xml_node *domain, struct err *e)
{
    const xml_node *memory = xml_child(domain, "memory");
    const char *unit = xml_attribute(memory, "unit");
    const uint64_t bytes = unit_bytes(unit ? unit : "KiB");
    char text[32];
    uint64_t number;

    if (!bytes || !read_number(xml_text(memory), UINT64_MAX / bytes, &number))
        return err_set(e, STATUS_ERROR, "domain %s: its memory is no size: '%s' %s", d->name,
                       xml_text(memory), unit ? unit : "");
    const uint64_t mib = (number * bytes >> 20) / MEMORY_STEP_MIB * MEMORY_STEP_MIB;
    if (mib << 20 != number * bytes)
        domain_note(d->nearest, "memory of %llu bytes: %lluM", (unsigned long long)(number * bytes),
                    (unsigned long long)mib);
    snprintf(text, sizeof text, "%lluM", (unsigned long long)mib);
    domain_option(d, "--memory", text);
    return 0;
}

static int read_cpus(struct domain *d, const xml_node *domain, struct err *e)
{
    const xml_node *vcpu = xml_child(domain, "vcpu");
    const char *current = xml_attribute(vcpu, "current");
    char text[32];
    uint64_t cpus = 1;

    if (vcpu && !read_number(current ? current : xml_text(vcpu), UINT32_MAX, &cpus))
        return err_set(e, STATUS_ERROR, "domain %s: its number of CPUs is none", d->name);
    if (cpus > MAX_VCPUS)
        domain_note(d->nearest, "%llu CPUs: %u", (unsigned long long)cpus, MAX_VCPUS);
    snprintf(text, sizeof text, "%llu",
             (unsigned long long)(cpus < MAX_VCPUS ? cpus ? cpus : 1 : MAX_VCPUS));
    domain_option(d, "--cpus", text);
    return 0;
}

/* ---- the kernel, where it is not in the image ---- */

static int read_kernel(struct domain *d, const xml_node *domain, struct err *e)
{
    static const char *const options[][2] = {
        {"kernel", "--kernel"}, {"initrd", "--initrd"}, {"cmdline", "--append"}};
    const xml_node *os = xml_child(domain, "os");

    if (!*xml_child_text(os, "kernel"))
        return 0;
    for (unsigned i = 0; i < sizeof options / sizeof *options; i++) {
        const char *text = xml_child_text(os, options[i][0]);
        if (strpbrk(text, "\r\n") || strlen(text) > LINE_MAX_BYTES)
            return err_set(e, STATUS_ERROR, "domain %s: its %s is no line of at most %u bytes",
                           d->name, options[i][0], LINE_MAX_BYTES);
        if (*text)
            domain_option(d, options[i][1], text);
    }
    return 0;
}

/* ---- all of it ---- */

static int read_domain(struct domain *d, const xml_node *domain, const char *what,
                       const struct domain_around *around, struct err *e)
{
    const xml_node *devices = xml_child(domain, "devices");

    if (!xml_is(domain, "domain"))
        return err_set(e, STATUS_ERROR, "%s is no domain: it begins with <%s>", what,
                       xml_name(domain));
    if (read_name(d, domain, what, e) < 0 || check_kind(d, domain, e) < 0 ||
        read_memory(d, domain, e) < 0 || read_cpus(d, domain, e) < 0 ||
        read_kernel(d, domain, e) < 0 || domain_read_disks(d, devices, around, e) < 0 ||
        domain_read_nics(d, devices, around, e) < 0)
        return -1;
    domain_read_left(d, domain);
    return 0;
}

int domain_read(struct domain *d, const char *text, size_t len, const char *what,
                const struct domain_around *around, struct err *e)
{
    *d = (struct domain){0};
    struct _xmlDoc *doc = xml_parse(text, len, what, e);
    if (!doc)
        return -1;
    d->options = json_array();
    d->nearest = json_array();
    d->left = json_array();
    const int rc = read_domain(d, xml_root(doc), what, around, e);
    xml_free(doc);
    if (rc < 0)
        domain_free(d);
    return rc;
}
