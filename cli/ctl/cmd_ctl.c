#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/control_request.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/ctl/ctl_client.h"
#include "host/control/control_socket.h"

/* How long the machine may take: to come to where it can do it, or to end. */
#define PATIENCE_S_DEFAULT 60u

struct ctl_options {
    const char *recording;
    struct control_request request;
    uint64_t patience_s;
    bool json;
};

static const struct option_entry options[] = {
    NUMBER_OPTION(OPTION_NUMBER, "wait", "S", struct ctl_options, patience_s, 1, 86400,
                  "1 to 86400 s", "how long to wait for the answer (default 60)"),
    FLAG_OPTION(0, "json", struct ctl_options, json, "the answer as JSON on stdout"),
    END_OF_OPTIONS,
};

static int take_text(struct ctl_options *o, const char *text, struct err *e)
{
    if (!*text || strlen(text) > MARK_MAX)
        return err_set(e, STATUS_USAGE, "ctl: a text or name has 1 to %u bytes, not %zu", MARK_MAX,
                       strlen(text));
    json_t *valid = json_string(text);
    if (!valid)
        return err_set(e, STATUS_USAGE, "ctl: a text or name is UTF-8");
    json_decref(valid);
    memcpy(o->request.text, text, strlen(text) + 1);
    return 0;
}

static int parse(struct ctl_options *o, int argc, char **argv, struct err *e)
{
    static const struct {
        const char *name;
        enum control_verb verb;
        int least, most; /* arguments behind it */
    } verbs[] = {
        {"mark", CONTROL_MARK, 1, 1},
        {"snapshot", CONTROL_SNAPSHOT, 0, 1},
        {"stop", CONTROL_STOP, 0, 0},
        {"stats", CONTROL_STATS, 0, 0},
    };

    *o = (struct ctl_options){.patience_s = PATIENCE_S_DEFAULT};
    const int first = options_parse(options, o, argc, argv, e);
    if (first < 0)
        return -1;
    const int more = argc - first - 2;
    o->recording = argv[first];
    for (unsigned i = 0; more >= 0 && i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(argv[first + 1], verbs[i].name) != 0)
            continue;
        if (more < verbs[i].least || more > verbs[i].most)
            break;
        o->request.verb = verbs[i].verb;
        return more ? take_text(o, argv[first + 2], e) : 0;
    }
    return err_set(e, STATUS_USAGE,
                   "ctl: give a recording, and snapshot [NAME], mark TEXT, stop or stats (see "
                   "dittovm ctl --help)");
}

/* ---- what is said of it ---- */

static long long number(const json_t *j, const char *key)
{
    return (long long)json_integer_value(json_object_get(j, key));
}

static void show(const struct ctl_options *o, const json_t *j)
{
    const char *name = json_string_value(json_object_get(j, "name"));

    switch (o->request.verb) {
    case CONTROL_MARK:
        text_print(stdout, "dittovm: mark at sync point %lld of %s: %s\n", number(j, "sync_point"),
                   o->recording, o->request.text);
        break;
    case CONTROL_SNAPSHOT:
        text_print(stdout, "dittovm: snapshot %s at sync point %lld of %s\n", name ? name : "?",
                   number(j, "sync_point"), o->recording);
        break;
    case CONTROL_STOP:
        text_print(stdout, "dittovm: %s is recorded\n", o->recording);
        break;
    case CONTROL_STATS:
        text_print(stdout,
                   "dittovm: %s: %lld sync points, %lld of them forced; %lld bytes after %.1f s, "
                   "%.3f s for the guest; %lld marks, %lld snapshots\n",
                   o->recording, number(j, "sync_points"), number(j, "forced"), number(j, "bytes"),
                   json_number_value(json_object_get(j, "seconds")),
                   json_number_value(json_object_get(j, "guest_seconds")), number(j, "marks"),
                   number(j, "snapshots"));
        break;
    }
}

static int report(const struct ctl_options *o, const json_t *j, struct err *e)
{
    const char *why = json_string_value(json_object_get(j, "error"));

    if (o->json) {
        json_dumpf(j, stdout, JSON_SORT_KEYS);
        putchar('\n');
    }
    if (!json_is_true(json_object_get(j, "ok")))
        return err_set(e, STATUS_ERROR, "%s: %.300s", o->recording,
                       why ? why : "it does not say why");
    if (!o->json)
        show(o, j);
    return 0;
}

static int run(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    struct ctl_options o;

    (void)inv;
    if (parse(&o, argc, argv, e) < 0)
        return -1;
    const int fd = control_socket_connect(o.recording, e);
    if (fd < 0)
        return -1;
    json_t *j = ctl_ask(fd, &o.request, e) < 0 ? NULL : ctl_answer(fd, o.patience_s, e);
    int rc = j ? 0 : -1;
    if (j && o.request.verb == CONTROL_STOP && json_is_true(json_object_get(j, "ok")))
        rc = ctl_wait_for_end(fd, o.patience_s, e);
    if (rc == 0)
        rc = report(&o, j, e);
    json_decref(j);
    close(fd);
    return rc;
}

const struct command command_ctl = {
    .name = "ctl",
    .summary = "tell a machine that is being recorded something: mark, snapshot, stop, stats",
    .usage = "ctl [OPTIONS] REC mark TEXT\n"
             "ctl [OPTIONS] REC snapshot [NAME]\n"
             "ctl [OPTIONS] REC stop|stats",
    .about = "Speaks with the machine that REC is being recorded of, by the socket REC.ctl. A mark "
             "names\n"
             "the place where the machine is: 'dittovm info' lists it, REC@mark:TEXT is a place "
             "for other\n"
             "commands, as is 'monitor seek mark:TEXT' in gdb. A snapshot is kept in the recording "
             "as by\n"
             "--checkpoint-every. stop ends the recording as SIGTERM does, and waits for it. stats "
             "says\n"
             "how far it is.",
    .options = options,
    .run = run,
};
