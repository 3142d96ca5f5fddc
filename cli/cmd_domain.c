/* Domains of libvirt's: one as the machine that `run` runs, and a recording's machine as one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/run_options.h"
#include "host/domain/domain.h"
#include "host/emulated_options.h"
#include "recording/meta.h"
#include "recording/reader.h"

/* ---- a domain is run ---- */

/* Where one that was asked for outside of the emulated host is. */
#define HANDED_VARIABLE "DITTO_DOMAIN"

static const char *handed_domain(void)
{
    return getenv(EMULATED_INSIDE_VARIABLE) ? getenv(HANDED_VARIABLE) : NULL;
}

int run_options_hand_in(const struct run_options *o, struct err *e)
{
    json_t *j = o->domain_name ? domain_pack(&o->domain) : NULL;
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    int rc = 0;

    unsetenv(HANDED_VARIABLE);
    if (o->domain_name && (!text || setenv(HANDED_VARIABLE, text, 1) < 0))
        rc = err_set(e, STATUS_ERROR, "out of memory");
    free(text);
    json_decref(j);
    return rc;
}

/* What its options mean, as if a user had given them. */
static int parse_domain(const struct domain *d, struct run_options *as, struct err *e)
{
    const size_t count = json_array_size(d->options);
    const char **argv = calloc(count + 2, sizeof *argv);
    struct err why;
    int rc = 0;

    if (!argv)
        abort();
    *as = (struct run_options){0};
    argv[0] = "run";
    for (size_t i = 0; i < count; i++)
        argv[i + 1] = json_string_value(json_array_get(d->options, i));
    if (options_parse(run_entries, as, (int)count + 1, (char **)argv, &why) < 0)
        rc = err_set(e, STATUS_ERROR, "domain %s: %s", d->name, why.text);
    free(argv);
    return rc;
}

/* Those of the domain come first. */
static int take_disks(struct run_options *o, const struct run_options *domain, struct err *e)
{
    if (o->disk_count + domain->disk_count > MAX_DISKS)
        return err_set(e, STATUS_USAGE, "run: at most %u disks, the domain's %u among them",
                       MAX_DISKS, domain->disk_count);
    memmove(o->disks + domain->disk_count, o->disks, o->disk_count * sizeof *o->disks);
    memcpy(o->disks, domain->disks, domain->disk_count * sizeof *o->disks);
    o->disk_count += domain->disk_count;
    return 0;
}

/* A NIC that is connected otherwise is still the domain's: it has its address. */
static void take_nets(struct run_options *o, const struct run_options *domain)
{
    for (unsigned i = 0; i < domain->net_count; i++) {
        struct net_spec *const net = &o->nets[i];
        const bool has_mac = i < o->net_count && net->has_mac;
        if (i >= o->net_count)
            *net = domain->nets[i];
        else if (domain->nets[i].has_mac && !has_mac) {
            net->has_mac = true;
            memcpy(net->mac, domain->nets[i].mac, MAC_BYTES);
        }
    }
    if (o->net_count < domain->net_count)
        o->net_count = domain->net_count;
}

static int take_kernel(struct run_options *o, const struct run_options *domain, struct err *e)
{
    if (o->kernel)
        return 0; /* it has an initrd and a command line of its own */
    o->kernel = domain->kernel;
    if (!o->initrd)
        o->initrd = domain->initrd;
    if (domain->append && o->append &&
        asprintf(&o->joined, "%s %s", domain->append, o->append) < 0) {
        o->joined = NULL;
        return err_set(e, STATUS_ERROR, "out of memory");
    }
    o->append = o->joined ? o->joined : domain->append ? domain->append : o->append;
    return 0;
}

int run_options_take_domain(struct run_options *o, struct err *e)
{
    const char *handed = handed_domain();
    struct run_options domain;

    if ((handed ? domain_unpack(&o->domain, handed, e)
                : domain_find(&o->domain, o->domain_name, o->connect, e)) < 0 ||
        parse_domain(&o->domain, &domain, e) < 0)
        return -1;
    if (!o->memory)
        o->memory = domain.memory;
    if (!o->cpus)
        o->cpus = domain.cpus;
    take_nets(o, &domain);
    if (take_disks(o, &domain, e) < 0 || take_kernel(o, &domain, e) < 0)
        return -1;
    if (!o->disk_count && !o->kernel)
        return err_set(e, STATUS_ERROR, "domain %s has neither a disk nor a kernel to boot",
                       o->domain.name);
    return 0;
}

void run_options_show_domain(const struct run_options *o)
{
    if (o->domain_name && !o->quiet && !handed_domain())
        domain_print(&o->domain, stderr);
}

/* ---- a recording's machine is a domain ---- */

struct domain_options {
    const char *name, *type;
};

static const struct option_entry options[] = {
    TEXT_OPTION("name", "NAME", struct domain_options, name,
                "what the domain is called (default: the recording's name and -ditto)"),
    TEXT_OPTION("type", "TYPE", struct domain_options, type,
                "kvm or qemu (default: kvm where this host has it)"),
    END_OF_OPTIONS,
};

/* deb.ditto -> deb-ditto: not the name of the domain that was recorded, which is to stay. */
static void default_name(const char *path, char name[256])
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    const int stem = dot && dot != base ? (int)(dot - base) : (int)strlen(base);

    snprintf(name, 256, "%.*s-ditto", stem < 200 ? stem : text_fitting(base, 200), base);
}

/* What the recorded domain had, and this one does not. */
static void show_left(const json_t *meta)
{
    struct domain d;
    char *text = json_dumps(json_object_get(meta, "domain"), JSON_COMPACT);
    struct err none;

    if (text && domain_unpack(&d, text, &none) == 0) {
        domain_print_left(&d, stderr);
        domain_free(&d);
    }
    free(text);
}

static int run(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    struct domain_options o = {0};
    char name[256];

    (void)inv;
    const int first = options_parse(options, &o, argc, argv, e);
    if (first < 0)
        return -1;
    if (first != argc - 1)
        return err_set(e, STATUS_USAGE, "domain: give one recording (see dittovm domain --help)");
    if (o.type && strcmp(o.type, "kvm") != 0 && strcmp(o.type, "qemu") != 0)
        return err_set(e, STATUS_USAGE, "domain: --type takes kvm or qemu, not '%s'", o.type);
    if (o.name && (!*o.name || strchr(o.name, '/')))
        return err_set(e, STATUS_USAGE, "domain: a domain's name has no '/'");
    struct recording *r = recording_open(argv[first], e);
    json_t *meta = r ? meta_load(r, e) : NULL;
    int rc = -1;
    if (meta) {
        default_name(argv[first], name);
        rc = domain_write(meta, o.name ? o.name : name,
                          o.type           ? o.type
                          : host_has_kvm() ? "kvm"
                                           : "qemu",
                          stdout, e);
    }
    if (rc == 0)
        show_left(meta);
    json_decref(meta);
    recording_close(r);
    return rc;
}

const struct command command_domain = {
    .name = "domain",
    .summary = "write a recording's machine as a domain's XML for libvirt",
    .usage = "domain [OPTIONS] REC > x.xml",
    .about =
        "Writes the machine of a recording to standard output, as 'virsh define' takes it: its\n"
        "memory, CPUs, kernel, disks by their paths, NICs with their addresses, serial console.\n"
        "'dittovm run --domain' is the other way.",
    .options = options,
    .run = run,
};
