#ifndef HOST_DOMAIN_LIBVIRT_H
#define HOST_DOMAIN_LIBVIRT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* A libvirt daemon that is asked for its domains, by libvirt's library, which is loaded for that.
 * It is only read from: also a user may who is not allowed more. */
#define LIBVIRT_DEFAULT_URI "qemu:///system"

struct libvirt;

struct libvirt *libvirt_open(const char *uri, struct err *e); /* NULL with *e */
void libvirt_close(struct libvirt *lv);

/* The XML, for free(), of the domain of this name or UUID, which has to be shut off; *saved:
 * libvirt would go on with a state that it kept. NULL with *e. */
char *libvirt_domain_xml(struct libvirt *lv, const char *name, bool *saved, struct err *e);

/* As struct domain_around has them; opaque is a struct libvirt. */
bool libvirt_network_is_isolated(void *opaque, const char *network);
bool libvirt_network_bridge(void *opaque, const char *network, char *bridge, size_t size);
int libvirt_volume_path(void *opaque, const char *pool, const char *volume, char *path, size_t size,
                        struct err *e);

#endif
