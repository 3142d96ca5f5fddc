/*
 * Adding snapshots to a recording that says one thing in its index and another in its blocks.
 */
#include "replay/snapshot_adder.h"
#include "tests/unit/recording/recording_content.h"

/* The header of the first EPOCH block, which nobody reads who has an index, says CHUNKS now. */
static void make_first_epoch_chunks(struct bytes *file)
{
    struct block_header h = {0};
    size_t at = FILE_HEADER_BYTES;

    while (block_header_decode(&h, file->data + at) && h.type != BLOCK_EPOCH)
        at += BLOCK_HEADER_BYTES + h.stored_len;
    assert_int_equal(h.type, BLOCK_EPOCH);
    h.type = BLOCK_CHUNKS;
    h.items = 1;
    block_header_encode(file->data + at, &h);
}

static void test_lying_index(void **state)
{
    struct snapshot_adder adder;
    struct err e = {0};

    (void)state;
    record(3, 5);
    struct bytes file = slurp(path);
    assert_int_equal(snapshot_adder_open(&adder, path, &e), 0);
    snapshot_adder_abort(&adder);

    make_first_epoch_chunks(&file);
    spill(other, file.data, file.len);
    assert_int_equal(snapshot_adder_open(&adder, other, &e), -1);
    assert_int_equal(e.status, STATUS_BAD_RECORDING);
    assert_non_null(strstr(e.text, "its index is of other blocks"));
    struct bytes after = slurp(other);
    assert_int_equal(after.len, file.len);
    bytes_free(&after);
    bytes_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lying_index),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
