#ifndef DEVICES_DISK_DISK_FILES_H
#define DEVICES_DISK_DISK_FILES_H

#include <stddef.h>
#include <stdint.h>

/*
 * The files of which a disk image consists, by which it is known whether it is still the same: the
 * image itself, first, and of qcow2 its backing files and those that hold their data. What is no
 * regular file of this host, or of another format's, is not among them.
 */
struct disk_file {
    char *path; /* absolute, without links */
    uint64_t size;
    int64_t mtime_ns; /* of its last change, since 1970 UTC */
    int overlay;      /* the index of the one whose backing file it is; -1: of none */
};

struct disk_files {
    struct disk_file *at;
    size_t count;
};

/* format: as disk_image_open() has it. What the image names may be hostile: it is looked at, and
 * not opened unless it is a regular file. */
void disk_files_list(struct disk_files *files, const char *path, const char *format);
void disk_files_free(struct disk_files *files);

/* The first backing file that was changed after what lies over it, so that the two may not fit any
 * more; NULL: there is none. */
const struct disk_file *disk_files_find_newer(const struct disk_files *files);

#endif
