#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/now.h"
#include "boot/diskimage/cage.h"

#define SECOND    1000000000ull
#define DISK_SIZE (3u << 20)

static char image[] = "/tmp/test_cage.XXXXXX";
static uint8_t content[DISK_SIZE];
static struct disk *disk;
static struct bytes out;
static struct err error;

static int setup(void **state)
{
    const int fd = mkstemp(image);

    (void)state;
    for (size_t i = 0; i < DISK_SIZE; i++)
        content[i] = (uint8_t)(rand() >> 7);
    memcpy(content, "disk's\n", 7);
    if (fd < 0 || write(fd, content, DISK_SIZE) != (ssize_t)DISK_SIZE)
        return -1;
    close(fd);
    disk = disk_raw_open(image, false, &error);
    chmod(image, 0); /* the program has it all the same */
    return disk ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    disk_close(disk);
    bytes_free(&out);
    return unlink(image);
}

static int caged(const char *script, double seconds, size_t limit)
{
    char *argv[] = {(char *)(uintptr_t) "/bin/sh", (char *)(uintptr_t) "-c",
                    (char *)(uintptr_t)script, NULL};
    const uint64_t deadline = host_now_ns() + (uint64_t)(seconds * (double)SECOND);

    bytes_free(&out);
    const int rc = cage_run(disk, argv, deadline, limit, &out, &error);
    if (rc < 0)
        fail_msg("%s", error.text);
    return rc;
}

static void assert_says(const char *what)
{
    if (out.len != strlen(what) || memcmp(out.data, what, out.len) != 0)
        fail_msg("not \"%s\" but \"%.*s\"", what, (int)out.len, (const char *)out.data);
}

static void has_the_disk(void **state)
{
    (void)state;
    assert_int_equal(caged("exec cat " CAGE_DISK_NAME, 20, DISK_SIZE), 0);
    assert_int_equal(out.len, DISK_SIZE);
    assert_memory_equal(out.data, content, DISK_SIZE);
    /* Of any place in it, and nothing behind it. */
    assert_int_equal(caged("exec tail -c +3000001 " CAGE_DISK_NAME, 20, DISK_SIZE), 0);
    assert_int_equal(out.len, DISK_SIZE - 3000000);
    assert_memory_equal(out.data, content + 3000000, out.len);
}

static void status_is_the_programs(void **state)
{
    (void)state;
    assert_int_equal(caged("echo said; exit 7", 20, 100), 7);
    assert_int_equal(out.len, 0);
    assert_int_equal(caged("echo said", 20, 100), 0);
    assert_says("said\n");
}

/* A program that has read of the disk opens nothing any more. */
static void opens_nothing_behind_the_disk(void **state)
{
    (void)state;
    assert_int_equal(caged("exec head -qc 5 /etc/passwd " CAGE_DISK_NAME, 20, 100), 0);
    assert_says("root:disk'");
    assert_int_equal(caged("exec head -qc 5 " CAGE_DISK_NAME " /etc/passwd", 20, 100), 1);
    assert_says("");
    assert_int_equal(caged("exec head -qc 5 " CAGE_DISK_NAME " " CAGE_DISK_NAME, 20, 100), 1);
}

static void changes_nothing(void **state)
{
    char script[128];

    (void)state;
    snprintf(script, sizeof script, "echo x >%s.new; kill -9 %d; (echo child)", image,
             (int)getpid());
    assert_int_not_equal(caged(script, 20, 100), 0);
    assert_says("");
    snprintf(script, sizeof script, "%s.new", image);
    assert_int_equal(access(script, F_OK), -1);
}

static void is_bounded(void **state)
{
    const uint64_t start = host_now_ns();

    (void)state;
    assert_int_equal(caged("while :; do :; done", 0.3, 100), CAGE_STOPPED);
    assert_int_equal(caged("while :; do echo y; done", 20, 100000), CAGE_STOPPED);
    assert_int_equal(out.len, 0);
    assert_int_equal(caged("exec cat " CAGE_DISK_NAME, 20, DISK_SIZE - 1), CAGE_STOPPED);
    assert_true(host_now_ns() - start < 15 * SECOND);
}

static void a_program_that_is_none(void **state)
{
    char *argv[] = {(char *)(uintptr_t) "/nonexistent", NULL};

    (void)state;
    assert_int_equal(cage_run(disk, argv, host_now_ns() + SECOND, 100, &out, &error), -1);
    assert_non_null(strstr(error.text, "/nonexistent"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_disk),
        cmocka_unit_test(status_is_the_programs),
        cmocka_unit_test(opens_nothing_behind_the_disk),
        cmocka_unit_test(changes_nothing),
        cmocka_unit_test(is_bounded),
        cmocka_unit_test(a_program_that_is_none),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
