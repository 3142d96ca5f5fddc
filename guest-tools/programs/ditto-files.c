/*
 * ditto-files DIR: writes, syncs, renames, truncates and maps files on the file system of DIR,
 * drops the caches and reads everything back from the disk. Host state it would leak: the order and
 * the moment at which disk requests complete, and the disk contents themselves. Prints sums.
 */
#include "common.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 8, FILE_SIZE = 512 * 1024, KEPT_SIZE = FILE_SIZE - 12345, BLOCK = 8192 };

static char path[4096], other_path[4096];

static int open_file(int number, int flags)
{
    int file;

    snprintf(path, sizeof(path), "file%d", number);
    file = open(path, flags | O_CLOEXEC, 0644);
    if (file < 0)
        die(path);
    return file;
}

static void fill_pattern(unsigned char *bytes, size_t length, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;

    for (size_t i = 0; i < length; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes[i] = (unsigned char)state;
    }
}

static void write_file(int number)
{
    int file = open_file(number, O_RDWR | O_CREAT | O_TRUNC);
    unsigned char block[BLOCK];

    for (int offset = 0; offset < FILE_SIZE; offset += BLOCK) {
        fill_pattern(block, sizeof(block), (uint64_t)number << 32 | (unsigned)offset);
        if (write(file, block, sizeof(block)) != (ssize_t)sizeof(block))
            die("write");
    }
    if (number % 2 == 0 ? fsync(file) != 0 : fdatasync(file) != 0)
        die("fsync");
    close(file);
}

/* Changes one byte in each page through a shared mapping and writes the pages out with msync. */
static void change_by_mapping(int number)
{
    int file = open_file(number, O_RDWR);
    unsigned char *map = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    if (map == MAP_FAILED)
        die("mmap");
    for (int offset = 0; offset < FILE_SIZE; offset += 4096)
        map[offset + number] ^= 0xff;
    if (msync(map, FILE_SIZE, MS_SYNC) != 0)
        die("msync");
    munmap(map, FILE_SIZE);
    close(file);
}

static void truncate_and_rename(int number)
{
    snprintf(path, sizeof(path), "file%d", number);
    snprintf(other_path, sizeof(other_path), "renamed%d", number);
    if (truncate(path, KEPT_SIZE) != 0)
        die("truncate");
    if (rename(path, other_path) != 0 || rename(other_path, path) != 0)
        die("rename");
}

static uint64_t sum_of_files(void)
{
    uint64_t sum = CHECKSUM_START;
    unsigned char block[BLOCK];
    ssize_t length;

    for (int number = 0; number < FILES; number++) {
        int file = open_file(number, O_RDONLY);

        while ((length = read(file, block, sizeof(block))) > 0)
            sum = checksum(sum, block, (size_t)length);
        if (length < 0)
            die("read");
        close(file);
    }
    return sum;
}

/* Only root may; without it the second reading comes from the page cache and the line says so. */
static const char *drop_caches(void)
{
    int control = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    int dropped;

    sync();
    if (control < 0)
        return "caches kept";
    dropped = write(control, "3\n", 2) == 2;
    close(control);
    return dropped ? "caches dropped" : "caches kept";
}

int main(int argc, char **argv)
{
    long long start = now_ms();
    uint64_t before, after;
    const char *caches;

    if (argc != 2) {
        fprintf(stderr, "usage: ditto-files DIR\n");
        return 2;
    }
    if (mkdir(argv[1], 0755) != 0 && errno != EEXIST)
        die(argv[1]);
    if (chdir(argv[1]) != 0)
        die(argv[1]);
    for (int number = 0; number < FILES; number++) {
        write_file(number);
        change_by_mapping(number);
        truncate_and_rename(number);
    }
    before = sum_of_files();
    caches = drop_caches();
    after = sum_of_files();
    for (int number = 0; number < FILES; number++) {
        snprintf(path, sizeof(path), "file%d", number);
        if (unlink(path) != 0)
            die("unlink");
    }
    printf("files: %d files, sum %016llx, after reading back %016llx (%s), %lld ms\n", FILES,
           (unsigned long long)before, (unsigned long long)after, caches, now_ms() - start);
    return before == after ? 0 : 1;
}
