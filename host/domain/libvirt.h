#ifndef HOST_DOMAIN_LIBVIRT_H
#define HOST_DOMAIN_LIBVIRT_H

#include <stddef.h>

#include "base/err.h"

/* A libvirt daemon that is asked for its domains, by libvirt's library, which is loaded for that.
 * It is only read from: also a user may who is not allowed more. */
#define LIBVIRT_DEFAULT_URI "qemu:///system"

struct libvirt;

struct libvirt *libvirt_open(const char *uri, struct err *e); /* NULL with *e */
void libvirt_close(struct libvirt *lv);

/* The XML, for free(), of the domain of this name or UUID, which has to be shut off. NULL with *e.
 */
char *libvirt_domain_xml(struct libvirt *lv, const char *name, struct err *e);

/* As struct domain_volumes has it; opaque is a struct libvirt. */
int libvirt_volume_path(void *opaque, const char *pool, const char *volume, char *path, size_t size,
                        struct err *e);

#endif
