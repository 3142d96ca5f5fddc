#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "host/domain/domain_inside.h"
#include "host/domain/libvirt.h"
#include "host/domain/xml.h"

static bool is_file(const char *what)
{
    const size_t len = strlen(what);

    return strchr(what, '/') || (len > 4 && !strcmp(what + len - 4, ".xml"));
}

static int find_in_file(struct domain *d, const char *path, struct err *e)
{
    uint8_t *text;
    size_t len;

    if (file_read(path, XML_TEXT_MAX, &text, &len, e) < 0)
        return -1;
    const int rc = domain_read(d, (const char *)text, len, path, NULL, e);
    free(text);
    return rc;
}

static int find_in_libvirt(struct domain *d, const char *name, const char *uri, struct err *e)
{
    struct libvirt *lv = libvirt_open(uri, e);
    const struct domain_around around = {libvirt_volume_path, libvirt_network_is_isolated,
                                         libvirt_network_bridge, lv};
    bool saved;
    char *xml = lv ? libvirt_domain_xml(lv, name, &saved, e) : NULL;
    const int rc = xml ? domain_read(d, xml, strlen(xml), name, &around, e) : -1;

    if (rc == 0 && saved)
        domain_note(d->left, "the state that libvirt saved: it boots anew");

    free(xml);
    libvirt_close(lv);
    return rc;
}

int domain_find(struct domain *d, const char *what, const char *uri, struct err *e)
{
    *d = (struct domain){0};
    return is_file(what) ? find_in_file(d, what, e)
                         : find_in_libvirt(d, what, uri ? uri : LIBVIRT_DEFAULT_URI, e);
}
