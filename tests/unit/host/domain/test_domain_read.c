/* host/domain/: a domain's XML as options of `run`, what is said of the rest, and hostile XML. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "config.h"
#include "host/domain/domain.h"
#include "tests/unit/random.h"

#define HEAD                                                                                       \
    "<domain type='kvm'><name>n</name><memory unit='MiB'>64</memory>"                              \
    "<os><type arch='x86_64'>hvm</type></os>"
#define DISK(attributes, inner)                                                                    \
    HEAD "<devices><disk " attributes ">" inner "<target dev='vda' bus='virtio'/></disk>"          \
         "</devices></domain>"
#define NIC(attributes, inner)                                                                     \
    HEAD "<devices><interface " attributes ">" inner "<model type='virtio'/></interface>"          \
         "</devices></domain>"
#define DEVICE(inner) HEAD "<devices>" inner "</devices></domain>"

/* What volume and network of this name are, for domains that name them. */
static int find_volume(void *opaque, const char *pool, const char *volume, char *path, size_t size,
                       struct err *e)
{
    (void)opaque;
    if (strcmp(pool, "p") != 0)
        return err_set(e, STATUS_ERROR, "no pool %s", pool);
    snprintf(path, size, "/pool/%s", volume);
    return 0;
}

static bool is_isolated(void *opaque, const char *network)
{
    (void)opaque;
    return !strcmp(network, "alone");
}

/* One that no host has. */
static bool find_bridge(void *opaque, const char *network, char *bridge, size_t size)
{
    (void)opaque;
    return snprintf(bridge, size, "no:%.8s", network) < (int)size;
}

static const struct domain_around around = {find_volume, is_isolated, find_bridge, NULL};

static int read_text(struct domain *d, const char *text, struct err *e)
{
    return domain_read(d, text, strlen(text), "x.xml", &around, e);
}

/* All that is said of a domain. The caller frees it. */
static char *said(const struct domain *d)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    assert_non_null(f);
    domain_print(d, f);
    fclose(f);
    return text;
}

