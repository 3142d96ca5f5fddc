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

#include "devices/disk/disk.h"

#define CLUSTER 4096u
#define BYTES   (10 * CLUSTER + 3 * DISK_SECTOR) /* the last cluster is not whole */

static char path[] = "/tmp/ditto-disk-XXXXXX";
static uint8_t content[BYTES];

static void write_image(const void *data, size_t len)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void assert_image_is(const uint8_t *data)
{
    static uint8_t now[BYTES + 1];
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    assert_int_equal(fread(now, 1, sizeof now, f), BYTES);
    assert_memory_equal(now, data, BYTES);
    fclose(f);
}

static int setup(void **state)
{
    int fd;

    (void)state;
    strcpy(path + sizeof path - 7, "XXXXXX");
    fd = mkstemp(path);
    if (fd < 0)
        return -1;
    close(fd);
    for (size_t i = 0; i < BYTES; i++)
        content[i] = (uint8_t)(i * 7 + i / 256 + 1);
    write_image(content, BYTES);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static struct disk *raw(bool writable)
{
    struct err e;
    struct disk *disk = disk_raw_open(path, writable, &e);

    if (!disk)
        fail_msg("%s", e.text);
    return disk;
}

static struct disk *overlay(void)
{
    struct err e;
    struct disk *disk = disk_overlay_new(raw(false), &e);

    if (!disk)
        fail_msg("%s", e.text);
    return disk;
}

static void read_only_image_reads_and_refuses_changes(void **state)
{
    struct disk *disk = raw(false);
    uint8_t data[BYTES];

    (void)state;
    assert_int_equal(disk->size, BYTES);
    assert_true(disk->read_only);
    assert_int_equal(disk->hidden, 0);
    assert_int_equal(disk_read(disk, 0, data, BYTES), 0);
    assert_memory_equal(data, content, BYTES);
    assert_int_equal(disk_write(disk, 0, "x", 1), -1);
    assert_int_equal(disk_zero(disk, 0, 512), -1);
    assert_int_equal(disk_discard(disk, 0, 512), -1);
    assert_int_equal(disk_flush(disk), 0);
    disk_close(disk);
    assert_image_is(content);
}

static void ranges_outside_the_disk_are_refused(void **state)
{
    struct disk *disk = overlay();
    uint8_t data[2 * DISK_SECTOR] = {0};

    (void)state;
    assert_int_equal(disk_read(disk, BYTES - 512, data, 512), 0);
    assert_int_equal(disk_read(disk, BYTES - 512, data, 513), -1);
    assert_int_equal(disk_read(disk, BYTES, data, 0), 0);
    assert_int_equal(disk_read(disk, BYTES + 1, data, 0), -1);
    assert_int_equal(disk_read(disk, UINT64_MAX, data, 2), -1);
    assert_int_equal(disk_write(disk, BYTES - 511, data, 512), -1);
    assert_int_equal(disk_zero(disk, 512, UINT64_MAX), -1);
    assert_int_equal(disk_discard(disk, 512, UINT64_MAX - 511), -1);
    disk_close(disk);
}

static void write_through_changes_the_image(void **state)
{
    struct disk *disk = raw(true);

    (void)state;
    assert_int_equal(disk_write(disk, 1000, "dittovm", 7), 0);
    assert_int_equal(disk_zero(disk, 5000, 6000), 0);
    assert_int_equal(disk_discard(disk, 16384, 4096), 0);
    assert_int_equal(disk_flush(disk), 0);

    memcpy(content + 1000, "dittovm", 7);
    memset(content + 5000, 0, 6000);
    assert_int_equal(disk_read(disk, 16384, content + 16384, 4096), 0);
    disk_close(disk);
    assert_image_is(content);
}

static void an_image_being_written_is_not_shared(void **state)
{
    struct disk *writer = raw(true);
    struct disk *reader;
    struct err e;

    (void)state;
    assert_null(disk_raw_open(path, true, &e));
    assert_non_null(strstr(e.text, "in use by another dittovm"));
    assert_null(disk_raw_open(path, false, &e));
    disk_close(writer);
    reader = raw(false);
    disk_close(raw(false)); /* readers share */
    assert_null(disk_raw_open(path, true, &e));
    disk_close(reader);
}

static void unusable_images_give_one_line(void **state)
{
    struct err e;

    (void)state;
    assert_null(disk_raw_open("/nonexistent/disk.img", false, &e));
    assert_string_equal(e.text,
                        "cannot open disk image /nonexistent/disk.img: No such file or directory");
    assert_int_equal(e.status, STATUS_ERROR);
    assert_null(disk_raw_open("/", false, &e));
    assert_non_null(strstr(e.text, "neither a file nor a block device"));
    assert_null(disk_raw_open("/dev/null", true, &e));
    assert_non_null(strstr(e.text, "neither a file nor a block device"));
    write_image("", 0);
    assert_null(disk_raw_open(path, false, &e));
    assert_non_null(strstr(e.text, "is empty"));
}

static void a_fifo_does_not_block(void **state)
{
    struct err e;

    (void)state;
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_null(disk_raw_open(path, false, &e));
    assert_non_null(strstr(e.text, "neither a file nor a block device"));
}

static void size_is_rounded_down_to_sectors(void **state)
{
    struct disk *disk;

    (void)state;
    write_image(content, 5 * DISK_SECTOR + 100);
    disk = raw(false);
    assert_int_equal(disk->size, 5 * DISK_SECTOR);
    assert_int_equal(disk->hidden, 100);
    disk_close(disk);
}

static void an_image_cut_short_is_an_error_not_a_crash(void **state)
{
    struct disk *disk = raw(false);
    uint8_t data[512];

    (void)state;
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(disk_read(disk, 3584, data, 512), 0);
    assert_int_equal(disk_read(disk, 4096, data, 512), -1);
    disk_close(disk);
}

/* Random reads, writes and zeroes against a plain array as the model. */
static void overlay_behaves_like_an_array(void **state)
{
    static uint8_t model[BYTES], data[BYTES];
    struct disk *disk = overlay();

    (void)state;
    memcpy(model, content, BYTES);
    srand(1);
    for (unsigned i = 0; i < 3000; i++) {
        size_t offset = (size_t)rand() % BYTES;
        size_t len = (size_t)rand() % (i % 3 ? 700 : BYTES);
        uint8_t fill = (uint8_t)rand();

        if (len > BYTES - offset)
            len = BYTES - offset;
        switch (rand() % 4) {
        case 0:
            memset(model + offset, fill, len);
            assert_int_equal(disk_write(disk, offset, model + offset, len), 0);
            break;
        case 1:
            if (i % 5 == 0)
                len = len < 300 ? len : 300;
            memset(model + offset, 0, len);
            assert_int_equal(i % 2 ? disk_zero(disk, offset, len) : disk_discard(disk, offset, len),
                             0);
            break;
        default:
            assert_int_equal(disk_read(disk, offset, data, len), 0);
            assert_memory_equal(data, model + offset, len);
        }
        if (i % 500 == 499) { /* a fresh overlay shows the base again */
            disk_close(disk);
            disk = overlay();
            memcpy(model, content, BYTES);
        }
    }
    assert_int_equal(disk_flush(disk), 0);
    disk_close(disk);
    assert_image_is(content);
}

static long resident_kib(void)
{
    long total, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &total, &resident), 2);
    fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* What the guest's CPU need not wait for: what is in memory. */
