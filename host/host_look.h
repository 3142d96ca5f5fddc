#ifndef HOST_HOST_LOOK_H
#define HOST_HOST_LOOK_H

#include <stdbool.h>

#include "host/host.h"

/* The machine and what dittovm makes of it. */
struct host_facts {
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
void host_look(const struct invocation *inv, struct host_facts *h);

#endif
