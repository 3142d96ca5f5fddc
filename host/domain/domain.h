#ifndef HOST_DOMAIN_DOMAIN_H
#define HOST_DOMAIN_DOMAIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

/*
 * A domain of libvirt's, as `dittovm run` would be told of it: options, which mean there what they
 * mean when a user gives them. Where we have not what the domain has, the nearest is taken and said
 * to be; what has nothing near it is listed. So nothing of a domain is passed over in silence but
 * what its guest cannot see.
 */
struct domain {
    char name[256], uuid[40]; /* uuid "": it has none yet */
    json_t *options;          /* "--memory", "1024M", ... */
    json_t *nearest;          /* "disk sda of sata: virtio", ... */
    json_t *left;             /* what is not carried over: "graphics (spice)", ... */
};

/*
 * The domain that `what` names: a file with its XML where that has a '/' or ends in ".xml", else
 * one that libvirt at `uri` (NULL: qemu:///system) has, by its name or UUID, shut off. 0, and *d is
 * for domain_free(); or -1 with *e.
 */
int domain_find(struct domain *d, const char *what, const char *uri, struct err *e);

/* What a domain's XML names but does not describe: who asked libvirt for the domain can ask for
 * that, too. */
struct domain_around {
    /* The path of a storage pool's volume. -1 with *e. */
    int (*find_volume)(void *opaque, const char *pool, const char *volume, char *path, size_t size,
                       struct err *e);
    /* Whether a network is known to lead nowhere but to its own machines and this host. */
    bool (*is_isolated)(void *opaque, const char *network);
    /* The bridge of this host's that a network has; false: none. */
    bool (*find_bridge)(void *opaque, const char *network, char *bridge, size_t size);
    void *opaque;
};

/* From its XML; `what` is what errors call that, `around` may be NULL. As domain_find(). */
int domain_read(struct domain *d, const char *text, size_t len, const char *what,
                const struct domain_around *around, struct err *e);
void domain_free(struct domain *d); /* fine with zeroes */

/* What was done with it, in lines for a user. */
void domain_print(const struct domain *d, FILE *out);
void domain_print_left(const struct domain *d, FILE *out); /* only what was not carried over */

/* The same as JSON: for a recording's description, and for the command in the emulated host, which
 * has no libvirt to ask. NULL: out of memory. */
json_t *domain_pack(const struct domain *d);
int domain_unpack(struct domain *d, const char *text, struct err *e);

/*
 * The machine of a recording as a domain's XML. Its description is recording/meta.h's; the rest is
 * what the domain is to be called, and "kvm" or "qemu". Its disks are looked at for their formats.
 * -1 with *e, also where the description has texts that XML cannot have.
 */
int domain_write(const json_t *meta, const char *name, const char *type, FILE *out, struct err *e);

#endif
