#ifndef CLI_DOCTOR_REPORT_H
#define CLI_DOCTOR_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "host/doctor/doctor.h"
#include "host/host_look.h"

/* What `dittovm doctor` says. */
struct probe_finding {
    const struct probe *probe;
    struct probe_outcome outcome;
};

struct doctor_report {
    struct host_facts host;
    struct probe_finding *findings;
    size_t count;
    char verdict[768]; /* one line */
    bool native;       /* this /dev/kvm will do */
    bool works;        /* dittovm works here, natively or emulated */
};

/* Fill in verdict, native and works from the host and the findings. */
void doctor_judge(struct doctor_report *r);

/* "ok", "missing", "broken" */
const char *probe_result_name(enum probe_result result);

/* Print the report on stdout, as a table or as one JSON object. */
void doctor_show_table(const struct doctor_report *r);
void doctor_show_json(const struct doctor_report *r);

#endif
