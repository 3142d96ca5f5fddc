#include "cli/doctor_report.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

const char *probe_result_name(enum probe_result result)
{
    static const char *const names[PROBE_RESULTS] = {"ok", "missing", "broken"};

    return (unsigned)result < PROBE_RESULTS ? names[result] : "broken";
}

static const struct probe_finding *first_failed(const struct doctor_report *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->findings[i].probe->required && r->findings[i].outcome.result != PROBE_OK)
            return &r->findings[i];
    return NULL;
}

/* What `--host auto` takes on this machine; the rule is host_redirect()'s. */
static enum host_choice automatic(const struct host_facts *h)
{
    return h->inside || (h->virtualizes && h->device) ? HOST_NATIVE : HOST_EMULATED;
}

static const char *verdict_on_working_kvm(const struct host_facts *h)
{
    if (h->inside)
        return "the emulated KVM host can record and replay";
    if (h->chosen == HOST_AUTO && automatic(h) == HOST_EMULATED)
        return h->emulated
                   ? "this host can record and replay with --host native; without it dittovm uses "
                     "the emulated KVM host, because the CPU shows no vmx or svm"
                   : "this host can record and replay, but only with --host native, because the "
                     "CPU "
                     "shows no vmx or svm";
    return "this host can record and replay";
}

static void verdict_on_broken_kvm(struct doctor_report *r, const struct probe_finding *failed)
{
    const struct host_facts *h = &r->host;
    char what[384];

    if (h->inside)
        snprintf(what, sizeof what, "the emulated KVM host cannot run real guests (%s: %s)",
                 failed->probe->name, failed->outcome.detail);
    else if (!h->device)
        snprintf(what, sizeof what, "this host has no /dev/kvm");
    else
        snprintf(what, sizeof what, "this /dev/kvm cannot run real guests (%s: %s)",
                 failed->probe->name, failed->outcome.detail);
    if (h->inside)
        snprintf(r->verdict, sizeof r->verdict, "%s", what);
    else if (h->chosen == HOST_NATIVE)
        snprintf(r->verdict, sizeof r->verdict, "%s, and --host native allows no other", what);
    else if (!h->emulated)
        snprintf(r->verdict, sizeof r->verdict, "%s; %s", what, h->emulated_why);
    else if (automatic(h) == HOST_EMULATED)
        snprintf(r->verdict, sizeof r->verdict, "%s: dittovm uses the emulated KVM host", what);
    else
        snprintf(r->verdict, sizeof r->verdict, "%s: give --host emulated", what);
}

void doctor_judge(struct doctor_report *r)
{
    const struct probe_finding *failed = first_failed(r);

    r->native = !failed;
    r->works = r->native || (r->host.chosen != HOST_NATIVE && r->host.emulated);
    if (failed)
        verdict_on_broken_kvm(r, failed);
    else
        snprintf(r->verdict, sizeof r->verdict, "%s", verdict_on_working_kvm(&r->host));
}

void doctor_show_table(const struct doctor_report *r)
{
    const struct host_facts *h = &r->host;
    int widest = 0;

    printf("machine        %s, %s, kvm modules:", h->kernel, h->cpu);
    for (unsigned i = 0; i < h->module_count; i++)
        printf(" %s", h->modules[i]);
    printf("%s\n", h->module_count ? "" : " none");
    if (h->inside)
        printf("emulated host  this is one\n\n");
    else
        printf("emulated host  %s\n\n", h->emulated ? "available" : h->emulated_why);
    for (size_t i = 0; i < r->count; i++) {
        int len = (int)strlen(r->findings[i].probe->name);
        widest = len > widest ? len : widest;
    }
    for (size_t i = 0; i < r->count; i++) {
        const struct probe_finding *f = &r->findings[i];
        printf("%-*s  %-7s  %s", widest, f->probe->name, probe_result_name(f->outcome.result),
               f->outcome.detail);
        if (f->outcome.result != PROBE_OK)
            printf(" -> %s", f->probe->instead);
        putchar('\n');
    }
    printf("\n%s\n", r->verdict);
}

/* Text that comes from the machine may be no UTF-8, which JSON needs. */
static json_t *text(const char *s)
{
    json_t *j = json_string(s);

    return j ? j : json_string("?");
}

static json_t *host_as_json(const struct host_facts *h)
{
    json_t *modules = json_array();

    for (unsigned i = 0; i < h->module_count; i++)
        json_array_append_new(modules, text(h->modules[i]));
    return json_pack("{s:o, s:o, s:o, s:b, s:b, s:s}", "kernel", text(h->kernel), "cpu",
                     text(h->cpu), "kvm_modules", modules, "vmx_or_svm", h->virtualizes,
                     "inside_emulated_host", h->inside, "auto",
                     automatic(h) == HOST_NATIVE ? "native" : "emulated");
}

void doctor_show_json(const struct doctor_report *r)
{
    json_t *probes = json_array();

    for (size_t i = 0; i < r->count; i++) {
        const struct probe_finding *f = &r->findings[i];
        json_t *probe = json_pack("{s:s, s:s, s:o, s:b}", "name", f->probe->name, "result",
                                  probe_result_name(f->outcome.result), "detail",
                                  text(f->outcome.detail), "required", f->probe->required);
        if (f->outcome.result != PROBE_OK)
            json_object_set_new(probe, "instead", json_string(f->probe->instead));
        json_array_append_new(probes, probe);
    }
    json_t *emulated = json_pack("{s:b}", "available", r->host.emulated);
    if (!r->host.emulated)
        json_object_set_new(emulated, "why", text(r->host.emulated_why));
    json_t *j = json_pack("{s:o, s:o, s:o, s:b, s:b, s:o}", "machine", host_as_json(&r->host),
                          "emulated_host", emulated, "probes", probes, "native", r->native, "works",
                          r->works, "verdict", text(r->verdict));
    json_dumpf(j, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(j);
}
