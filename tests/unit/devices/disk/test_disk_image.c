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

#include "devices/disk/disk_image.h"

#define MIB  (1u << 20)
#define SIZE (5 * MIB + 7 * DISK_SECTOR)

static char directory[] = "/tmp/ditto-image-XXXXXX";
static char image[64];

static int setup(void **state)
{
    (void)state;
    strcpy(directory + sizeof directory - 7, "XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(image, sizeof image, "%s/image.raw", directory);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(image);
    return rmdir(directory); /* nothing else was left */
}

/* Zeroes but for a few bytes, among them the last one; and then fails at `bad`. */
struct pattern {
    struct disk disk;
    uint64_t bad;
};

static uint8_t byte_at(uint64_t offset)
{
    return offset == 0 || offset == MIB - 1 || offset == MIB || offset == 3 * MIB + 70000 ||
                   offset == SIZE - 1
               ? 0xa5
               : 0;
}

static int pattern_read(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)data)[i] = byte_at(offset + i);
    return offset + len > ((struct pattern *)disk)->bad ? -1 : 0;
}

static const struct disk_ops pattern_ops = {.read = pattern_read};

static struct pattern a_pattern(void)
{
    return (struct pattern){.disk = {.ops = &pattern_ops, .size = SIZE}, .bad = UINT64_MAX};
}

static void what_is_zero_is_left_out(void **state)
{
    const struct disk_image_making how = {.format = "raw"};
    struct pattern p = a_pattern();
    struct stat st;
    struct err e;
    uint64_t bytes;

    (void)state;
    assert_int_equal(disk_image_make(&p.disk, image, &how, &bytes, &e), 0);
    assert_int_equal(bytes, 4 * 65536 + 7 * DISK_SECTOR);
    assert_int_equal(stat(image, &st), 0);
    assert_int_equal(st.st_size, SIZE);
    assert_true((uint64_t)st.st_blocks * 512 < MIB);
    FILE *f = fopen(image, "rb");
    assert_non_null(f);
    for (uint64_t i = 0; i < SIZE; i++)
        assert_int_equal(getc(f), byte_at(i));
    fclose(f);
}

static void stop_after_two(void *opaque, uint64_t done)
{
    if (done >= 2 * MIB)
        *(atomic_int *)opaque = 1;
}

static void what_fails_leaves_nothing(void **state)
{
    atomic_int stop = 0;
    struct disk_image_making how = {
        .format = "raw", .stop = &stop, .progress = stop_after_two, .opaque = &stop};
    struct pattern p = a_pattern();
    struct err e;
    uint64_t bytes;

    (void)state;
    assert_int_equal(disk_image_make(&p.disk, image, &how, &bytes, &e), -1);
    assert_non_null(strstr(e.text, "interrupted before"));
    assert_int_equal(access(image, F_OK), -1);
    how = (struct disk_image_making){.format = "raw"};
    p.bad = 4 * MIB;
    assert_int_equal(disk_image_make(&p.disk, image, &how, &bytes, &e), -1);
    assert_string_equal(e.text, "cannot read the disk at byte 4194304");
    assert_int_equal(access(image, F_OK), -1);
}

static void what_is_there_stays_unless_it_may_go(void **state)
{
    struct disk_image_making how = {.format = "raw"};
    struct pattern p = a_pattern();
    struct err e;
    struct stat st;
    uint64_t bytes;

    (void)state;
    fclose(fopen(image, "w"));
    assert_int_equal(disk_image_check(image, &how, &e), -1);
    assert_non_null(strstr(e.text, "exists; give --force"));
    how.overwrite = true;
    assert_int_equal(disk_image_check(image, &how, &e), 0);
    p.bad = MIB;
    assert_int_equal(disk_image_make(&p.disk, image, &how, &bytes, &e), -1);
    assert_int_equal(stat(image, &st), 0);
    assert_int_equal(st.st_size, 0); /* as it was */
    assert_int_equal(disk_image_check(directory, &how, &e), -1);
    assert_non_null(strstr(e.text, "it is no file"));
}

static int begin_as_qcow2(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    (void)disk;
    memset(data, 0, len);
    if (!offset)
        memcpy(data, "QFI\xfb", len < 4 ? len : 4);
    return 0;
}

static void a_guest_does_not_choose_the_format(void **state)
{
    static const struct disk_ops ops = {.read = begin_as_qcow2};
    const struct disk_image_making how = {.format = "raw"};
    struct disk disk = {.ops = &ops, .size = MIB};
    struct err e;
    uint64_t bytes;

    (void)state;
    assert_int_equal(disk_image_make(&disk, image, &how, &bytes, &e), -1);
    assert_non_null(strstr(e.text, "would be taken for a qcow2 image"));
    assert_int_equal(access(image, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_zero_is_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(what_fails_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_there_stays_unless_it_may_go, setup, teardown),
        cmocka_unit_test_setup_teardown(a_guest_does_not_choose_the_format, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
