#include "cli/run_sources.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "boot/diskimage/diskimage.h"
#include "devices/disk/disk_files.h"
#include "host/emulated.h"

/* Where what was found outside of the emulated host is. */
#define HANDED_VARIABLE "DITTO_BOOT"

/* ... and what was made there of a directory that is a root. */
#define ROOT_VARIABLE "DITTO_ROOT"

#define KERNEL_MAX (256ull << 20)
#define INITRD_MAX (1ull << 30)

/*
 * What the machine wants of every kernel:
 * - its console;
 * - with one CPU, no search for a local APIC, which it lacks then (Linux would write 131,072 EOIs
 * to the void);
 * - no random kernel stack offset, which would execute an RDTSC (an exit here) in every system
 * call;
 * - a fixed length of its delay loop: measuring it means to spin until timer interrupts come, each
 * of which would be a forced point;
 * - with several CPUs, no test whether the timer's interrupt comes through the I/O APIC within so
 * many passes of that loop: on a fast host with --slow it does not, and Linux panics.
 */
static const char machine_arguments[] = "console=ttyS0 randomize_kstack_offset=off lpj=1000000";

static int check_readable(const char *path, struct err *e)
{
    if (path && access(path, R_OK) < 0)
        return err_set(e, STATUS_ERROR, "cannot open %s: %s", path, strerror(errno));
    return 0;
}

/* The boot loader's arguments, then the machine's, then the user's: the last one wins. */
static int join_command_line(struct run_sources *s, const char *loader, const char *root,
                             const char *root_flags, const struct run_options *o, struct err *e)
{
    /* A kernel that panics has the machine end. */
    const char *unit = !o->unit.root ? "" : o->unit.verbose ? " panic=-1" : " panic=-1 quiet";

    if (asprintf(&s->command_line, "%s%s%s%s%s%s%s%s%s%s%s", loader, *loader ? " " : "",
                 machine_arguments, unit, o->cpus == 1 ? " nolapic" : " no_timer_check",
                 *root ? " root=/dev/" : "", root, *root_flags ? " rootflags=" : "", root_flags,
                 o->append ? " " : "", o->append ? o->append : "") < 0) {
        s->command_line = NULL;
        return err_set(e, STATUS_ERROR, "out of memory");
    }
    return 0;
}

static int load_files(struct run_sources *s, const struct run_options *o, struct err *e)
{
    if (file_read(o->kernel, KERNEL_MAX, &s->kernel, &s->kernel_len, e) < 0)
        return -1;
    if (o->initrd && file_read(o->initrd, INITRD_MAX, &s->initrd, &s->initrd_len, e) < 0)
        return -1;
    snprintf(s->description, sizeof s->description, "kernel %.*s", text_fitting(o->kernel, 400),
             o->kernel);
    return join_command_line(s, "", "", "", o, e);
}

static bool has_root_argument(const char *command_line)
{
    return !strncmp(command_line, "root=", 5) || strstr(command_line, " root=");
}

/* What the image boots: found by the check, or outside of this host, or now. */
static int find_boot(struct run_sources *s, const struct run_options *o, struct err *e)
{
    const char *const handed = getenv(EMULATED_INSIDE_VARIABLE) ? getenv(HANDED_VARIABLE) : NULL;

    if (s->boot.kernel)
        return 0;
    return handed ? diskimage_take_handed(handed, &s->boot, e)
                  : diskimage_find_boot(s->disks.disk[0], o->disks[0].path, &s->boot, e);
}