static void what_is_in_memory_needs_no_waiting(void **state)
{
    struct disk *disk = overlay();
    uint8_t data[2 * CLUSTER], expected[2 * CLUSTER];

    (void)state;
    memset(data, 0x44, sizeof data);
    assert_true(disk_writes_now(disk, CLUSTER, 2 * CLUSTER));
    assert_true(disk_writes_now(disk, 0, 0));                    /* a flush */
    assert_false(disk_writes_now(disk, CLUSTER + 512, CLUSTER)); /* edges are to be read */
    assert_false(disk_writes_now(disk, CLUSTER, 512));
    assert_false(disk_writes_now(disk, BYTES, 512));
    assert_int_equal(disk_write(disk, CLUSTER, data, 2 * CLUSTER), 0);
    assert_true(disk_writes_now(disk, CLUSTER + 512, CLUSTER));
    assert_true(disk_writes_now(disk, CLUSTER + 512, 2 * CLUSTER - 512));
    assert_false(disk_writes_now(disk, CLUSTER + 512, 2 * CLUSTER));
    memset(data, 0, sizeof data);
    assert_true(disk_read_now(disk, CLUSTER + 512, data, CLUSTER));
    assert_int_equal(data[0], 0x44);
    assert_int_equal(data[CLUSTER - 1], 0x44);
    assert_false(disk_read_now(disk, BYTES - 512, data, 1024));
    /* An image's: if the host's file system can tell. */
    assert_int_equal(disk_read(disk, 2 * CLUSTER, expected, sizeof expected), 0);
    if (!disk_read_now(disk, 2 * CLUSTER, data, sizeof data))
        print_message("[ NOTE     ] the file system of /tmp does not say what is in memory\n");
    else
        assert_memory_equal(data, expected, sizeof data);
    disk_close(disk);
    disk = raw(true);
    assert_false(disk_writes_now(disk, 0, CLUSTER) || disk_writes_now(disk, 0, 0));
    disk_close(disk);
    disk = raw(false);
    assert_true(disk_writes_now(disk, 0, 0));
    disk_close(disk);
}

