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
#include "boot/root/root.h"

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

/* A directory that somebody else has filled: its links and lists lead to files outside of it, and
 * it has FIFOs. The root is tree/, and secret is a module, so that nothing else refuses it. */
static void make_tree(void)
{
    make_modules();
    run("rm -rf tree secret; mkdir -p tree/boot && mv lib tree && cp "
        "tree/lib/modules/9.9/kernel/a/virtio_blk.ko secret");
}

static int load_tree(const char *kernel, struct kernel_modules *m, struct err *e)
{
    const struct kernel_modules_place p = {
        .release = "9.9", .root = open("tree", O_PATH | O_DIRECTORY), .kernel = kernel};
    const int rc = kernel_modules_load(&p, false, m, e);

    close(p.root);
    return rc;
}

static void refuse_tree(const char *change)
{
    static const char *const kernels[] = {"tree/boot/vmlinuz", "elsewhere/vmlinuz"};
    struct kernel_modules m;
    struct err e;

    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        make_tree();
        run(change);
        alarm(10); /* a FIFO would be waited for */
        assert_int_equal(load_tree(kernels[i], &m, &e), -1);
        alarm(0);
    }
}

static void test_ways_out(void **state)
{
    struct kernel_modules m;
    struct err e;

    (void)state;
    make_tree();
    assert_int_equal(load_tree("tree/boot/vmlinuz", &m, &e), 0);
    kernel_modules_free(&m);
    refuse_tree("cd tree/lib/modules/9.9/kernel/a && ln -sf $OLDPWD/secret virtio_blk.ko");
    refuse_tree("cd tree/lib/modules/9.9/kernel/a && ln -sf ../../../../../../secret "
                "virtio_blk.ko");
    refuse_tree("mv secret virtio_blk.ko; cd tree/lib/modules/9.9 && rm kernel/a/virtio_blk.ko && "
                "sed -i s#kernel/a/virtio_blk#../../../../virtio_blk# modules.order");
    refuse_tree("cd tree/lib/modules/9.9/kernel/a && rm virtio_blk.ko && mkfifo virtio_blk.ko");
    /* A list that is none: the other one is asked, which is not enough here. */
    refuse_tree("cd tree/lib/modules/9.9 && mkfifo modules.dep && rm modules.order");
    refuse_tree("cd tree/lib/modules/9.9 && mv modules.order $OLDPWD/order && ln -s $OLDPWD/order "
                "modules.order && mkfifo modules.dep");
    /* What is in the root may be linked to. */
    make_tree();
    run("cd tree/lib/modules/9.9/kernel/a && mkdir $OLDPWD/tree/store && mv virtio_blk.ko "
        "$OLDPWD/tree/store/0 && ln -s /store/0 virtio_blk.ko");
    assert_int_equal(load_tree("tree/boot/vmlinuz", &m, &e), 0);
    assert_int_equal(m.count, 5);
    kernel_modules_free(&m);
    /* All of the directory outside: there is none in the root, and none beside its kernel. */
    make_tree();
    run("mv tree/lib/modules/9.9 outside && ln -s $PWD/outside tree/lib/modules/9.9");
    assert_int_equal(load_tree("tree/boot/vmlinuz", &m, &e), 0);
    assert_int_equal(m.count, 0);
}

/* boot/root/root_look.c: a kernel is a file of the root's, or there is none. */
static void test_kernel_of_root(void **state)
{
    char kernel[4096], here[4096];
    struct err e;

    (void)state;
    run("rm -rf tree; mkdir -p tree/boot tree/store && echo >vmlinuz-out && echo >tree/store/k && "
        "cd tree/boot && echo >vmlinuz-8 && ln -s ../store/k vmlinuz-9 && ln -s "
        "$OLDPWD/vmlinuz-out vmlinuz-10 && ln -s ../../vmlinuz-out vmlinuz-11 && mkfifo vmlinuz-12 "
        "&& mkdir vmlinuz-13");
    assert_non_null(realpath("tree/store/k", here));
    assert_int_equal(root_find_kernel("tree", kernel, sizeof kernel, &e), 0);
    assert_string_equal(kernel, here);
    run("rm tree/boot/vmlinuz-9");
    assert_non_null(realpath("tree/boot/vmlinuz-8", here));
    assert_int_equal(root_find_kernel("tree", kernel, sizeof kernel, &e), 0);
    assert_string_equal(kernel, here);
    run("mv tree/boot outside-boot && ln -s $PWD/outside-boot tree/boot");
    if (root_find_kernel("tree", kernel, sizeof kernel, &e) == 0) /* of this machine */
        assert_null(strstr(kernel, "outside-boot"));
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
        cmocka_unit_test(test_order),          cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_missing),        cmocka_unit_test(test_ways_out),
        cmocka_unit_test(test_kernel_of_root), cmocka_unit_test(test_release),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