static int load_from_disk(struct run_sources *s, const struct run_options *o, struct err *e)
{
    struct disk_boot *const boot = &s->boot;

    if (find_boot(s, o, e) < 0)
        return -1;
    s->kernel = boot->kernel;
    s->kernel_len = boot->kernel_len;
    s->initrd = boot->initrd;
    s->initrd_len = boot->initrd_len;
    boot->kernel = boot->initrd = NULL;
    snprintf(s->description, sizeof s->description, "%.*s: %s, %.*s",
             text_fitting(o->disks[0].path, 200), o->disks[0].path, boot->loader,
             text_fitting(boot->kernel_path, 200), boot->kernel_path);
    const bool has_root = has_root_argument(boot->command_line);
    return join_command_line(s, boot->command_line, has_root ? "" : boot->root_device,
                             has_root ? "" : boot->root_flags, o, e);
}

/* qcow2 does not know that a backing file was changed behind it. */
static void warn_of_newer(const struct disk_wish *wish)
{
    struct disk_files files;

    disk_files_list(&files, wish->path, wish->format);
    const struct disk_file *newer = disk_files_find_newer(&files);
    if (newer)
        text_print(stderr,
                   "dittovm: %s was changed after %s, whose backing file it is: the two may not "
                   "fit any more\n",
                   newer->path, files.at[newer->overlay].path);
    disk_files_free(&files);
}

/* Of its disks, those that are files already. */
static unsigned images_of(const struct run_options *o)
{
    return o->disk_count - o->wants_seed - (o->unit.root != NULL);
}

/* All images can be opened, and the first one boots: outside the emulated host, so that nobody
 * waits for it to start only to hear this, and because locks do not reach inside. */
static int check_images(struct run_sources *s, const struct run_options *o, struct err *e)
{
    struct disk_set set;
    int rc = 0;

    if (disk_set_open(&set, o->disks, images_of(o), o->write_through, e) < 0)
        return -1;
    for (unsigned i = 0; i < images_of(o); i++)
        warn_of_newer(&o->disks[i]);
    if (!o->kernel)
        rc = diskimage_find_boot(set.disk[0], o->disks[0].path, &s->boot, e);
    disk_set_close(&set);
    return rc;
}

int run_sources_check(struct run_sources *s, const struct run_options *o, struct err *e)
{
    const unsigned images = images_of(o);

    s->options = o;
    if (o->unit.root && root_check_command(o->unit.root, o->unit.argv[0], e) < 0)
        return -1;
    for (unsigned i = 0; i < images; i++)
        if (check_readable(o->disks[i].path, e) < 0)
            return -1;
    if (check_readable(o->kernel, e) < 0 || check_readable(o->initrd, e) < 0)
        return -1;
    if (o->wants_seed && disk_seed_check(&o->seed, e) < 0)
        return -1;
    const char *seed = o->wants_seed && o->record ? o->disks[images].path : NULL;
    if (seed && !o->force && access(seed, F_OK) == 0)
        return err_set(e, STATUS_ERROR, "%s exists; give --force, or another name with -o", seed);
    if (o->record && !o->force && access(o->recording, F_OK) == 0)
        return err_set(e, STATUS_ERROR, "%s exists; give --force, or another name with -o",
                       o->recording);
    return getenv(EMULATED_INSIDE_VARIABLE) ? 0 : check_images(s, o, e);
}

static int make_root(struct run_sources *s, struct err *e)
{
    const struct run_options *o = s->options;

    const struct root_request request = {
        .kernel = o->kernel,
        .network = o->net_count > 0,
        .user_net = o->net_count > 0 && o->nets[0].kind == NET_USER,
        .quiet = o->quiet,
    };

    s->holds_signals = pthread_sigmask(SIG_BLOCK, NULL, &s->mask) == 0;
    return command_unit_make(&o->unit, request, s->root, e);
}

/* It is open, or not needed. A signal that came meanwhile comes now. */
static void remove_root(struct run_sources *s)
{
    root_remove(s->root);
    s->root[0] = '\0';
    if (s->holds_signals)
        pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
    s->holds_signals = false;
}

