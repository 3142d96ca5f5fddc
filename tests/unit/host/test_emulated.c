#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/emulated.h"
#include "host/emulated_args.h"
#include "host/emulated_tsc.h"

/* The argument that follows `option` for the nth time, or NULL. */
static const char *value_of(const struct string_list *l, const char *option, unsigned nth)
{
    for (size_t i = 0; i + 1 < l->count; i++)
        if (strcmp(l->items[i], option) == 0 && nth-- == 0)
            return l->items[i + 1];
    return NULL;
}

static bool has(const struct string_list *l, const char *text)
{
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->items[i], text) == 0)
            return true;
    return false;
}

static void list_is_ended_by_null(void **state)
{
    (void)state;
    struct string_list l = {0};
    string_list_add(&l, "%s-%d", "a", 1);
    string_list_add(&l, "b");
    assert_int_equal(l.count, 2);
    assert_string_equal(l.items[0], "a-1");
    assert_string_equal(l.items[1], "b");
    assert_null(l.items[2]);
    string_list_free(&l);
    assert_null(l.items);
}

static void rw_dirs_are_not_nested(void **state)
{
    (void)state;
    struct string_list l = {0};
    struct err e;
    assert_int_equal(emulated_add_rw_dir(&l, "/home/u/work", &e), 0);
    assert_int_equal(emulated_add_rw_dir(&l, "/home/u/work", &e), 0);
    assert_int_equal(emulated_add_rw_dir(&l, "/home/u/work/deep", &e), 0);
    assert_int_equal(l.count, 1);
    assert_int_equal(emulated_add_rw_dir(&l, "/home/u/works", &e), 0);
    assert_int_equal(l.count, 2);
    assert_int_equal(emulated_add_rw_dir(&l, "/home/u", &e), 0);
    assert_int_equal(l.count, 1);
    assert_string_equal(l.items[0], "/home/u");
    assert_null(l.items[1]);
    assert_int_equal(emulated_add_rw_dir(&l, "/", &e), 0);
    assert_int_equal(emulated_add_rw_dir(&l, "/srv", &e), 0);
    assert_int_equal(l.count, 1);
    assert_string_equal(l.items[0], "/");
    string_list_free(&l);
}

static void too_many_rw_dirs_are_refused(void **state)
{
    (void)state;
    struct string_list l = {0};
    struct err e = {0};
    char path[32];
    for (unsigned i = 0; i < KHOST_RW_DIRS_MAX; i++) {
        snprintf(path, sizeof path, "/d%u", i);
        assert_int_equal(emulated_add_rw_dir(&l, path, &e), 0);
    }
    assert_int_equal(emulated_add_rw_dir(&l, "/more", &e), -1);
    assert_int_equal(e.status, STATUS_ERROR);
    assert_non_null(strstr(e.text, "too many"));
    assert_int_equal(emulated_add_rw_dir(&l, "/d1/below", &e), 0);
    string_list_free(&l);
}

