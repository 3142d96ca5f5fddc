/* The device by which the init talks to the outside of the machine. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/uio.h>
#include <unistd.h>

#include "guest-tools/command/init.h"

struct pages *pages;
static uint32_t box_frame;
static volatile uint32_t *registers; /* the device's */

void call(enum command_call what, uint32_t value)
{
    registers[COMMAND_CALL / 4] = (uint32_t)what << COMMAND_CALL_SHIFT | value;
}

void end_machine(enum command_call what, uint32_t value)
{
    for (;;) {
        call(what, value);
        reboot(RB_POWER_OFF);
        sleep(1);
    }
}

void fail(enum command_failure why, const char *format, ...)
{
    const int error = errno;
    va_list args;

    fputs("ditto: ", stdout);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf(": %s\n", strerror(error));
    fflush(stdout);
    end_machine(COMMAND_FAILED, why);
}

static bool has_id(int directory, const char *name, unsigned id)
{
    char text[16] = "";
    const int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    return n > 0 && strtoul(text, NULL, 16) == id;
}

/* Without it nobody can be told that it is not there, but on the console. */
void open_device(void)
{
    DIR *dir = opendir("/sys/bus/pci/devices");

    for (const struct dirent *d; dir && !registers && (d = readdir(dir));) {
        const int at = openat(dirfd(dir), d->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (at >= 0 && has_id(at, "vendor", COMMAND_VENDOR) &&
            has_id(at, "device", COMMAND_DEVICE)) {
            const int fd = openat(at, "resource0", O_RDWR | O_CLOEXEC);
            void *map = mmap(NULL, COMMAND_BAR_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            registers = map == MAP_FAILED ? NULL : map;
            close(fd);
        }
        if (at >= 0)
            close(at);
    }
    if (dir)
        closedir(dir);
    if (registers)
        return;
    printf("ditto: cannot use its PCI device: %s\n", strerror(errno));
    fflush(stdout);
    exit(1);
}

/* A pipe that is never read holds references to them, so that the kernel does not move them.
 * Children do not share them, or a write would get another page. */
static void pin_pages(void)
{
    const struct iovec parts[] = {{pages->box_page, COMMAND_PAGE}, {pages->data, COMMAND_DATA_MAX}};
    int ends[2];

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (pipe2(ends, O_CLOEXEC) < 0 ||
            vmsplice(ends[1], &parts[i], 1, 0) != (ssize_t)parts[i].iov_len)
            fail(COMMAND_NO_START, "cannot hold pages");
}

/* Bits 0 to 54 of a page's word in /proc/self/pagemap are its frame, bit 63 says that it is in
 * memory (Documentation/admin-guide/mm/pagemap.rst). */
static uint32_t frame_of(int pagemap, const void *page)
{
    uint64_t word = 0;

    if (pread(pagemap, &word, sizeof word, (off_t)((uintptr_t)page / COMMAND_PAGE * sizeof word)) !=
        sizeof word)
        fail(COMMAND_NO_PAGES, "/proc/self/pagemap");
    const uint64_t frame = word & ((1ull << 55) - 1);
    if (!(word >> 63) || !frame || frame > UINT32_MAX)
        fail(COMMAND_NO_PAGES, "/proc/self/pagemap does not say");
    return (uint32_t)frame;
}

void open_box(void)
{
    const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

    pages = mmap(NULL, sizeof *pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        fail(COMMAND_NO_START, "no memory for the streams");
    madvise(pages, sizeof *pages, MADV_DONTFORK);
    madvise(pages, sizeof *pages, MADV_NOHUGEPAGE);
    memset(pages, 1, sizeof *pages);
    pin_pages();
    box_frame = frame_of(pagemap, pages);
    for (unsigned i = 0; i < COMMAND_PAGES; i++)
        pages->box.frame[i] = frame_of(pagemap, pages->data + i * COMMAND_PAGE);
    close(pagemap);
}

/* Returns the len that it has afterwards. */
uint32_t send_box(enum command_call what, uint32_t len)
{
    volatile struct command_box *box = &pages->box;

    box->call = what;
    box->len = len;
    registers[COMMAND_BOX / 4] = box_frame;
    return box->len;
}
