/* cli/cmd_domain.c: a domain and a command line become one machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/run_options.h"
#include "host/emulated_options.h"

static char dir[] = "/tmp/ditto-test-XXXXXX", file[64];
static struct run_options o;
static struct err e;

#define DISK(n) "<disk><source file='/d" #n "'/><target dev='vd" #n "' bus='virtio'/></disk>"

static const char xml[] =
    "<domain type='kvm'><name>dom</name><memory unit='MiB'>64</memory><vcpu>2</vcpu>"
    "<os><type>hvm</type><kernel>/k</kernel><initrd>/i</initrd><cmdline>a b</cmdline></os>"
    "<devices>" DISK(1) DISK(2) "<interface type='user'><mac address='52:54:00:00:00:01'/><model "
                                "type='virtio'/></interface>"
                                "<interface type='user'><mac address='52:54:00:00:00:02'/><model "
                                "type='virtio'/></interface>"
                                "</devices></domain>";

static int write_file(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(file, sizeof file, "%s/x.xml", dir);
    FILE *f = fopen(file, "w");
    return f && fputs(xml, f) >= 0 ? fclose(f) : -1;
}

static int remove_file(void **state)
{
    (void)state;
    unlink(file);
    return rmdir(dir);
}

/* "run", these words and --domain FILE. */
static int parse(const char *line)
{
    static char text[400];
    char *argv[20] = {"run", "--domain", file};
    int argc = 3;

    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    e = (struct err){.text = ""};
    return run_options_parse(&o, argc, argv, &e);
}

static void test_domain_alone(void **state)
{
    (void)state;
    assert_int_equal(parse("-r"), 0);
    assert_string_equal(o.recording, "dom.ditto");
    assert_int_equal(o.memory, 64 << 20);
    assert_int_equal(o.cpus, 2);
    assert_string_equal(o.kernel, "/k");
    assert_string_equal(o.initrd, "/i");
    assert_string_equal(o.append, "a b");
    assert_int_equal(o.disk_count, 2);
    assert_string_equal(o.disks[1].path, "/d2");
    assert_int_equal(o.net_count, 2);
    assert_int_equal(o.nets[1].kind, NET_USER);
    run_options_free(&o);
    assert_int_equal(parse("--cpus 1"), 0);
    assert_int_equal(o.cpus, 1);
    run_options_free(&o);
}

static void test_command_line_comes_first(void **state)
{
    (void)state;
    assert_int_equal(parse("--memory 32M --append c --disk /d3 --net none --net "
                           "passt,mac=52:54:00:00:00:09 --net user"),
                     0);
    assert_int_equal(o.memory, 32 << 20);
    assert_string_equal(o.append, "a b c");
    assert_int_equal(o.disk_count, 3);
    assert_string_equal(o.disks[0].path, "/d1");
    assert_string_equal(o.disks[2].path, "/d3");
    assert_int_equal(o.net_count, 3);
    assert_int_equal(o.nets[0].kind, NET_NONE);
    assert_true(o.nets[0].has_mac && o.nets[0].mac[5] == 1);
    assert_int_equal(o.nets[1].kind, NET_PASST);
    assert_int_equal(o.nets[1].mac[5], 9);
    assert_false(o.nets[2].has_mac);
    run_options_free(&o);

    assert_int_equal(parse("--kernel /other --append c"), 0);
    assert_string_equal(o.kernel, "/other");
    assert_null(o.initrd);
    assert_string_equal(o.append, "c");
    run_options_free(&o);
    assert_int_equal(parse("--initrd /other"), 0);
    assert_string_equal(o.kernel, "/k");
    assert_string_equal(o.initrd, "/other");
    run_options_free(&o);
}

static void refuses(const char *line, enum exit_status status, const char *why)
{
    assert_int_equal(parse(line), -1);
    assert_int_equal(e.status, status);
    if (!strstr(e.text, why))
        fail_msg("%s: not '%s' but: %s", line, why, e.text);
}

static void test_what_does_not_go_with_it(void **state)
{
    (void)state;
    refuses("image", STATUS_USAGE, "a domain has its disks");
    refuses("--from x", STATUS_USAGE, "--domain makes no sense with --from");
    refuses("--disk 3 --disk 4 --disk 5 --disk 6 --disk 7 --disk 8 --disk 9", STATUS_USAGE,
            "at most 8 disks, the domain's 2 among them");
    refuses("--domain /no/such.xml", STATUS_ERROR, "cannot open /no/such.xml");
}

/* What the command in the emulated host is handed is what was found outside, wherever that is. */
static void test_handed(void **state)
{
    (void)state;
    assert_int_equal(parse(""), 0);
    assert_int_equal(run_options_hand_in(&o, &e), 0);
    run_options_free(&o);
    setenv(EMULATED_INSIDE_VARIABLE, "1", 1);
    assert_int_equal(parse("--domain /no/such.xml --memory 32M"), 0);
    assert_string_equal(o.domain.name, "dom");
    assert_int_equal(o.memory, 32 << 20);
    assert_string_equal(o.kernel, "/k");
    run_options_free(&o);
    unsetenv(EMULATED_INSIDE_VARIABLE);
    refuses("--domain /no/such.xml", STATUS_ERROR, "cannot open");
    o = (struct run_options){0};
    assert_int_equal(run_options_hand_in(&o, &e), 0); /* another command: it is gone */
    setenv(EMULATED_INSIDE_VARIABLE, "1", 1);
    refuses("--domain /no/such.xml", STATUS_ERROR, "cannot open");
    unsetenv(EMULATED_INSIDE_VARIABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_domain_alone),
        cmocka_unit_test(test_command_line_comes_first),
        cmocka_unit_test(test_what_does_not_go_with_it),
        cmocka_unit_test(test_handed),
    };

    return cmocka_run_group_tests(tests, write_file, remove_file);
}