static void qemu_args_name_everything(void **state)
{
    (void)state;
    const struct emulated_forward forwards[] = {{1234, 1234}, {65535, 80}};
    const struct emulated_options o = {.datadir = "/data",
                                       .qemu = "/data/qemu",
                                       .memory_mib = 1280,
                                       .forwards = forwards,
                                       .forward_count = 2};
    struct string_list rw = {0}, args = {0};
    string_list_add(&rw, "/a,b");
    string_list_add(&rw, "/c");
    emulated_qemu_args(&o, &rw, false, &args);

    assert_string_equal(args.items[0], "/data/qemu");
    assert_null(args.items[args.count]);
    assert_string_equal(value_of(&args, "-m", 0), "1280");
    assert_string_equal(value_of(&args, "-kernel", 0), "/data/khost-vmlinux");
    assert_string_equal(value_of(&args, "-initrd", 0), "/data/khost-initrd.cpio");
    assert_string_equal(value_of(&args, "-serial", 0), "none");
    assert_string_equal(value_of(&args, "-netdev", 0),
                        "user,id=net,hostfwd=tcp:127.0.0.1:1234-:1234,"
                        "hostfwd=tcp:127.0.0.1:65535-:80");
    for (unsigned i = 0; i < 4; i++) {
        char socket[32];
        snprintf(socket, sizeof socket, "socket,id=port%u,fd=%u", i + 1, i + 3);
        assert_string_equal(value_of(&args, "-chardev", i), socket);
    }
    /* Only the root is read-only, and a comma in a path does not end the option. */
    assert_string_equal(value_of(&args, "-fsdev", 0),
                        "local,id=fs-root,path=/,security_model=none,multidevs=remap,readonly=on");
    assert_string_equal(value_of(&args, "-fsdev", 1),
                        "local,id=fs-rw0,path=/a,,b,security_model=none,multidevs=remap");
    assert_string_equal(value_of(&args, "-fsdev", 2),
                        "local,id=fs-rw1,path=/c,security_model=none,multidevs=remap");
    /* One more, for the next who needs it: every host has the same devices. */
    assert_string_equal(value_of(&args, "-fsdev", 3),
                        "local,id=fs-rw2,path=/,security_model=none,multidevs=remap,readonly=on");
    assert_null(value_of(&args, "-fsdev", 4));
    assert_true(has(&args, "virtio-9p-pci,fsdev=fs-rw1,mount_tag=rw1"));
    string_list_free(&rw);
    string_list_free(&args);
}

/* It listens on the descriptor behind the ports', and only if asked to; the port is there in any
 * case. */
static void qemu_has_a_port_for_gdb(void **state)
{
    (void)state;
    struct emulated_options o = {.datadir = "/data", .qemu = "/data/qemu", .memory_mib = 512};
    struct string_list rw = {0}, args = {0};
    emulated_qemu_args(&o, &rw, false, &args);
    assert_string_equal(value_of(&args, "-chardev", 4), "null,id=gdb");
    assert_true(has(&args, "virtserialport,chardev=gdb,nr=5,name=ditto.gdb"));
    string_list_free(&args);

    o.gdb = true;
    o.gdb_fd = 77;
    emulated_qemu_args(&o, &rw, false, &args);
    assert_string_equal(value_of(&args, "-chardev", 4), "socket,id=gdb,fd=7,server=on,wait=off");
    assert_true(has(&args, "virtserialport,chardev=gdb,nr=5,name=ditto.gdb"));
    string_list_free(&args);
}

/* KVM cannot intercept these: a CPU that has them would bring host values into the guest. */
static void qemu_cpu_has_no_leaks(void **state)
{
    (void)state;
    const struct emulated_options o = {.datadir = "/data", .qemu = "/data/qemu", .memory_mib = 512};
    static const char *const off[] = {",-rdrand", ",-rdseed", ",-rdtscp", ",-rdpid"};
    struct string_list rw = {0}, args = {0};
    emulated_qemu_args(&o, &rw, true, &args);
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++)
        assert_non_null(strstr(value_of(&args, "-cpu", 0), off[i]));
    assert_string_equal(value_of(&args, "-netdev", 0), "user,id=net");
    assert_string_equal(value_of(&args, "-serial", 0), "stdio");
    assert_non_null(strstr(value_of(&args, "-append", 0), "console=ttyS0"));
    string_list_free(&args);
}

/* A clock that is wrong by a factor makes every time limit and every tick wrong. */
static void the_host_knows_its_tsc(void **state)
{
    (void)state;
    struct emulated_options o = {.datadir = "/data", .qemu = "/data/qemu", .memory_mib = 512};
    struct string_list rw = {0}, args = {0};
    emulated_qemu_args(&o, &rw, false, &args);
    assert_null(strstr(value_of(&args, "-append", 0), "tsc_early_khz"));
    string_list_free(&args);

    o.tsc_khz = 2096013;
    emulated_qemu_args(&o, &rw, false, &args);
    assert_non_null(strstr(value_of(&args, "-append", 0), " tsc_early_khz=2096013"));
    string_list_free(&args);
}