static void a_large_sparse_image_costs_little(void **state)
{
    const uint64_t size = 100ull << 30;
    uint8_t data[CLUSTER];
    struct disk *disk;
    long before;

    (void)state;
    if (truncate(path, (off_t)size) < 0)
        skip(); /* the file system of /tmp has no files of 100 GiB */
    before = resident_kib();
    disk = overlay();
    assert_int_equal(disk->size, size);
    for (uint64_t at = 0; at < size; at += size / 64) {
        assert_int_equal(disk_write(disk, at + 100, "far", 3), 0);
        assert_int_equal(disk_read(disk, at, data, sizeof data), 0);
        assert_memory_equal(data + 100, "far", 3);
    }
    assert_int_equal(disk_discard(disk, 0, size), 0);
    assert_int_equal(disk_read(disk, 0, data, sizeof data), 0);
    assert_int_equal(data[100], 0);
    assert_true(resident_kib() - before < 16 * 1024);
    disk_close(disk);
}

static void overlay_lists_what_was_changed(void **state)
{
    struct disk *disk = overlay(), *plain = raw(false);
    uint64_t at = 0;

    (void)state;
    assert_false(disk_overlay_changed(disk, &at));
    assert_int_equal(disk_write(disk, 3 * CLUSTER - 1, content, 2), 0);
    assert_int_equal(disk_zero(disk, BYTES - 1, 1), 0); /* in the last one, which is not whole */
    for (at = 0; disk_overlay_changed(disk, &at) && at < 4 * CLUSTER; at += CLUSTER)
        assert_true(at == 2 * CLUSTER || at == 3 * CLUSTER);
    assert_int_equal(at, 10 * CLUSTER);
    at += CLUSTER;
    assert_false(disk_overlay_changed(disk, &at));
    at = 0;
    assert_false(disk_overlay_changed(plain, &at));
    assert_false(disk_overlay_fresh(plain, &at));
    assert_true(disk_is_overlay(disk) && !disk_is_overlay(plain));
    /* Each is fresh once, until it is written to again. */
    for (at = 0; disk_overlay_fresh(disk, &at) && at < 4 * CLUSTER; at += CLUSTER)
        assert_true(at == 2 * CLUSTER || at == 3 * CLUSTER);
    assert_int_equal(at, 10 * CLUSTER);
    at = 0;
    assert_false(disk_overlay_fresh(disk, &at));
    assert_int_equal(disk_write(disk, 3 * CLUSTER, content, 1), 0);
    at = 0;
    assert_true(disk_overlay_fresh(disk, &at) && at == 3 * CLUSTER);
    at = 0;
    assert_true(disk_overlay_changed(disk, &at) && at == 2 * CLUSTER);
    disk_close(disk);
    disk_close(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(read_only_image_reads_and_refuses_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(ranges_outside_the_disk_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(write_through_changes_the_image, setup, teardown),
        cmocka_unit_test_setup_teardown(an_image_being_written_is_not_shared, setup, teardown),
        cmocka_unit_test_setup_teardown(unusable_images_give_one_line, setup, teardown),
        cmocka_unit_test_setup_teardown(a_fifo_does_not_block, setup, teardown),
        cmocka_unit_test_setup_teardown(size_is_rounded_down_to_sectors, setup, teardown),
        cmocka_unit_test_setup_teardown(an_image_cut_short_is_an_error_not_a_crash, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(overlay_behaves_like_an_array, setup, teardown),
        cmocka_unit_test_setup_teardown(overlay_lists_what_was_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_in_memory_needs_no_waiting, setup, teardown),
        cmocka_unit_test_setup_teardown(a_large_sparse_image_costs_little, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
