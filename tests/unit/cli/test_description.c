/* cli/description.c and cli/playing.c: what a recording's description asks of the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "cli/playing.h"
#include "mmu/memory.h"
#include "recording/writer.h"

static char dir[] = "/tmp/ditto-test-XXXXXX";
static struct snapshot_place place;

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(place.path, sizeof place.path, "%s/recording", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(place.path);
    return rmdir(dir);
}

/* A recording of a machine with so much memory. */
static int needs_of(long long memory, struct host_needs *needs, struct err *e)
{
    char meta[128];
    struct recording_writer *w = writer_create(place.path, true, e);

    snprintf(meta, sizeof meta, "{\"machine\": {\"memory\": %lld, \"cpus\": 1}}", memory);
    if (!w || writer_meta(w, meta, strlen(meta), e) < 0 || writer_put(w, 0, "x", 1) < 0 ||
        writer_finish(w, 1, "", e) < 0)
        fail_msg("%s", e->text);
    return playing_needs(&place, UINT64_MAX, false, needs, e);
}

static void test_memory_that_no_machine_has(void **state)
{
    static const long long sizes[] = {
        0, -1, 3, (16 << 20) + 1, 8 << 20, (long long)MEMORY_MAX + (2 << 20), INT64_MAX};
    struct host_needs needs;
    struct err e;

    (void)state;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(needs_of(sizes[i], &needs, &e), -1);
        assert_int_equal(e.status, STATUS_BAD_RECORDING);
        assert_int_equal(needs.guest_memory, 0);
    }
    assert_int_equal(needs_of(32 << 20, &needs, &e), 0);
    assert_int_equal(needs.guest_memory, 32 << 20);
}

static void test_memory_that_this_host_has_not(void **state)
{
    struct host_needs needs;
    struct sysinfo host;
    struct err e;

    (void)state;
    assert_int_equal(sysinfo(&host), 0);
    if ((uint64_t)host.totalram * host.mem_unit + (uint64_t)host.totalswap * host.mem_unit >=
        MEMORY_MAX)
        skip();
    assert_int_equal(needs_of((long long)MEMORY_MAX, &needs, &e), -1);
    assert_int_equal(e.status, STATUS_ERROR);
    assert_non_null(strstr(e.text, "the machine has 262144 MiB of memory, and this host"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_that_no_machine_has),
        cmocka_unit_test(test_memory_that_this_host_has_not),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