/* Each measurement that comes to a number comes to the same one. */
static void tsc_is_measured(void **state)
{
    (void)state;
    unsigned first = 0;

    for (int i = 0; i < 5; i++) {
        const unsigned khz = emulated_tsc_khz();
        if (!khz)
            continue;
        if (!first)
            first = khz;
        assert_in_range(khz, first - first / 100, first + first / 100);
    }
}

/* Whoever measures it a little differently finds the host that another one has made: of a round
 * frequency even by its likelier name. */
static void a_tsc_that_measures_differently_is_the_same(void **state)
{
    (void)state;
    const unsigned noise = EMULATED_TSC_STEP_KHZ / 4;
    unsigned steps[2], others[2];

    assert_false(emulated_tsc_steps(0, steps));
    for (unsigned khz = 2000000; khz < 2020000; khz += 7) {
        assert_true(emulated_tsc_steps(khz, steps) && emulated_tsc_steps(khz + noise, others));
        assert_true(others[0] == steps[0] || others[1] == steps[0]);
    }
    for (unsigned khz = 800000; khz < 6000000; khz += 100000) {
        assert_true(emulated_tsc_steps(khz - noise, steps));
        assert_true(emulated_tsc_steps(khz + noise, others));
        assert_int_equal(others[0], steps[0]);
    }
}

static void check_string(struct cursor *c, const char *expected)
{
    assert_int_equal(cursor_varint(c), strlen(expected));
    const char *s = cursor_take(c, strlen(expected) + 1);
    assert_non_null(s);
    assert_string_equal(s, expected);
}

static void request_reads_back(void **state)
{
    (void)state;
    const gid_t groups[] = {100, 70000};
    char *rw[] = {"/w", NULL};
    char *env[] = {"A=1", "DITTO_INSIDE=no", "DITTO_INSIDER=2", NULL};
    char *argv[] = {"/bin/x", "", "two words", NULL};
    struct emulated_request r = {
        .flags = KHOST_TTY_STDIO,
        .rows = 24,
        .columns = 300,
        .uid = 1000,
        .gid = 1001,
        .umask = 027,
        .now = {5000000000, 999999999},
        .groups = groups,
        .group_count = 2,
        .cwd = "/w",
        .rw_dirs = rw,
        .env = env,
        .argv = argv,
    };
    memset(r.seed, 0xa5, sizeof r.seed);
    struct bytes b = {0};
    struct err e;
    assert_int_equal(emulated_encode_request(&r, &b, &e), 0);

    struct cursor c = cursor_of(b.data, b.len);
    assert_int_equal(cursor_u32(&c), b.len - 4);
    assert_int_equal(cursor_u8(&c), KHOST_TTY_STDIO);
    assert_int_equal(cursor_u16(&c), 24);
    assert_int_equal(cursor_u16(&c), 300);
    assert_int_equal(cursor_u32(&c), 1000);
    assert_int_equal(cursor_u32(&c), 1001);
    assert_int_equal(cursor_u32(&c), 027);
    assert_int_equal(cursor_u64(&c), 5000000000);
    assert_int_equal(cursor_u32(&c), 999999999);
    assert_memory_equal(cursor_take(&c, KHOST_SEED_BYTES), r.seed, KHOST_SEED_BYTES);
    assert_int_equal(cursor_varint(&c), 2);
    assert_int_equal(cursor_u32(&c), 100);
    assert_int_equal(cursor_u32(&c), 70000);
    check_string(&c, "/w");
    assert_int_equal(cursor_varint(&c), 1);
    check_string(&c, "/w");
    assert_int_equal(cursor_varint(&c), 3);
    check_string(&c, "A=1");
    check_string(&c, "DITTO_INSIDER=2");
    check_string(&c, "DITTO_INSIDE=1");
    assert_int_equal(cursor_varint(&c), 3);
    check_string(&c, "/bin/x");
    check_string(&c, "");
    check_string(&c, "two words");
    assert_false(c.bad);
    assert_int_equal(cursor_left(&c), 0);
    bytes_free(&b);
}

