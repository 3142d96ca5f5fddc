#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/disk/disk_format.h"
#include "devices/disk/disk_join.h"
#include "devices/disk/disk_set.h"
#include "tests/unit/random.h"

/* Sizes that end within a cluster, and within a sector. */
static const uint64_t sizes[] = {3 * DISK_CLUSTER + 512, 512, DISK_CLUSTER,
                                 5 * DISK_CLUSTER + 1536};
#define DISKS (sizeof sizes / sizeof *sizes)

static struct disk_wish wishes[DISKS];
static uint64_t seed = RANDOM_SEED;
static struct err e;

static uint64_t rnd(void)
{
    return random_next(&seed);
}

/* An image of bytes that say which disk it is. */
static void make_image(unsigned i)
{
    char name[] = "/tmp/test_disk_join.XXXXXX";
    const int fd = mkstemp(name);
    uint8_t bytes[8 * DISK_CLUSTER];

    assert_true(fd >= 0);
    memset(bytes, (int)('a' + i), sizeof bytes);
    assert_int_equal(write(fd, bytes, sizes[i]), sizes[i]);
    close(fd);
    wishes[i] = (struct disk_wish){.read_only = i == 2};
    snprintf(wishes[i].path, sizeof wishes[i].path, "%s", name);
}

static int setup(void **state)
{
    (void)state;
    for (unsigned i = 0; i < DISKS; i++)
        make_image(i);
    snprintf(wishes[1].serial, sizeof wishes[1].serial, "mine");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < DISKS; i++)
        unlink(wishes[i].path);
    return 0;
}

