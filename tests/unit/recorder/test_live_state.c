/* recorder/live_state.c: what a snapshot copies of the disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/disk/disk.h"
#include "recorder/live_state.h"

#define CLUSTERS 1000u

/* A guest may discard all that it has: that is no memory of ours. */
static void test_zeroes_are_no_copies(void **state)
{
    static const uint8_t data[] = {0, 0, 7};
    char path[] = "/tmp/ditto-live-state-XXXXXX";
    struct page_copies copies = {0};
    struct bytes list = {0}, zeroes = {0};
    struct err e;
    const int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)CLUSTERS * DISK_CLUSTER), 0);
    struct disk *base = disk_raw_open(path, false, &e);
    assert_non_null(base);
    struct disk *disk = disk_overlay_new(base, &e);
    assert_non_null(disk);
    struct disk_map *map = disk_map_create(disk, &e);
    assert_non_null(map);

    assert_int_equal(disk_discard(disk, 0, disk->size), 0);
    assert_int_equal(disk_map_take(map, &copies, NULL, &e), 0);
    assert_int_equal(copies.count, 0);
    disk_map_list(map, &zeroes);
    /* They are in the list: the base may hold something else there. */
    assert_true(zeroes.len >= 2 * CLUSTERS);
    assert_int_equal(disk_write(disk, 5 * DISK_CLUSTER, data, sizeof data), 0);
    assert_int_equal(disk_map_take(map, &copies, NULL, &e), 0);
    assert_int_equal(copies.count, 1);
    assert_memory_equal(copies.data, data, sizeof data);
    *copies.to[0] = 9;
    copies.count = 0;
    disk_map_list(map, &list);
    assert_int_equal(list.len, zeroes.len);
    assert_memory_not_equal(list.data, zeroes.data, list.len);
    /* What was written, and is no more. */
    assert_int_equal(disk_zero(disk, 5 * DISK_CLUSTER, DISK_CLUSTER), 0);
    assert_int_equal(disk_map_take(map, &copies, NULL, &e), 0);
    assert_int_equal(copies.count, 0);
    bytes_clear(&list);
    disk_map_list(map, &list);
    assert_int_equal(list.len, zeroes.len);
    assert_memory_equal(list.data, zeroes.data, list.len);

    bytes_free(&zeroes);
    bytes_free(&list);
    page_copies_free(&copies);
    disk_map_destroy(map);
    disk_close(disk);
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeroes_are_no_copies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
