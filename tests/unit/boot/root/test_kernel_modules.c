/* boot/root/kernel_modules.c: which modules of a kernel's directory are loaded, and in which order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boot/root/kernel_modules.h"

static char work[] = "/tmp/test_modules.XXXXXX";

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(work) ? chdir(work) : -1;
}

static int tear_down(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", work);
    return chdir("/") == 0 ? system(command) : -1;
}

static void run(const char *command)
{
    assert_int_equal(system(command), 0);
}

/* A directory with a module that needs two, one of which needs another, and others without. */
static void make_modules(void)
{
    run("rm -rf lib; mkdir -p lib/modules/9.9/kernel/a && cd lib/modules/9.9 && "
        "printf 'head\\0depends=virtio-ring,mid\\0x' >kernel/a/virtio_pci.ko && "
        "printf 'head\\0depends=deep\\0x' >kernel/a/mid.ko && "
        "printf 'head\\0depends=\\0x' >kernel/a/deep.ko && "
        "printf 'head\\0depends=\\0x' >kernel/a/virtio_ring.ko && "
        "printf 'head\\0name=blk\\0depends=virtio_ring\\0x' >kernel/a/virtio_blk.ko && "
        "printf 'head\\0depends=\\0x' >kernel/a/virtio_net.ko && "
        "for m in virtio_pci mid deep virtio_ring virtio_blk virtio_net; do echo kernel/a/$m.ko; "
        "done "
        ">modules.order && "
        "echo kernel/fs/ext4/ext4.ko >modules.builtin");
}

static void expect_order(const struct kernel_modules *m, const char *const *names, unsigned count)
{
    assert_int_equal(m->count, count);
    for (unsigned i = 0; i < count; i++)
        assert_string_equal(m->at[i].name, names[i]);
}

static struct kernel_modules_place place(void)
{
    return (struct kernel_modules_place){
        .release = "9.9", .root = open(".", O_PATH | O_DIRECTORY), .kernel = "vmlinuz"};
}

static void test_order(void **state)
{
    static const char *const names[] = {"virtio_ring.ko", "deep.ko",       "mid.ko",
                                        "virtio_pci.ko",  "virtio_blk.ko", "virtio_net.ko"};
    struct kernel_modules_place p = place();
    struct kernel_modules m;
    struct err e;

    (void)state;
    make_modules();
    assert_int_equal(kernel_modules_load(&p, false, &m, &e), 0);
    expect_order(&m, names, 5);
    kernel_modules_free(&m);
    assert_int_equal(kernel_modules_load(&p, true, &m, &e), 0);
    expect_order(&m, names, 6);
    kernel_modules_free(&m);
    run("printf 'head\\0depends=mid\\0x' >lib/modules/9.9/kernel/a/deep.ko"); /* in a circle */
    assert_int_equal(kernel_modules_load(&p, true, &m, &e), 0);
    assert_int_equal(m.count, 6);
    kernel_modules_free(&m);
    close(p.root);
}

static void test_compressed(void **state)
{
    static const char *const names[] = {"virtio_ring.ko", "deep.ko", "mid.ko", "virtio_pci.ko",
                                        "virtio_blk.ko"};
    struct kernel_modules_place p = place();
    struct kernel_modules m;
    struct err e;

    (void)state;
    make_modules();
    run("cd lib/modules/9.9/kernel/a && xz virtio_pci.ko && zstd -q --rm mid.ko && gzip deep.ko");
    assert_int_equal(kernel_modules_load(&p, false, &m, &e), 0);
    expect_order(&m, names, 5);
    assert_memory_equal(m.at[2].data, "head\0depends=deep\0x", 19);
    assert_int_equal(m.at[3].len, strlen("head") + 1 + strlen("depends=virtio-ring,mid") + 2);
    kernel_modules_free(&m);
    run("cd lib/modules/9.9/kernel/a && head -c 20 virtio_pci.ko.xz >cut && mv cut "
        "virtio_pci.ko.xz");
    assert_int_equal(kernel_modules_load(&p, false, &m, &e), -1);
    assert_non_null(strstr(e.text, "is damaged"));
    run("cd lib/modules/9.9/kernel/a && rm virtio_pci.ko.xz");
    assert_int_equal(kernel_modules_load(&p, false, &m, &e), -1);
    assert_non_null(strstr(e.text, "cannot read the kernel module kernel/a/virtio_pci.ko"));
    close(p.root);
}

static void test_missing(void **state)
{
    struct kernel_modules_place p = place();
    struct kernel_modules m;
    struct err e;

    (void)state;
    make_modules();
    run("sed -i /virtio_blk/d lib/modules/9.9/modules.order");
    assert_int_equal(kernel_modules_load(&p, false, &m, &e), -1);
    assert_non_null(strstr(e.text, "the modules of Linux 9.9 have no virtio_blk"));
    p.release = "9.10"; /* all may be built in */
    assert_int_equal(kernel_modules_load(&p, false, &m, &e), 0);
    assert_int_equal(m.count, 0);
    p.named = "lib";
    assert_int_equal(kernel_modules_load(&p, false, &m, &e), -1);
    assert_non_null(strstr(e.text, "lib has no modules of Linux 9.10"));
    close(p.root);
}

static void test_release(void **state)
{
    static const uint8_t text[] = "a text, and no kernel";
    char release[KERNEL_RELEASE_MAX];
    struct err e;

    (void)state;
    assert_int_equal(kernel_release(text, sizeof text, release, &e), -1);
    assert_int_equal(kernel_release((const uint8_t *)"\177ELF", 4, release, &e), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_release),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
