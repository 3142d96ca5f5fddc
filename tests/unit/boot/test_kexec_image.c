/* boot/kexec_image.c on images in guest memory, honest and hostile ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "boot/kexec_image.h"

#define DESTINATION 1u
#define INDIRECTION 2u
#define DONE        4u
#define SOURCE      8u

#define LIST      0x100000u
#define LIST_MORE 0x200000u
#define PURGATORY 0x800000u /* where it belongs: two pages */
#define FIRST_AT  0x305000u /* where they are */
#define SECOND_AT 0x301000u
#define ENTRY     (PURGATORY + 0x1800u)

static struct guest_memory m;

static int set_up(void **state)
{
    struct err e;

    (void)state;
    return guest_memory_create(&m, MEMORY_MIN, &e);
}

static int tear_down(void **state)
{
    (void)state;
    guest_memory_destroy(&m);
    return 0;
}

static void put(uint64_t at, uint64_t value)
{
    memcpy(guest_memory_at(&m, at, sizeof value), &value, sizeof value);
}

/* As kimage_load_segment() makes it: the list goes on in another page. */
static struct kexec_image make_image(void)
{
    const uint64_t first[] = {0x400000 | DESTINATION, 0x302000 | SOURCE, 0x303000 | SOURCE,
                              LIST_MORE | INDIRECTION};
    const uint64_t more[] = {PURGATORY | DESTINATION, FIRST_AT | SOURCE, SECOND_AT | SOURCE, DONE};

    memset(m.host, 0, m.size);
    memcpy(guest_memory_at(&m, LIST, sizeof first), first, sizeof first);
    memcpy(guest_memory_at(&m, LIST_MORE, sizeof more), more, sizeof more);
    return (struct kexec_image){.head = LIST | INDIRECTION, .start = PURGATORY + 0x40};
}

/* Purgatory's loads and its jump, which leads by ENTRY; the jump is at this GPA in the end. */
static void put_jump(const struct kexec_image *image, uint64_t at, unsigned loads)
{
    static const uint8_t load[] = {0x4c, 0x8b, 0x3d, 1, 2, 3, 4};
    uint8_t code[64], *end = code;

    for (unsigned i = 0; i < loads; i++, end += sizeof load)
        memcpy(end, load, sizeof load);
    const int32_t distance = (int32_t)(ENTRY - (at + 6));
    memcpy(end, (uint8_t[]){0xff, 0x25}, 2);
    memcpy(end + 2, &distance, sizeof distance);
    const uint64_t from = at - loads * sizeof load;
    for (unsigned i = 0; i < loads * sizeof load + 6; i++)
        *(uint8_t *)guest_memory_at(&m, kexec_image_source(&m, image, from + i), 1) = code[i];
}

static void test_source(void **state)
{
    (void)state;
    struct kexec_image image = make_image();

    assert_int_equal(kexec_image_source(&m, &image, 0x400010), 0x302010);
    assert_int_equal(kexec_image_source(&m, &image, 0x401fff), 0x303fff);
    assert_int_equal(kexec_image_source(&m, &image, PURGATORY), FIRST_AT);
    assert_int_equal(kexec_image_source(&m, &image, PURGATORY + 0x1008), SECOND_AT + 8);
    /* What is not in the list is where it belongs; so is all of a crash kernel. */
    assert_int_equal(kexec_image_source(&m, &image, PURGATORY + 0x2000), PURGATORY + 0x2000);
    image.head = DONE;
    assert_int_equal(kexec_image_source(&m, &image, PURGATORY), PURGATORY);
}

static void test_jump(void **state)
{
    (void)state;
    const struct kexec_image image = make_image();
    struct kexec_jump jump;

    assert_false(kexec_image_find_jump(&m, &image, &jump));
    put_jump(&image, PURGATORY + 0x600, 2); /* some other jump */
    assert_false(kexec_image_find_jump(&m, &image, &jump));
    /* Wherever it lies, also where its bytes are on two pages that are apart now. */
    for (unsigned back = 0; back < 30; back++) {
        const uint64_t at = PURGATORY + PAGE_BYTES - back;
        const struct kexec_image again = make_image();
        put_jump(&again, at, 3);
        assert_true(kexec_image_find_jump(&m, &again, &jump));
        assert_int_equal(jump.at, at);
        assert_int_equal(jump.entry, ENTRY);
    }
}

static void test_hostile(void **state)
{
    (void)state;
    struct kexec_image image = make_image();
    struct kexec_jump jump;

    put(LIST_MORE + 24, LIST_MORE | INDIRECTION); /* it does not end */
    assert_int_equal(kexec_image_source(&m, &image, 0xa00000), 0xa00000);
    put(LIST_MORE, 0xfffffffffffff000 | INDIRECTION);
    assert_int_equal(kexec_image_source(&m, &image, 0xa00000), 0xa00000);
    image.head = 0x12345000 | SOURCE; /* a list that begins without one */
    assert_int_equal(kexec_image_source(&m, &image, 0), 0x12345000);
    assert_int_equal(kexec_image_source(&m, &image, 0xa00000), 0xa00000);
    for (unsigned i = 0; i < 3; i++) {
        image.start = (const uint64_t[]){0, 0xfffffffffffffff0, MEMORY_MIN - 1}[i];
        assert_false(kexec_image_find_jump(&m, &image, &jump));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_source),
        cmocka_unit_test(test_jump),
        cmocka_unit_test(test_hostile),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
