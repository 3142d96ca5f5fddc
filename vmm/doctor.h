#ifndef VMM_DOCTOR_H
#define VMM_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "vmm/command.h"

/*
 * What this KVM can really do, found by running micro-guests (vmm/doctor_guest.h) and never by
 * reading flags alone: some backends promise what they do not keep. Every probe runs in a child
 * process under a time limit, so that one which hangs or crashes takes nothing else down.
 */
enum probe_result {
    PROBE_OK,
    PROBE_MISSING, /* this host does not offer it */
    PROBE_BROKEN,  /* it is offered and does something else */
    PROBE_RESULTS,
};

struct probe_outcome {
    enum probe_result result;
    char detail[232]; /* what was seen: one line, lower case */
};

/* Fill *o with a detail like printf's. */
void probe_says(struct probe_outcome *o, enum probe_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct probe {
    const char *name;
    void (*run)(struct probe_outcome *o); /* may end the process or never return */
    bool required;                        /* without it dittovm cannot work on this KVM */
    const char *instead;                  /* what dittovm does where the result is not "ok" */
};

/* The tables end with an empty entry. */
extern const struct probe doctor_guest_probes[], doctor_debug_probes[], doctor_leak_probes[],
    doctor_host_probes[], doctor_memory_probes[];

struct probe_finding {
    const struct probe *probe;
    struct probe_outcome outcome;
};

/*
 * Run one probe in a child process. After limit_ms it is stopped and the outcome says so; a child
 * that does not even die of SIGKILL is left behind after two more seconds.
 */
void doctor_run_isolated(void (*run)(struct probe_outcome *), unsigned limit_ms,
                         struct probe_outcome *o);

/* A guest's SYSCALL, SYSRET and SSE work: the shortest proof that real guests run here. */
void probe_real_guest(struct probe_outcome *o);
/* A SETcc keeps its flags where its store faults by nested paging. */
void probe_setcc(struct probe_outcome *o);
/* FNSTENV shows where the last x87 instruction was, also when there was an exit behind it. */
void probe_x87_pointers(struct probe_outcome *o);
/* Instructions that the guest's CPUID hides fault. */
void probe_rdtscp(struct probe_outcome *o);
void probe_rdrand(struct probe_outcome *o);
void probe_rdseed(struct probe_outcome *o);
void probe_rdpid(struct probe_outcome *o);
/* Probes of the CPU's debug registers. */
void probe_register_cpl0(struct probe_outcome *o);
void probe_register_cpl3(struct probe_outcome *o);

/*
 * Fail with one clear line unless this machine's /dev/kvm can run real guests: a guest program goes
 * from CPL3 to CPL0 by SYSCALL, uses SSE, POPCNT and CMPXCHG16B there, and returns. Takes some
 * milliseconds; at most a second where KVM hangs.
 */
int doctor_quick_check(struct err *e);

/*
 * What this CPU does wrongly that ordinary programs meet, so that a recording made here may not
 * replay: one line, as recorder_doubt() takes it; NULL: nothing. Takes some milliseconds.
 */
const char *doctor_cpu_doubt(void);

/*
 * What this CPU executes although the guest's CPUID hides it (vmm/cpuid.h): what a program gets of
 * it that does not ask CPUID first is not recorded. Names with commas between, "" for none; static.
 * Takes some milliseconds.
 */
const char *doctor_hidden_instructions(void);

/* The machine and what dittovm makes of it. */
struct doctor_host {
    char kernel[160], cpu[128];
    char modules[8][32]; /* loaded modules named kvm* */
    unsigned module_count;
    bool inside;             /* we run in the emulated KVM host */
    bool virtualizes;        /* /proc/cpuinfo shows vmx or svm */
    bool device;             /* there is a /dev/kvm */
    bool emulated;           /* the emulated KVM host can be used */
    char emulated_why[256];  /* why not */
    enum host_choice chosen; /* --host of the command line */
};

/* Fill in *h for this machine. */
void doctor_look_at_host(const struct invocation *inv, struct doctor_host *h);

struct doctor_report {
    struct doctor_host host;
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