static const struct {
    const char *xml, *has;
} becomes[] = {
    {HEAD "</domain>", " --memory 64M --cpus 1\n"},
    {HEAD "<vcpu current='3'>6</vcpu></domain>", " --cpus 3\n"},
    {HEAD "<vcpu>4000000000</vcpu></domain>", "4000000000 CPUs: 8\n"},
    {"<domain type='qemu'><name>n</name><memory unit='KB'>100000</memory>"
     "<os><type>hvm</type></os></domain>",
     "memory of 100000000 bytes: 94M\n"},
    {"<domain type='qemu'><name>n</name><memory>\n 65536\n</memory>"
     "<os><type>hvm</type><kernel>/k</kernel><initrd>/i</initrd><cmdline>a='b c'</cmdline></os>"
     "</domain>",
     " --memory 64M --cpus 1 --kernel /k --initrd /i --append 'a='\\''b c'\\'''\n"},
    {DISK("type='file'", "<source file='/a b'/>"), " --disk '/a b,format=raw'\n"},
    {DISK("type='file'", "<driver name='qemu' type='qcow2'/><source file='/a'/><readonly/>"
                         "<serial>0123456789abcdefghijKLM</serial>"),
     " --disk /a,ro,format=qcow2,serial=0123456789abcdefghij\n"},
    {DISK("type='file'", "<driver type='vhd'/><source file='/a,b'/>"), " --disk /a,b,format=vpc\n"},
    {DISK("type='file'", "<source file='/a'/><serial>a,ro</serial>"), "disk vda: its serial\n"},
    {DISK("type='block'", "<source dev='/dev/b'/><iotune/>"), "disk vda: its iotune\n"},
    {DISK("type='volume'", "<source pool='p' volume='v'/>"), " --disk /pool/v,format=raw\n"},
    {DISK("type='file' device='floppy'", "<source file='/a'/>"), "floppy vda\n"},
    {DISK("type='file' device='cdrom'", ""), "CD-ROM vda, which is empty\n"},
    {DISK("type='file' device='cdrom'", "<source file='/no/c' startupPolicy='optional'/>"),
     "CD-ROM vda, which is empty\n"},
    {DEVICE("<disk device='cdrom'><source file='/c'/><boot order='1'/></disk>"
            "<disk><source file='/b'/></disk><disk><source file='/a'/><boot order='2'/></disk>"),
     " --disk /a,format=raw --disk /b,format=raw --disk /c,ro,format=raw\n"},
    {NIC("type='network'", "<source network='lan'/><mac address='52:54:00:00:00:01'/>"),
     " --net user,mac=52:54:00:00:00:01\n"},
    {NIC("type='network'", "<source network='lan'/>"), "NIC 0 of network lan: --net user\n"},
    {NIC("type='network'", "<source network='alone'/>"), " --net user,restrict=on\n"},
    {NIC("type='bridge'", "<source bridge='br0'/>"), "NIC 0 of bridge br0: --net user\n"},
    {NIC("type='user'", "<backend type='passt'/>"), " --net passt\n"},
    {NIC("type='user'", "<backend type='passt'/><portForward proto='tcp'>"
                        "<range start='80' end='81' to='8080'/></portForward>"),
     " --net user,hostfwd=tcp:0.0.0.0:80-:8080,hostfwd=tcp:0.0.0.0:81-:8081\n"},
    {NIC("type='user'", "<portForward proto='tcp' address='127.0.0.1'><range start='22'/>"
                        "</portForward>"),
     " --net user,hostfwd=tcp:127.0.0.1:22-:22\n"},
    {NIC("type='user'", "<portForward proto='tcp'><range start='1' end='65535'/>"
                        "</portForward>"),
     "NIC 0: a portForward\n"},
    {NIC("type='client'", "<source address='10.0.0.1' port='5558'/>"),
     " --net stream:tcp:10.0.0.1:5558\n"},
    {NIC("type='server'", "<source port='5558'/>"), " --net stream:tcp:0.0.0.0:5558,server\n"},
    {NIC("type='client'", "<source address='10.0.0.1,x' port='5558'/>"), " --net none\n"},
    {NIC("type='hostdev'", ""), "NIC 0 of hostdev: --net none\n"},
    {NIC("type='network'", "<link state='down'/>"), " --net none\n"},
    {NIC("type='user'", "<bandwidth/>"), "NIC 0: its bandwidth\n"},
    {DEVICE("<serial type='pty'/><serial type='pty'/>"), "further serial ports\n"},
    {DEVICE("<serial type='file'/>"), "serial console to file: this terminal\n"},
    {DEVICE("<console type='pty'><target type='virtio'/></console>"), "console (virtio)\n"},
    {DEVICE("<newer kind='x'/><newer/><newer/>"), "not carried over: newer\n"},
    {DEVICE("<hostdev mode='subsystem' type='pci'/>"), "hostdev (pci)\n"},
    {DEVICE("<memballoon model='none'/><rng model='virtio'/><controller/>"), " --cpus 1\n"},
    {HEAD "<os firmware='efi'/></domain>", " --cpus 1\n"}, /* the first one counts */
    {HEAD "<cpu mode='host-passthrough'/></domain>", "CPU host-passthrough\n"},
    {HEAD "<clock offset='localtime'/></domain>", "clock localtime\n"},
    {HEAD "<features><acpi/><smm state='on'/><vmport state='off'/></features></domain>",
     "not carried over: feature smm\n"},
    {"<domain type='kvm' xmlns:qemu='u'><name>n</name><memory unit='G'>1</memory>"
     "<os firmware='efi'><type machine='q35'>hvm</type></os><qemu:commandline/></domain>",
     "machine q35; UEFI firmware; qemu:commandline\n"},
};

static void test_what_domains_become(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof becomes / sizeof *becomes; i++) {
        struct domain d;
        struct err e;
        if (read_text(&d, becomes[i].xml, &e) < 0)
            fail_msg("%s: %s", becomes[i].xml, e.text);
        char *text = said(&d);
        if (!strstr(text, becomes[i].has))
            fail_msg("%s has not '%s' but: %s", becomes[i].xml, becomes[i].has, text);
        free(text);
        domain_free(&d);
    }
}

static const struct {
    const char *xml, *why;
} refused[] = {
    {"", "is empty"},
    {"<domain", "is not XML"},
    {"<domain/>", "a domain has a name"},
    {"<pool/>", "begins with <pool>"},
    {"<domain xmlns='u'/>", "begins with <domain>"},
    {"<domain type='kvm'><name>../x</name></domain>", "a domain has a name"},
    {"<domain type='lxc'><name>n</name></domain>", "of type lxc"},
    {"<domain type='kvm'><name>n</name><os><type>exe</type></os></domain>", "no whole machine"},
    {"<domain type='kvm'><name>n</name><os><type arch='aarch64'>hvm</type></os></domain>",
     "architecture: aarch64"},
    {"<domain type='kvm'><name>n</name><os><type>hvm</type></os></domain>", "memory"},
    {"<domain type='kvm'><name>n</name><memory unit='TiB'>16777216</memory>"
     "<os><type>hvm</type></os></domain>",
     "its memory is no size"},
    {"<domain type='kvm'><name>n</name><memory unit='acre'>1</memory>"
     "<os><type>hvm</type></os></domain>",
     "its memory is no size"},
    {HEAD "<vcpu>-1</vcpu></domain>", "number of CPUs"},
    {"<domain type='kvm'><name>n</name><memory>65536</memory><os><type>hvm</type>"
     "<kernel>/a&#10;b</kernel></os></domain>",
     "its kernel is no line"},
    {DISK("type='network'", "<source protocol='rbd'/>"), "of type network"},
    {DISK("type='volume'", "<source pool='q' volume='v'/>"), "no pool q"},
    {DISK("type='file'", "<source file='/a,ro'/>"), "ends as a setting"},
    {DISK("type='file'", "<source file='/a,size=1'/>"), "ends as a setting"},
    {DISK("type='file'", "<source file='/a'/><encryption/>"), "is encrypted"},
    {DISK("type='file'", "<driver type='qed'/><source file='/a'/>"), "cannot read: qed"},
    {NIC("type='user'", "<mac address='x'/>"), "no address but 'x'"},
    {"<!DOCTYPE domain SYSTEM 'http://127.0.0.1/x'><domain/>", "DOCTYPE"},
};