int run_sources_hand_in(struct run_sources *s, struct err *e)
{
    int rc = 0;

    unsetenv(HANDED_VARIABLE);
    unsetenv(ROOT_VARIABLE);
    if (s->options->unit.root && (make_root(s, e) < 0 || setenv(ROOT_VARIABLE, s->root, 1) < 0))
        return -1;
    if (s->boot.asked) /* others are quickly found again */
        rc = diskimage_hand(&s->boot, s->handed, e);
    if (s->handed[0] && setenv(HANDED_VARIABLE, s->handed, 1) < 0)
        rc = err_set(e, STATUS_ERROR, "out of memory");
    disk_boot_free(&s->boot);
    return rc;
}

/* The seed's image, which is the last disk: made where the machine runs, and gone from there at
 * once where nothing is recorded. */
static int open_with_seed(struct run_sources *s, const struct run_options *o, struct err *e)
{
    struct disk_wish wishes[MAX_DISKS];
    char directory[] = "/tmp/ditto-seed.XXXXXX";
    char *const path = wishes[o->disk_count - 1].path;

    memcpy(wishes, o->disks, sizeof wishes);
    if (!o->record && !mkdtemp(directory))
        return err_set(e, STATUS_ERROR, "%s: %s", directory, strerror(errno));
    if (!o->record)
        snprintf(path, sizeof wishes->path, "%s/seed.iso", directory);
    else if (o->force)
        unlink(path);
    int rc = disk_seed_make(&o->seed, path, e);
    if (rc == 0)
        rc = disk_set_open(&s->disks, wishes, o->disk_count, o->write_through, e);
    if (!o->record) {
        unlink(path); /* it is open */
        rmdir(directory);
    }
    return rc;
}

/* The directory's disk, which is the last one, and the ram disk that goes with it. */
static int open_with_root(struct run_sources *s, const struct run_options *o, struct err *e)
{
    const char *const handed = getenv(EMULATED_INSIDE_VARIABLE) ? getenv(ROOT_VARIABLE) : NULL;
    struct disk_wish wishes[MAX_DISKS];
    char path[4096];

    if (!handed && make_root(s, e) < 0)
        return -1;
    const char *const made = handed ? handed : s->root;
    memcpy(wishes, o->disks, sizeof wishes);
    snprintf(wishes[o->disk_count - 1].path, sizeof wishes->path, "%s", made);
    snprintf(path, sizeof path, "%.4000s/" ROOT_RAM_DISK, made);
    int rc = disk_set_open(&s->disks, wishes, o->disk_count, o->write_through, e);
    if (rc == 0)
        rc = file_read(path, INITRD_MAX, &s->initrd, &s->initrd_len, e);
    remove_root(s);
    return rc;
}

static int open_disks(struct run_sources *s, const struct run_options *o, struct err *e)
{
    if (o->unit.root)
        return open_with_root(s, o, e);
    return o->wants_seed ? open_with_seed(s, o, e)
                         : disk_set_open(&s->disks, o->disks, o->disk_count, o->write_through, e);
}

void run_sources_drop_seed(const struct run_options *o)
{
    if (o->wants_seed && o->record)
        unlink(o->disks[o->disk_count - 1].path);
}

int run_sources_load(struct run_sources *s, const struct run_options *o, struct err *e)
{
    int rc = open_disks(s, o, e);
    if (rc == 0)
        rc = o->kernel ? load_files(s, o, e) : load_from_disk(s, o, e);
    if (rc < 0) {
        run_sources_drop_seed(o);
        run_sources_free(s);
    }
    return rc;
}

void run_sources_drop_boot_files(struct run_sources *s)
{
    free(s->kernel);
    free(s->initrd);
    s->kernel = s->initrd = NULL;
}

void run_sources_free(struct run_sources *s)
{
    run_sources_drop_boot_files(s);
    disk_boot_free(&s->boot);
    if (s->handed[0])
        unlink(s->handed);
    remove_root(s);
    free(s->command_line);
    disk_set_close(&s->disks);
    *s = (struct run_sources){0};
}
