#include "devices/disk/disk_seed.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/program.h"

#define USER_DATA_MAX (1u << 20)
#define KEY_MAX       16384u
#define DIRECTORY_MAX 64

/* Any of them makes such an image, with the same arguments. */
static const char *find_maker(char *program, size_t size)
{
    static const char *const makers[] = {"genisoimage", "xorrisofs", "mkisofs"};

    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (program_find(makers[i], program, size))
            return program;
    return NULL;
}

/* A public key, on the one line of its file; the caller frees it. NULL with *e. */
static char *read_key(const char *path, struct err *e)
{
    static const char *const kinds[] = {"ssh-", "ecdsa-", "sk-"};
    uint8_t *data;
    size_t len;
    bool ok = false;

    if (file_read(path, KEY_MAX, &data, &len, e) < 0)
        return NULL;
    while (len && (data[len - 1] == '\n' || data[len - 1] == '\r'))
        len--;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        ok |= len > strlen(kinds[i]) && !memcmp(data, kinds[i], strlen(kinds[i]));
    for (size_t i = 0; i < len; i++)
        ok &= data[i] >= ' ' && data[i] < 0x7f && data[i] != '\'';
    char *key = ok ? strndup((char *)data, len) : NULL;
    free(data);
    if (!key)
        err_set(e, STATUS_ERROR, "%s is no public key for ssh; give one like ~/.ssh/id_ed25519.pub",
                path);
    return key;
}

/* YAML; an instance of its own, or cloud-init would do nothing again. */
static int make_meta_data(const struct disk_seed *seed, struct bytes *out, struct err *e)
{
    char head[128];
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    bytes_put(out, head,
              (size_t)snprintf(head, sizeof head,
                               "instance-id: ditto-%lld-%ld\nlocal-hostname: ditto\n",
                               (long long)now.tv_sec, now.tv_nsec));
    if (seed->key_count)
        bytes_put(out, "public-keys:\n", 13);
    for (unsigned i = 0; i < seed->key_count; i++) {
        char *key = read_key(seed->ssh_keys[i], e);
        if (!key)
            return -1;
        bytes_put(out, "  - '", 5);
        bytes_put(out, key, strlen(key));
        bytes_put(out, "'\n", 2);
        free(key);
    }
    return 0;
}

static int read_user_data(const struct disk_seed *seed, struct bytes *out, struct err *e)
{
    static const char nothing[] = "#cloud-config\n{}\n";
    uint8_t *data;
    size_t len;

    if (!seed->user_data) {
        bytes_put(out, nothing, sizeof nothing - 1);
        return 0;
    }
    if (file_read(seed->user_data, USER_DATA_MAX, &data, &len, e) < 0)
        return -1;
    bytes_put(out, data, len);
    free(data);
    return 0;
}

static int prepare(const struct disk_seed *seed, struct bytes *user, struct bytes *meta,
                   struct err *e)
{
    if (read_user_data(seed, user, e) == 0 && make_meta_data(seed, meta, e) == 0)
        return 0;
    bytes_free(user);
    bytes_free(meta);
    return -1;
}

int disk_seed_check(const struct disk_seed *seed, struct err *e)
{
    struct bytes user = {0}, meta = {0};
    char program[4096];

    if (prepare(seed, &user, &meta, e) < 0)
        return -1;
    bytes_free(&user);
    bytes_free(&meta);
    return find_maker(program, sizeof program)
               ? 0
               : err_set(e, STATUS_ERROR,
                         "--cloud-init and --ssh-key need genisoimage, xorrisofs or mkisofs; run "
                         "'apt-get install genisoimage'");
}

static bool write_file(const char *directory, const char *name, const struct bytes *data)
{
    char path[DIRECTORY_MAX + 16];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const bool ok = fd >= 0 && write(fd, data->data, data->len) == (ssize_t)data->len;
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool run_maker(const char *directory, const char *path)
{
    char program[4096], user[DIRECTORY_MAX + 16], meta[DIRECTORY_MAX + 16];
    int status = -1;
    pid_t pid;

    snprintf(user, sizeof user, "%s/user-data", directory);
    snprintf(meta, sizeof meta, "%s/meta-data", directory);
    if (!find_maker(program, sizeof program))
        return false;
    char *args[] = {program,   "-quiet", "-volid",  "cidata",
                    "-joliet", "-rock",  "-output", (char *)(uintptr_t)path,
                    user,      meta,     NULL};
    return posix_spawn(&pid, program, NULL, NULL, args, environ) == 0 &&
           waitpid(pid, &status, 0) == pid && status == 0;
}

static void remove_files(const char *directory)
{
    static const char *const names[] = {"user-data", "meta-data"};
    char path[DIRECTORY_MAX + 16];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

int disk_seed_make(const struct disk_seed *seed, const char *path, struct err *e)
{
    char directory[DIRECTORY_MAX] = "/tmp/ditto-seed.XXXXXX";
    struct bytes user = {0}, meta = {0};

    if (prepare(seed, &user, &meta, e) < 0)
        return -1;
    const bool has_directory = mkdtemp(directory) != NULL;
    const bool ok = has_directory && write_file(directory, "user-data", &user) &&
                    write_file(directory, "meta-data", &meta) && run_maker(directory, path);
    if (has_directory)
        remove_files(directory);
    bytes_free(&user);
    bytes_free(&meta);
    return ok ? 0 : err_set(e, STATUS_ERROR, "cannot make %s for cloud-init", path);
}
