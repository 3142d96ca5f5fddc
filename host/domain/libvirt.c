#include "host/domain/libvirt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>

#include "host/domain/xml.h"

#define LIBRARY "libvirt.so.0"
#define FUNCTIONS(X)                                                                               \
    X(virConnectOpenReadOnly)                                                                      \
    X(virConnectClose)                                                                             \
    X(virSetErrorFunc)                                                                             \
    X(virGetLastErrorMessage)                                                                      \
    X(virDomainLookupByName)                                                                       \
    X(virDomainLookupByUUIDString)                                                                 \
    X(virDomainIsActive)                                                                           \
    X(virDomainGetXMLDesc)                                                                         \
    X(virDomainFree)                                                                               \
    X(virStoragePoolLookupByName)                                                                  \
    X(virStoragePoolFree)                                                                          \
    X(virDomainHasManagedSaveImage)                                                                \
    X(virNetworkLookupByName)                                                                      \
    X(virNetworkGetXMLDesc)                                                                        \
    X(virNetworkFree)                                                                              \
    X(virNetworkGetBridgeName)                                                                     \
    X(virStorageVolLookupByName)                                                                   \
    X(virStorageVolGetPath)                                                                        \
    X(virStorageVolFree)

struct libvirt {
    virConnectPtr connection;
    const char *uri;
};

static struct {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} lib;

static int load_library(struct err *e)
{
    void *library = dlopen(LIBRARY, RTLD_NOW);

    if (!library)
        return err_set(e, STATUS_ERROR,
                       LIBRARY " cannot be loaded, by which libvirt is asked for a domain; run "
                               "'apt-get install libvirt0', or give --domain FILE.xml");
#define LOAD(name)                                                                                 \
    if (!(lib.name = (__typeof__(lib.name))dlsym(library, #name)))                                 \
        return err_set(e, STATUS_ERROR, LIBRARY " has no " #name);
    FUNCTIONS(LOAD)
#undef LOAD
    return 0;
}

/* Messages are ours to give; by default the library prints them. */
static void say_nothing(void *opaque, virErrorPtr error)
{
    (void)opaque;
    (void)error;
}

/* A daemon of another machine has its images there, and files of the same name may be here. */
static int check_is_here(const char *uri, struct err *e)
{
    static const char *const here[] = {"", "localhost", "127.0.0.1", "[::1]"};
    const char *server = strstr(uri, "://");
    const size_t len = server ? strcspn(server + 3, "/?#:") : 0;

    for (unsigned i = 0; i < sizeof here / sizeof *here; i++)
        if (!server || (len == strlen(here[i]) && !strncmp(server + 3, here[i], len)) ||
            !strncmp(server + 3, "[::1]", 5))
            return 0;
    return err_set(e, STATUS_ERROR,
                   "--connect %s: that libvirt's disks are on another machine; run dittovm there",
                   uri);
}

struct libvirt *libvirt_open(const char *uri, struct err *e)
{
    if (check_is_here(uri, e) < 0 || load_library(e) < 0)
        return NULL;
    lib.virSetErrorFunc(NULL, say_nothing);
    virConnectPtr connection = lib.virConnectOpenReadOnly(uri);
    if (!connection) {
        err_set(e, STATUS_ERROR,
                "libvirt does not answer at %s: %s; is libvirtd running ('apt-get install "
                "libvirt-daemon-system'), is --connect right?",
                uri, lib.virGetLastErrorMessage());
        return NULL;
    }
    struct libvirt *lv = malloc(sizeof *lv);
    if (!lv)
        abort();
    *lv = (struct libvirt){.connection = connection, .uri = uri};
    return lv;
}

void libvirt_close(struct libvirt *lv)
{
    if (lv)
        lib.virConnectClose(lv->connection);
    free(lv);
}

static virDomainPtr look_up(struct libvirt *lv, const char *name)
{
    virDomainPtr domain = lib.virDomainLookupByName(lv->connection, name);

    return domain ? domain : lib.virDomainLookupByUUIDString(lv->connection, name);
}

char *libvirt_domain_xml(struct libvirt *lv, const char *name, bool *saved, struct err *e)
{
    virDomainPtr domain = look_up(lv, name);
    char *xml = NULL;

    if (!domain) {
        err_set(e, STATUS_ERROR, "libvirt at %s has no domain '%s' (see virsh -c %s list --all)",
                lv->uri, name, lv->uri);
        return NULL;
    }
    if (lib.virDomainIsActive(domain) == 1)
        err_set(e, STATUS_ERROR,
                "domain %s is running, and changes its disks; shut it down first (virsh -c %s "
                "shutdown %s)",
                name, lv->uri, name);
    else if (!(xml = lib.virDomainGetXMLDesc(domain, VIR_DOMAIN_XML_INACTIVE)))
        err_set(e, STATUS_ERROR, "libvirt at %s does not describe domain %s: %s", lv->uri, name,
                lib.virGetLastErrorMessage());
    *saved = lib.virDomainHasManagedSaveImage(domain, 0) == 1;
    lib.virDomainFree(domain);
    return xml;
}

bool libvirt_network_is_isolated(void *opaque, const char *network)
{
    struct libvirt *lv = opaque;
    virNetworkPtr n = lib.virNetworkLookupByName(lv->connection, network);
    char *xml = n ? lib.virNetworkGetXMLDesc(n, VIR_NETWORK_XML_INACTIVE) : NULL;
    struct err none;
    struct _xmlDoc *doc = xml ? xml_parse(xml, strlen(xml), network, &none) : NULL;
    const bool isolated = doc && !xml_child(xml_root(doc), "forward");

    xml_free(doc);
    free(xml);
    if (n)
        lib.virNetworkFree(n);
    return isolated;
}

bool libvirt_network_bridge(void *opaque, const char *network, char *bridge, size_t size)
{
    struct libvirt *lv = opaque;
    virNetworkPtr n = lib.virNetworkLookupByName(lv->connection, network);
    char *name = n ? lib.virNetworkGetBridgeName(n) : NULL;
    const bool found = name && snprintf(bridge, size, "%s", name) < (int)size;

    free(name);
    if (n)
        lib.virNetworkFree(n);
    return found;
}

int libvirt_volume_path(void *opaque, const char *pool, const char *volume, char *path, size_t size,
                        struct err *e)
{
    struct libvirt *lv = opaque;
    virStoragePoolPtr p = lib.virStoragePoolLookupByName(lv->connection, pool);
    virStorageVolPtr v = p ? lib.virStorageVolLookupByName(p, volume) : NULL;
    char *found = v ? lib.virStorageVolGetPath(v) : NULL;
    int rc = 0;

    if (!found)
        rc = err_set(e, STATUS_ERROR, "volume %s of pool %s: %s", volume, pool,
                     lib.virGetLastErrorMessage());
    else if (snprintf(path, size, "%s", found) >= (int)size)
        rc = err_set(e, STATUS_ERROR, "volume %s of pool %s has too long a name", volume, pool);
    free(found);
    if (v)
        lib.virStorageVolFree(v);
    if (p)
        lib.virStoragePoolFree(p);
    return rc;
}
