#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/disk/disk_files.h"

static char directory[] = "/tmp/ditto-files-XXXXXX";

static int setup(void **state)
{
    (void)state;
    strcpy(directory + sizeof directory - 7, "XXXXXX");
    return mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    static const char *const names[] = {"top", "middle", "base", "data", "x:y"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(names[i]);
    return chdir("/") == 0 ? rmdir(directory) : -1;
}

static void put_be(uint8_t *at, uint64_t value, unsigned len)
{
    while (len--) {
        at[len] = (uint8_t)value;
        value >>= 8;
    }
}

/* A qcow2 image, or so much of it as says what it is made of. */
static void write_qcow2(const char *name, const char *backing, uint64_t size, const char *data)
{
    uint8_t head[1024] = "QFI\xfb";
    FILE *f = fopen(name, "wb");

    put_be(head + 4, 3, 4);
    put_be(head + 8, backing ? 512 : 0, 8);
    put_be(head + 16, size, 4);
    put_be(head + 100, 104, 4);
    put_be(head + 104, 0x12345678, 4); /* an extension that is nothing to us, of 5 bytes */
    put_be(head + 108, 5, 4);
    if (data) {
        put_be(head + 120, 0x44415441, 4);
        put_be(head + 124, strlen(data), 4);
        memcpy(head + 128, data, strlen(data));
    }
    if (backing)
        memcpy(head + 512, backing, strlen(backing));
    assert_non_null(f);
    assert_int_equal(fwrite(head, sizeof head, 1, f), 1);
    fclose(f);
}

static void write_file(const char *name)
{
    FILE *f = fopen(name, "wb");

    assert_non_null(f);
    fclose(f);
}

static void assert_files(const char *path, const char *format, const char *names)
{
    struct disk_files files;
    char list[4096] = "";

    disk_files_list(&files, path, format);
    for (size_t i = 0; i < files.count; i++) {
        const char *name = strrchr(files.at[i].path, '/') + 1;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s(%d)", i ? " " : "", name,
                 files.at[i].overlay);
    }
    disk_files_free(&files);
    assert_string_equal(list, names);
}

static void a_chain_is_followed_to_its_end(void **state)
{
    char absolute[64], named[64];

    (void)state;
    write_file("base");
    write_file("data");
    write_qcow2("middle", "file:base", 9, NULL);
    snprintf(absolute, sizeof absolute, "%s/middle", directory);
    write_qcow2("top", absolute, strlen(absolute), "data");
    assert_files("top", "", "top(-1) data(-1) middle(0) base(2)");
    snprintf(named, sizeof named, "%s/../%s/top", directory, directory + 5);
    assert_files(named, "qcow2", "top(-1) data(-1) middle(0) base(2)");
    assert_files("top", "raw", "top(-1)"); /* it was said to be so */
    assert_files("base", "", "base(-1)");
    assert_files("nowhere", "", "");
    assert_files(directory, "", "");
    unlink("base");
    assert_files("middle", "", "middle(-1)");
}

static void what_makes_no_sense_ends_it(void **state)
{
    static const char *const names[] = {"json:{}", "nbd://here/x", "x:y", "", "/dev/null",
                                        ".",       "top/x"};
    struct disk_files files;

    (void)state;
    write_file("x:y");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        write_qcow2("top", names[i], strlen(names[i]), NULL);
        assert_files("top", "", "top(-1)");
    }
    write_qcow2("top", "./x:y", 5, NULL);
    assert_files("top", "", "top(-1) x:y(0)");
    write_qcow2("top", "base", 1u << 31, "\377\377\377\377\377\377\377\377");
    assert_files("top", "", "top(-1)");
    write_qcow2("top", "top", 3, "top"); /* into itself */
    disk_files_list(&files, "top", "");
    assert_in_range(files.count, 2, 200);
    disk_files_free(&files);
}

static void set_time(const char *name, long seconds)
{
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};

    assert_int_equal(utimensat(AT_FDCWD, name, times, 0), 0);
}

static void a_backing_file_may_be_newer(void **state)
{
    struct disk_files files;

    (void)state;
    write_file("base");
    write_qcow2("middle", "base", 4, NULL);
    write_qcow2("top", "middle", 6, NULL);
    set_time("base", 1000);
    set_time("middle", 1000);
    set_time("top", 2000);
    disk_files_list(&files, "top", "");
    assert_int_equal(files.at[0].mtime_ns, 2000000000000);
    assert_int_equal(files.at[0].size, 1024);
    assert_null(disk_files_find_newer(&files));
    disk_files_free(&files);
    set_time("base", 1500); /* older than the top, but not than what it is behind */
    disk_files_list(&files, "top", "");
    assert_ptr_equal(disk_files_find_newer(&files), &files.at[2]);
    disk_files_free(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_chain_is_followed_to_its_end, setup, teardown),
        cmocka_unit_test_setup_teardown(what_makes_no_sense_ends_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_backing_file_may_be_newer, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