static void test_what_is_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct domain d;
        struct err e;
        if (read_text(&d, refused[i].xml, &e) == 0)
            fail_msg("taken: %s", refused[i].xml);
        if (!strstr(e.text, refused[i].why))
            fail_msg("%s: not '%s' but: %s", refused[i].xml, refused[i].why, e.text);
        assert_null(d.options);
    }
}

/* ---- what virt-install has made ---- */

#define SAMPLES DITTO_BUILD_DIR "/../tests/unit/host/domain/virt-install/"
static const char *const samples[] = {"debian11", "win10", "uefi", "kernel", "freebsd"};

static char *load(const char *name, const char *suffix)
{
    char path[4096];
    uint8_t *data;
    size_t len;
    struct err e;

    snprintf(path, sizeof path, SAMPLES "%s%s", name, suffix);
    if (file_read(path, 1 << 20, &data, &len, &e) < 0)
        fail_msg("%s", e.text);
    char *text = realloc(data, len + 1);
    assert_non_null(text);
    text[len] = 0;
    return text;
}

static void test_virt_install(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof samples / sizeof *samples; i++) {
        char *xml = load(samples[i], ".xml"), *wanted = load(samples[i], ".said");
        struct domain d;
        struct err e;
        if (read_text(&d, xml, &e) < 0)
            fail_msg("%s: %s", samples[i], e.text);
        char *text = said(&d);
        assert_string_equal(text, wanted);
        free(text);
        free(wanted);
        free(xml);
        domain_free(&d);
    }
}

/* ---- hostile XML ---- */

/* Whatever it is: a domain, or one line that says why not. */
static void try_text(const char *text, size_t len)
{
    struct domain d;
    struct err e = {.text = ""};

    if (domain_read(&d, text, len, "x.xml", &around, &e) == 0) {
        char *all = said(&d);
        for (const char *p = all; *p; p++)
            assert_true((unsigned char)*p >= ' ' || *p == '\n');
        free(all);
        domain_free(&d);
    } else {
        assert_true(e.text[0] && !strchr(e.text, '\n'));
    }
}

static uint64_t seed = RANDOM_SEED;

static size_t random_below(size_t count)
{
    return (size_t)(random_next(&seed) % count);
}

static void test_damaged(void **state)
{
    (void)state;
    for (unsigned round = 0; round < rounds(20000); round++) {
        char *xml = load(samples[round % (sizeof samples / sizeof *samples)], ".xml");
        const size_t len = strlen(xml);
        for (size_t i = random_below(4); i < 4; i++) {
            const size_t at = random_below(len), other = random_below(len);
            const size_t most = len - (at > other ? at : other), n = random_below(most ? most : 1);
            switch (random_below(3)) {
            case 0:
                xml[at] = (char)random_below(256);
                break;
            case 1:
                xml[at] = "<>\"'&/= "[random_below(8)];
                break;
            default: /* a piece comes twice */
                memmove(xml + at, xml + other, n > 40 ? 40 : n);
            }
        }
        try_text(xml, random_below(8) ? len : random_below(len));
        free(xml);
    }
}

/* A text of `count` times the same. */
static void try_many(const char *head, const char *piece, unsigned count, const char *tail)
{
    char *text;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    assert_non_null(f);
    fputs(head, f);
    for (unsigned i = 0; i < count; i++)
        fprintf(f, piece, i);
    fputs(tail, f);
    fclose(f);
    try_text(text, len);
    free(text);
}

