#include <jansson.h>
#include <sys/resource.h>

#include "base/text.h"
#include "cli/replaying.h"
#include "replay/divergence.h"
#include "vmm/machine/machine.h"

int replay_report(struct player *p, const struct replay_options *o, FILE *out)
{
    const double seconds = (double)p->landings.ns / 1e9;
    const struct landing_stats landings = player_landing_stats(p);
    struct rusage usage;
    char digest[DIGEST_TEXT];
    static const char *const results[] = {
        [PLAYER_ENDED] = "identical",
        [PLAYER_CUT] = "identical up to where the recorder was killed",
        [PLAYER_DIVERGED] = "diverged",
        [PLAYER_STOPPED] = "stopped",
    };

    const char *result = p->status == PLAYER_CUT && recording_in_progress(p->recording)
                             ? "identical as far as it is recorded yet"
                             : results[p->status];

    getrusage(RUSAGE_SELF, &usage);
    digest_format(&p->end, digest);
    if (o->json) {
        json_t *j =
            json_pack("{s:s, s:b, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "result", result,
                      "complete", p->status == PLAYER_ENDED, "seconds", seconds, "from",
                      (json_int_t)(p->ordinal - p->stats.syncs), "syncs",
                      (json_int_t)p->stats.syncs, "events", (json_int_t)p->stats.events, "landings",
                      (json_int_t)landings.landings, "landing_exits", (json_int_t)landings.exits,
                      "max_rss_kib", (json_int_t)usage.ru_maxrss, "digest", digest);
        if (p->status == PLAYER_ENDED || p->status == PLAYER_CUT)
            json_object_set_new(j, "end_compared",
                                json_boolean(p->status == PLAYER_ENDED && !p->end_not_compared));
        if (p->status == PLAYER_STOPPED)
            json_object_set_new(j, "rip",
                                json_sprintf("%#llx", (unsigned long long)p->cpu->vcpu.regs->rip));
        if (o->landings)
            json_object_set_new(j, "landing_costs", landing_log_json(&p->landings));
        json_dumpf(j, out, JSON_SORT_KEYS);
        fputc('\n', out);
        json_decref(j);
    } else if (p->status != PLAYER_DIVERGED) {
        text_print(out, "dittovm: %s: %s, %llu sync points, %llu forced points, in %.1f s",
                   o->recording, result, (unsigned long long)p->stats.syncs,
                   (unsigned long long)landings.landings, seconds);
        if (p->status == PLAYER_ENDED)
            fprintf(out, "; the machine %s%s", end_reason_text(p->reason),
                    p->end_not_compared
                        ? "; what it did behind its last sync point was not compared"
                        : "");
        if (p->status == PLAYER_STOPPED)
            fprintf(out, "; rip is %#llx", (unsigned long long)p->cpu->vcpu.regs->rip);
        fputc('\n', out);
        if (o->landings)
            landing_log_print(&p->landings, out);
    }
    if (p->status == PLAYER_DIVERGED)
        divergence_report(p, stderr);
    return p->status == PLAYER_DIVERGED ? STATUS_DIVERGED : STATUS_OK;
}