static void oversized_request_is_refused(void **state)
{
    (void)state;
    char *huge = malloc(KHOST_REQUEST_MAX + 1);
    assert_non_null(huge);
    memset(huge, 'x', KHOST_REQUEST_MAX);
    huge[KHOST_REQUEST_MAX] = '\0';
    char *none[] = {NULL}, *argv[] = {"/bin/x", huge, NULL};
    struct emulated_request r = {.cwd = "/", .rw_dirs = none, .env = none, .argv = argv};
    struct bytes b = {0};
    struct err e;
    assert_int_equal(emulated_encode_request(&r, &b, &e), -1);
    assert_non_null(strstr(e.text, "too large"));
    assert_int_equal(b.len, 0);
    free(huge);
}

static void quote_is_one_clean_line(void **state)
{
    (void)state;
    char out[64];
    const char said[] = "qemu: one\nqemu:\ttwo\x1b[0m\n\n";
    emulated_quote(said, sizeof said - 1, out, sizeof out);
    assert_string_equal(out, "qemu: one; qemu: two [0m");
    emulated_quote("", 0, out, sizeof out);
    assert_string_equal(out, "");
    emulated_quote("\n \n", 3, out, sizeof out);
    assert_string_equal(out, "");
    /* The end of a long text is what tells; nothing but line ends is the worst case. */
    emulated_quote("0123456789", 10, out, 9);
    assert_string_equal(out, "6789");
    emulated_quote("\n\n\n\n\n\n\nx", 8, out, 8);
    assert_string_equal(out, "; ; x");
    emulated_quote("abc", 3, out, 1);
    assert_string_equal(out, "");
}

/* One that is beside the emulated host's files comes before the one in PATH. */
static void own_qemu_comes_first(void **state)
{
    (void)state;
    char dir[] = "/tmp/ditto-emulated-XXXXXX", path[EMULATED_PATH_MAX], expected[64];

    assert_non_null(mkdtemp(dir));
    assert_string_equal(emulated_qemu(dir, path), "qemu-system-x86_64");
    snprintf(expected, sizeof expected, "%s/qemu-system-x86_64", dir);
    const int fd = open(expected, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_string_equal(emulated_qemu(dir, path), "qemu-system-x86_64");
    assert_int_equal(fchmod(fd, 0700), 0);
    close(fd);
    assert_string_equal(emulated_qemu(dir, path), expected);
    unlink(expected);
    rmdir(dir);
}

static void missing_files_are_named(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(emulated_available("/nonexistent-datadir", &e), -1);
    assert_int_equal(e.status, STATUS_ERROR);
    assert_true(strstr(e.text, "make khost") || strstr(e.text, "apt-get install"));
    assert_null(strchr(e.text, '\n'));

    char *path = strdup(getenv("PATH") ? getenv("PATH") : "");
    setenv("PATH", "/nonexistent-bin", 1);
    assert_int_equal(emulated_available("/nonexistent-datadir", &e), -1);
    assert_non_null(strstr(e.text, "apt-get install qemu-system-x86"));
    setenv("PATH", path, 1);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_is_ended_by_null),
        cmocka_unit_test(rw_dirs_are_not_nested),
        cmocka_unit_test(too_many_rw_dirs_are_refused),
        cmocka_unit_test(qemu_args_name_everything),
        cmocka_unit_test(qemu_cpu_has_no_leaks),
        cmocka_unit_test(request_reads_back),
        cmocka_unit_test(oversized_request_is_refused),
        cmocka_unit_test(quote_is_one_clean_line),
        cmocka_unit_test(own_qemu_comes_first),
        cmocka_unit_test(missing_files_are_named),
        cmocka_unit_test(qemu_has_a_port_for_gdb),
        cmocka_unit_test(the_host_knows_its_tsc),
        cmocka_unit_test(tsc_is_measured),
        cmocka_unit_test(a_tsc_that_measures_differently_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