static void test_large(void **state)
{
    (void)state;
    try_many(HEAD "<devices>", "<d%u/>", 50000, "</devices></domain>");
    try_many(HEAD "<devices>", "<disk device='x%u'/>", 20000, "</devices></domain>");
    try_many(HEAD "<devices>", "<disk><source file='/%u'/></disk>", 20000, "</devices></domain>");
    try_many(HEAD "<devices>", "<interface type='x%u'/>", 20000, "</devices></domain>");
    try_many(HEAD "<devices><interface>",
             "<portForward proto='tcp'><range start='%u'/></portForward>", 10000,
             "</interface></devices></domain>");
    try_many("<domain type='kvm'><name>n</name><memory>65536</memory><os><type>hvm</type>"
             "<kernel>/k</kernel><cmdline>",
             "%u", 100000, "</cmdline></os></domain>");
    try_many("", "<a%u>", 100000, "");
    try_many("<domain type='kvm'><name>", "%u", 100000, "</name></domain>");
    try_many("<domain type='kvm'><name>n</name><title a='", "%u", 100000, "'/></domain>");
    try_many("<domain>", "&#%u;", 100000, "</domain>");
    try_many("", "%u", 400000, ""); /* too large */
}

/* ---- as JSON ---- */

static void test_handed(void **state)
{
    struct domain d, again;
    struct err e;

    (void)state;
    assert_int_equal(
        read_text(&d, NIC("type='bridge'", "<source bridge='\xc3\xa4'/><bandwidth/>"), &e), 0);
    json_t *j = domain_pack(&d);
    char *text = json_dumps(j, 0), *one = said(&d);
    assert_int_equal(domain_unpack(&again, text, &e), 0);
    char *other = said(&again);
    assert_string_equal(one, other);
    free(one);
    free(other);
    free(text);
    json_decref(j);
    domain_free(&d);
    domain_free(&again);
    assert_int_equal(domain_unpack(&d, "", &e), -1);
    assert_int_equal(domain_unpack(&d, "{\"name\": \"n\"}", &e), -1);
    assert_int_equal(domain_unpack(&d, "[]", &e), -1);
}

/* ---- and back ---- */

#define META                                                                                       \
    "{\"machine\": {\"memory\": 67108864, \"cpus\": 2}, \"boot\": {\"kernel_file\": \"/k&<\", "    \
    "\"append\": \"a=1\"}, \"disks\": [{\"path\": \"/no/a\", \"format\": \"qcow2\", \"serial\": "  \
    "\"s\"}, {\"path\": \"/no/b\", \"format\": \"%s\", \"read_only\": true, \"serial\": \"t\"}], " \
    "\"nics\": [{\"mac\": \"52:54:00:00:00:01\", \"net\": \"user\"}, {\"mac\": "                   \
    "\"52:54:00:00:00:02\", \"net\": \"none\"}]}"

static int write_meta(const char *meta, const char *name, char **text, struct err *e)
{
    json_t *j = json_loads(meta, 0, NULL);
    size_t len;
    FILE *f = open_memstream(text, &len);

    assert_true(j && f);
    const int rc = domain_write(j, name, "kvm", f, e);
    fclose(f);
    json_decref(j);
    return rc;
}

static void test_written_and_read(void **state)
{
    char meta[2048], *xml;
    struct domain d;
    struct err e;

    (void)state;
    snprintf(meta, sizeof meta, META, "raw");
    assert_int_equal(write_meta(meta, "a & b", &xml, &e), 0);
    assert_int_equal(read_text(&d, xml, &e), 0);
    char *text = said(&d);
    assert_string_equal(
        text,
        "dittovm: domain a & b is taken as: dittovm run --memory 64M --cpus 2 --kernel '/k&<' "
        "--append 'console=ttyS0 a=1' --disk /no/a,format=qcow2,serial=s --disk "
        "/no/b,ro,format=raw,serial=t --net user,mac=52:54:00:00:00:01 --net "
        "none,mac=52:54:00:00:00:02\n");
    free(text);
    free(xml);
    domain_free(&d);
}

static void test_not_written(void **state)
{
    char meta[2048], *xml;
    struct err e;

    (void)state;
    snprintf(meta, sizeof meta, META, "vhdx");
    assert_int_equal(write_meta(meta, "n", &xml, &e), -1);
    assert_non_null(strstr(e.text, "vhdx"));
    free(xml);
    snprintf(meta, sizeof meta, META, "raw\\u0001");
    assert_int_equal(write_meta(meta, "n", &xml, &e), -1);
    assert_non_null(strstr(e.text, "control characters"));
    free(xml);
    snprintf(meta, sizeof meta, META, "raw");
    assert_int_equal(write_meta(meta, "a\033b", &xml, &e), -1);
    free(xml);
    assert_int_equal(write_meta(meta, "a\xff", &xml, &e), -1);
    free(xml);
    assert_int_equal(
        write_meta("{\"command\": {\"argv\": [\"true\"], \"root\": \"/\"}}", "n", &xml, &e), -1);
    assert_non_null(strstr(e.text, "run --root"));
    free(xml);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_domains_become),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_virt_install),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_handed),
        cmocka_unit_test(test_written_and_read),
        cmocka_unit_test(test_not_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