static void open_set(struct disk_set *set, bool write_through)
{
    if (disk_set_open(set, wishes, DISKS, write_through, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(set->count, DISKS);
}

static void each_is_its_image(void **state)
{
    struct disk_set set;

    (void)state;
    open_set(&set, false);
    for (unsigned i = 0; i < DISKS; i++) {
        uint8_t bytes[8 * DISK_CLUSTER];
        assert_int_equal(set.disk[i]->size, sizes[i]);
        assert_int_equal(set.disk[i]->read_only, i == 2);
        assert_int_equal(disk_read(set.disk[i], 0, bytes, sizes[i]), 0);
        for (uint64_t at = 0; at < sizes[i]; at++)
            assert_int_equal(bytes[at], 'a' + i);
        assert_int_equal(disk_read(set.disk[i], sizes[i] - 1, bytes, 2), -1);
    }
    assert_string_equal(set.serial[0], "ditto");
    assert_string_equal(set.serial[1], "mine");
    assert_string_equal(set.serial[3], "ditto-3");
    assert_int_equal(disk_write(set.disk[2], 0, "x", 1), -1);
    disk_set_close(&set);
}

/* Random reads, writes, zeroes and discards of any, beside arrays. */
static void they_are_apart(void **state)
{
    static uint8_t model[DISKS][8 * DISK_CLUSTER], bytes[8 * DISK_CLUSTER];
    struct disk_set set;
    unsigned at_once = 0;

    (void)state;
    open_set(&set, false);
    for (unsigned i = 0; i < DISKS; i++)
        memset(model[i], (int)('a' + i), sizes[i]);
    for (unsigned n = 0; n < rounds(100000); n++) {
        const unsigned i = (unsigned)(rnd() % DISKS);
        const uint64_t at = rnd() % sizes[i], len = 1 + rnd() % (sizes[i] - at);
        if (disk_read_now(set.disk[i], at, bytes, len)) {
            assert_memory_equal(bytes, model[i] + at, len);
            at_once++;
        }
        switch (rnd() % 4) {
        case 0:
            memset(bytes, (int)rnd(), len);
            if (disk_write(set.disk[i], at, bytes, len) == 0)
                memcpy(model[i] + at, bytes, len);
            break;
        case 1:
            if (disk_zero(set.disk[i], at, len) == 0)
                memset(model[i] + at, 0, len);
            break;
        default:
            assert_int_equal(disk_read(set.disk[i], at, bytes, len), 0);
            assert_memory_equal(bytes, model[i] + at, len);
        }
    }
    /* As one: each where it begins, and zeroes behind it. */
    for (unsigned i = 0; i < DISKS; i++) {
        const uint64_t begin = disk_join_offset(sizes, i);
        assert_int_equal(begin % DISK_CLUSTER, 0);
        assert_int_equal(disk_read(set.whole, begin, bytes, sizes[i]), 0);
        assert_memory_equal(bytes, model[i], sizes[i]);
    }
    assert_true(at_once > rounds(100000) / 10); /* by then most is in the overlay */
    assert_true(disk_writes_now(set.disk[0], 0, DISK_CLUSTER));
    disk_set_close(&set);
}

static void what_is_between_reads_as_zeroes(void **state)
{
    static uint8_t bytes[16 * DISK_CLUSTER];
    struct disk_set set;

    (void)state;
    open_set(&set, false);
    assert_int_equal(set.whole->size, disk_join_offset(sizes, DISKS));
    assert_int_equal(disk_read(set.whole, 0, bytes, set.whole->size), 0);
    for (unsigned i = 0; i < DISKS; i++)
        for (uint64_t at = disk_join_offset(sizes, i) + sizes[i];
             at < disk_join_offset(sizes, i + 1); at++)
            assert_int_equal(bytes[at], 0);
    disk_set_close(&set);
}

static void one_that_is_larger_than_its_image(void **state)
{
    static uint8_t bytes[2 * DISK_CLUSTER];
    struct disk_wish wish = wishes[0];
    struct disk_set set;

    (void)state;
    wish.size = 1ull << 34;
    assert_int_equal(disk_set_open(&set, &wish, 1, false, &e), 0);
    assert_int_equal(set.disk[0]->size, wish.size);
    assert_int_equal(disk_read(set.disk[0], sizes[0] - 1, bytes, 2), 0);
    assert_int_equal(bytes[0], 'a');
    assert_int_equal(bytes[1], 0);
    assert_int_equal(disk_write(set.disk[0], wish.size - 600, "end", 3), 0);
    assert_int_equal(disk_read(set.disk[0], wish.size - 600, bytes, 3), 0);
    assert_memory_equal(bytes, "end", 3);
    assert_int_equal(disk_write(set.disk[0], wish.size - 1, "end", 3), -1);
    disk_set_close(&set);
}

static void written_through(void **state)
{
    struct disk_set set;
    uint8_t byte;

    (void)state;
    open_set(&set, true);
    assert_int_equal(disk_write(set.disk[3], 5 * DISK_CLUSTER, "z", 1), 0);
    assert_int_equal(disk_write(set.disk[2], 0, "z", 1), -1);
    assert_int_equal(disk_flush(set.disk[0]), 0);
    disk_set_close(&set);
    open_set(&set, false);
    assert_int_equal(disk_read(set.disk[3], 5 * DISK_CLUSTER, &byte, 1), 0);
    assert_int_equal(byte, 'z');
    disk_set_close(&set);
}

/* Or the guest would choose which of the host's files are its disk the next time. */
static void a_raw_image_stays_raw(void **state)
{
    struct disk *disk = disk_image_open(wishes[0].path, "", true, &e);

    (void)state;
    assert_non_null(disk);
    assert_int_equal(disk_write(disk, 0, "QFI\xfb", 4), -1);
    assert_int_equal(disk_write(disk, 0, "QF", 2), 0);
    assert_int_equal(disk_write(disk, 2, "I\xfb", 2), -1);
    assert_int_equal(disk_write(disk, 64, "\x7f\x10\xda\xbe", 4), -1);
    assert_int_equal(disk_write(disk, 1, "QFI\xfb", 4), 0);
    disk_close(disk);
    assert_string_equal(disk_image_format(wishes[0].path), "raw");
    disk = disk_image_open(wishes[0].path, "raw", true, &e); /* who says so may have it */
    assert_int_equal(disk_write(disk, 0, "QFI\xfb", 4), 0);
    disk_close(disk);
    assert_string_equal(disk_image_format(wishes[0].path), "qcow2");
}

static void one_that_is_missing_closes_all(void **state)
{
    struct disk_set set;

    (void)state;
    unlink(wishes[3].path);
    snprintf(wishes[3].path, sizeof wishes[3].path, "/nowhere/image");
    assert_int_equal(disk_set_open(&set, wishes, DISKS, true, &e), -1);
    wishes[3] = wishes[0];
    assert_int_equal(disk_set_open(&set, wishes, DISKS - 1, true, &e), 0); /* none is locked */
    disk_set_close(&set);
    wishes[3].path[0] = '\0';
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(each_is_its_image),
        TEST(they_are_apart),
        TEST(what_is_between_reads_as_zeroes),
        TEST(one_that_is_larger_than_its_image),
        TEST(written_through),
        TEST(a_raw_image_stays_raw),
        TEST(one_that_is_missing_closes_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
